"""Chen's greedy method: a segment ends at the first split point at which it exceeds b bytes, with a search over b.

S follows from the checkpoints at the ends of segments, and R is the least that S needs. Algorithm 3 runs for one b
after the other: all that give different checkpoints, up to 40 of them. Three methods differ in where the forward pass
may be split: on a chain after every operation; at articulation points of the undirected forward graph (AP); after
every operation in topological order, as if each read from the one before it (linearized). On a chain they are the same.

Sources: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174), section 4 and Algorithm 3;
Jain et al., Checkmate (MLSys 2020), section 6.1, appendices B.1 and B.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.segmentation import (
    SplitPoints,
    articulation_split_points,
    chain_points,
    greedy,
    linearized_points,
    segment_candidates,
    segment_sizes,
    whole_number,
    within_budget,
)
from remat_explorer.solvers.method import Candidate, Knob, Method, Support


def greedy_candidates(split_points: SplitPoints) -> Callable[..., Iterator[Candidate]]:
    """The schedules of Algorithm 3 with these split points, from the largest segments to the smallest.

    Their keyword argument ``segment_bytes`` is b, an integer of at least 0; None for the search.

    >>> from remat_explorer.instances import linear
    >>> [found.schedule.cost for found in greedy_candidates(linearized_points)(linear(8), segment_bytes=2)]
    [21.0]
    """

    def candidates(graph: Graph, segment_bytes: float | None = None) -> Iterator[Candidate]:
        points = split_points(graph)
        if segment_bytes is None:
            sizes = segment_sizes(graph, points)[::-1]
        else:
            sizes = [whole_number("segment_bytes", segment_bytes, 0, "bytes")]
        checkpoints = ((f"segments of {size} bytes", greedy(graph, points, size)) for size in sizes)
        return segment_candidates(graph, checkpoints)

    return candidates


def segment_bytes_knob(split_points: SplitPoints) -> Knob:
    """Chen's b, with the values that the search over it tries.

    >>> from remat_explorer.instances import linear
    >>> segment_bytes_knob(linearized_points).values(linear(4))
    [0, 1, 2, 3, 4]
    """
    meaning = "b of Algorithm 3: bytes of forward values after which a segment ends"
    return Knob("segment_bytes", meaning, lambda graph: segment_sizes(graph, split_points(graph)))


def _method(split_points: SplitPoints, summary: str, source: str, general_graphs: Support, symbol: str) -> Method:
    candidates = greedy_candidates(split_points)
    return Method(
        within_budget(candidates),
        summary,
        source,
        general_graphs=general_graphs,
        cost_aware=Support.NO,
        memory_aware=Support.PARTLY,
        knob=segment_bytes_knob(split_points),
        candidates=candidates,
        symbol=symbol,
    )


CHEN = _method(
    chain_points,
    "on a chain, a checkpoint whenever a segment exceeds b bytes; several b are tried",
    "Chen et al. 2016, section 4 and Algorithm 3",
    Support.NO,
    "diamond-tall",
)
AP = _method(
    articulation_split_points,
    "chen-greedy on the articulation points of the forward graph",
    "Jain et al. 2020, section 6.1 and appendix B.1",
    Support.PARTLY,
    "hourglass",
)
LINEARIZED = _method(
    linearized_points,
    "chen-greedy on the forward operations in their order, as if they were a chain",
    "Jain et al. 2020, section 6.1 and appendix B.2",
    Support.YES,
    "star-square",
)
