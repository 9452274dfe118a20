"""Valid schedules that recompute at random, to try what no solver would choose."""

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.solution import Solution, Status


def random_schedule(graph: Graph, seed: int, dropped: float = 0.3, flipped: float = 0.002) -> Schedule:
    """A frontier-advancing schedule: random S, and the least R that it needs.

    Args:
        dropped: share of values that are never retained.
        flipped: share of single entries of S that are inverted on top of it.
    """
    draw = np.random.default_rng(seed)
    n, v = graph.n, len(graph.values)
    possible = np.arange(n)[:, None] > graph.producer[None, :]
    S = (np.broadcast_to(draw.random(v) >= dropped, (n, v)) ^ (draw.random((n, v)) < flipped)) & possible
    S |= possible & graph.persistent
    R = np.eye(n, dtype=int)
    for t in range(n):
        needed = (S[t + 1] if t + 1 < n else np.zeros(v, dtype=bool)) & ~S[t]
        for k in range(t, -1, -1):
            if k == t or needed[list(graph.outputs(k))].any():
                R[t, k] = 1
                for value in graph.inputs(k):
                    needed[value] |= not S[t, value]
    return Schedule(graph, R, S).compact()


def checkpoint_all(graph: Graph) -> Schedule:
    S = np.arange(graph.n)[:, None] > graph.producer[None, :]
    return Schedule(graph, np.eye(graph.n, dtype=int), S).compact()


def solution_of(schedule: Schedule, budget: int = 2**62) -> Solution:
    return Solution(schedule.graph, "test", Status.FEASIBLE, budget, schedule, None, 0.0)
