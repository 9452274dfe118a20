"""Chen's greedy method on chains: a checkpoint whenever a segment exceeds b bytes, with a search over b.

Algorithm 3 for one b after the other: all that give different checkpoints, up to 40 of them.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174), section 4 and Algorithm 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.settings import greedy_candidates, segment_bytes_knob, within_budget
from remat_explorer.solvers.heuristics.split_points import chain_points
from remat_explorer.solvers.method import Candidate


def chen_greedy(graph: Graph, segment_bytes: float | None = None) -> Iterator[Candidate]:
    """Schedules of Algorithm 3, from the largest segments to the smallest.

    Args:
        graph: a chain.
        segment_bytes: b; None for the search.

    Raises:
        SolverError: if the graph is no chain, or ``segment_bytes`` no integer of at least 0.

    >>> from remat_explorer.instances import linear
    >>> [found.schedule.cost for found in chen_greedy(linear(8), segment_bytes=2)]
    [21.0]
    """
    yield from greedy_candidates(graph, chain_points, segment_bytes)


CHEN_SEGMENT_BYTES = segment_bytes_knob(chain_points)
solve_chen_greedy = within_budget(chen_greedy)
