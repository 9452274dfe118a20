"""The schedule of a chain that stores so many states: REVOLVE's, on the operations and values of a training graph.

Source: Griewank and Walther, Algorithm 799: revolve (ACM Transactions on Mathematical Software 26, 2000).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import MOST_COMPUTATIONS
from remat_explorer.solvers.heuristics.binomial import forward_steps, stored_states
from remat_explorer.solvers.heuristics.chain import forward_positions
from remat_explorer.solvers.heuristics.split_points import kept_values
from remat_explorer.solvers.heuristics.static_policy import schedule_of


def binomial_schedule(graph: Graph, slots: int) -> Schedule:
    """The schedule of a chain that stores at most ``slots`` states while it reverses a step.

    Beside the slots there are the values of the layer whose backward operations run: they stay until those are done.

    >>> from remat_explorer.instances import linear
    >>> binomial_schedule(linear(8), 3).cost
    22.0
    """
    forward = int((~graph.is_backward).sum())
    sizes = [0] + [int(graph.value_bytes[kept_values(graph, k)].sum()) for k in range(forward)]
    stored = stored_states(forward + 1, slots, sizes)[:, 1:]  # of shape (steps, forward): without the input
    reversing = _first_state_needed(graph, forward)
    of_forward = ~graph.is_backward[graph.producer]
    position = np.where(of_forward, graph.producer, 0)

    def keep(t: int, retained: np.ndarray) -> np.ndarray:
        state = int(reversing[t])
        return of_forward & (stored[state + 1][position] | (position >= state))

    return schedule_of(graph, keep)


def _first_state_needed(graph: Graph, forward: int) -> np.ndarray:
    """For each stage the earliest position that the backward pass has read from, int of shape (n,).

    Stages before the first such operation look ahead to it: what they leave in memory is what it starts from.
    """
    lowest = np.full(graph.n, forward, dtype=np.int64)
    for t in np.flatnonzero(graph.is_backward):
        lowest[t] = min(forward_positions(graph, int(t)), default=forward)
    lowest = np.minimum.accumulate(lowest)
    first = lowest[lowest < forward][:1]
    lowest[lowest == forward] = first[0] if len(first) else forward - 1
    return lowest


def binomial_within(graph: Graph, budget: int, over: Callable[[], bool] = lambda: False) -> Schedule | None:
    """The schedule with the most slots whose plan fits: more slots recompute less and hold more.

    From about log2 of the steps on, with which no step is run often, numbers are doubled until one does not fit; then
    it is bisected. The smallest numbers, whose schedules are very long, are looked at only where nothing else fits, and
    those with more than `MOST_COMPUTATIONS` steps not at all.

    Args:
        graph: a chain.
        budget: bytes, resident bytes included.
        over: whether to end with what was found.

    >>> from remat_explorer.instances import linear
    >>> binomial_within(linear(8), 6).cost, binomial_within(linear(8), 2)
    (21.0, None)
    """
    best: Schedule | None = None
    most = int((~graph.is_backward).sum())
    fits = fewest_slots(most) - 1
    exceeds, slots = most + 1, min(max(most.bit_length(), fits + 1), most)
    while exceeds - fits > 1 and not over():
        schedule = binomial_schedule(graph, slots)
        if Plan.of(schedule).peak <= budget:
            best, fits = schedule, slots
        else:
            exceeds = slots
        slots = (fits + exceeds) // 2 if exceeds <= most else min(2 * fits, most)
    return best


def fewest_slots(layers: int) -> int:
    """How many slots a schedule of at most `MOST_COMPUTATIONS` forward steps must have.

    >>> fewest_slots(8), fewest_slots(5_000)
    (1, 3)
    """
    every = range(1, layers + 1)
    return next((slots for slots in every if forward_steps(layers + 1, slots) <= MOST_COMPUTATIONS), layers + 1)
