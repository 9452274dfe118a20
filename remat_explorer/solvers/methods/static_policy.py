"""Schedules of a static policy: what to keep follows from the choice of checkpoints alone, R from what is kept.

The heuristics of Checkmate's appendix B choose S first; given S, the cheapest R is the minimal one that satisfies (1b)
and (1c) (Jain et al., MLSys 2020, section 5.2 and appendix B.1). `schedule_of` makes both in one walk through the
stages: stage t recomputes what operation t lacks, and nothing else, and then drops what the policy does not keep.

Two methods have nothing to choose. Checkpoint-all (Table 1 of the paper) keeps each value until its last use.
Checkpoint-last keeps nothing of the forward pass but what the operation before has just computed, so that every
backward operation recomputes from the start what it reads: on a chain of l layers l (l + 1) / 2 recomputations, and the
memory of a few values. It is the baseline of that name in the program that the paper's authors published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Method, Support, within_budget
from remat_explorer.solvers.solver_interface import Answer, Limits, checkpoint_all, checkpoint_all_peak, least_cost

Keep = Callable[[int, np.ndarray], np.ndarray]
"""A policy: stage t and the values retained into it, bool of shape (values,), give the forward values that may stay."""


def schedule_of(graph: Graph, keep: Keep) -> Schedule:
    """The schedule that keeps what ``keep`` says, and recomputes what is missing where it is missing.

    Kept in any case: gradients (all values of backward operations) and persistent values, and a forward value while a
    forward operation that reads it is still to come, so nothing is recomputed on the way forward. What nobody reads
    again is dropped in the end, which lowers the peak at no cost.

    Args:
        graph: the training graph; of several implementations the default is used.
        keep: the policy.

    >>> from remat_explorer.instances import linear
    >>> nothing = schedule_of(linear(2), lambda t, retained: np.zeros(5, dtype=bool))
    >>> ["".join(map(str, row)) for row in nothing.R]
    ['10000', '01000', '11100', '11010', '10001']
    """
    computed: list[tuple[int, int, int]] = []
    held = np.zeros(len(graph.values), dtype=bool)
    always = graph.is_backward[graph.producer] | graph.persistent
    last_forward_read = _last_forward_read(graph)
    for t in range(graph.n):
        runs = _missing_operations(graph, t, held)
        computed += [(t, k, 1) for k in runs]
        here = held.copy()
        for k in runs:
            here[list(graph.outputs(k))] = True
        held = here & (always | (last_forward_read > t) | keep(t, held))
    return Schedule.leanest(graph, graph.n, Computations.of(computed))


def _missing_operations(graph: Graph, k: int, held: np.ndarray) -> list[int]:
    """Operation ``k`` and those that must run before it, in any order, when the values ``held`` are in memory."""
    runs, seen = [k], {k}
    for operation in runs:  # grows while it is read
        for v in graph.inputs(operation):
            producer = int(graph.producer[v])
            if not held[v] and producer not in seen:
                seen.add(producer)
                runs.append(producer)
    return runs


def _last_forward_read(graph: Graph) -> np.ndarray:
    """The last forward operation that reads each value, or -1; int of shape (values,)."""
    last = np.full(len(graph.values), -1, dtype=np.int64)
    for v, readers in enumerate(graph.readers):
        last[v] = max((k for k in readers if not graph.is_backward[k]), default=-1)
    return last


def checkpoint_last(graph: Graph) -> Iterator[Candidate]:
    """The one schedule of this method."""
    yield Candidate(schedule_of(graph, lambda t, retained: graph.producer == t))


CHECKPOINT_LAST = Method(
    within_budget(checkpoint_last),
    "nothing of the forward pass is kept: each backward operation recomputes what it reads",
    "the published program of Jain et al. 2020",
    general_graphs=Support.YES,
    cost_aware=Support.NO,
    memory_aware=Support.NO,
    candidates=checkpoint_last,
    background_sweep=BackgroundSweep.NEVER,  # its overhead of tens of times would flatten the curve
    symbol="hexagon",
)


def solve_checkpoint_all(graph: Graph, budget: int, limits: Limits) -> Answer:
    """Checkpoint-all if it fits into the budget; there is no other schedule of this strategy."""
    schedule = checkpoint_all(graph)
    if Plan.of(schedule).peak > budget:
        return Answer(None, infeasible=True)
    least = least_cost(graph)
    limits.tell("computed everything once", schedule, least)
    return Answer(schedule, lower_bound=least)


CHECKPOINT_ALL = Method(
    solve_checkpoint_all,
    "everything is kept until its last use, as plain execution does",
    "Jain et al. 2020, Table 1",
    general_graphs=Support.YES,
    cost_aware=Support.NO,
    memory_aware=Support.NO,
    choices=Support.PARTLY,
    smallest_budget=checkpoint_all_peak,
    symbol="pentagon",
)
