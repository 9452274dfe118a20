"""Checkpoint-last: keep nothing of the forward pass but what the operation before has just computed.

Every backward operation recomputes the forward values that it reads from the start; gradients are kept. It is the
other end of the trade-off from checkpoint-all: on a chain of l layers it takes l (l + 1) / 2 recomputations, and the
memory of a few values.

Source: the baseline of that name in the program that the authors of Checkmate (Jain et al., MLSys 2020) published; the
paper does not name it.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.segmentation import within_budget
from remat_explorer.solvers.heuristics.static_policy import schedule_of
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Method, Support


def checkpoint_last(graph: Graph) -> Iterator[Candidate]:
    """The one schedule of this method.

    >>> from remat_explorer.instances import linear
    >>> [candidate.schedule.cost for candidate in checkpoint_last(linear(8))]
    [53.0]
    """
    yield Candidate(schedule_of(graph, lambda t, retained: graph.producer == t))


METHOD = Method(
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
