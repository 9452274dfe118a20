"""Chen's sqrt(n): every floor(sqrt(n))-th of the n split points of the forward pass is a checkpoint.

S follows from the checkpoints, and R is the least that S needs. Three methods differ in where the forward pass may be
split: on a chain after every operation; at articulation points of the undirected forward graph (AP); after every
operation in topological order, as if each read from the one before it (linearized). On a chain they are the same.
Where skip connections leave few articulation points, as in a U-Net, AP has little to choose from.

Sources: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174), section 4; Jain et al.,
Checkmate (MLSys 2020), section 6.1, appendices B.1 and B.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.segmentation import (
    SplitPoints,
    articulation_split_points,
    chain_points,
    every_sqrt_n,
    linearized_points,
    segment_candidates,
    within_budget,
)
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Method, Support


def sqrt_n_candidates(split_points: SplitPoints) -> Callable[[Graph], Iterator[Candidate]]:
    """The schedules of the method with these split points: one, or two where segments read past each other's.

    >>> from remat_explorer.instances import linear
    >>> [(found.label, found.schedule.cost) for found in sqrt_n_candidates(linearized_points)(linear(8))]
    [('4 checkpoints', 21.0)]
    """

    def candidates(graph: Graph) -> Iterator[Candidate]:
        checkpoints = every_sqrt_n(split_points(graph))
        return segment_candidates(graph, [(f"{len(checkpoints)} checkpoints", checkpoints)])

    return candidates


def _method(split_points: SplitPoints, summary: str, source: str, general_graphs: Support, symbol: str) -> Method:
    candidates = sqrt_n_candidates(split_points)
    return Method(
        within_budget(candidates),
        summary,
        source,
        general_graphs=general_graphs,
        cost_aware=Support.NO,
        memory_aware=Support.NO,
        candidates=candidates,
        background_sweep=BackgroundSweep.ALWAYS,
        symbol=symbol,
    )


CHEN = _method(
    chain_points,
    "on a chain of n layers, a checkpoint after every sqrt(n) of them",
    "Chen et al. 2016, section 4",
    Support.NO,
    "triangle-right",
)
AP = _method(
    articulation_split_points,
    "chen-sqrt-n on the articulation points of the forward graph",
    "Jain et al. 2020, section 6.1 and appendix B.1",
    Support.PARTLY,
    "diamond-wide",
)
LINEARIZED = _method(
    linearized_points,
    "chen-sqrt-n on the forward operations in their order, as if they were a chain",
    "Jain et al. 2020, section 6.1 and appendix B.2",
    Support.YES,
    "bowtie",
)
