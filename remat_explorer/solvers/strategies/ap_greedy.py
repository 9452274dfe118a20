"""AP greedy: Chen's greedy method on the articulation points of the undirected forward graph.

A segment grows until it exceeds b bytes, and ends at the next articulation point; S follows from these checkpoints, and
R is the least that S needs. On a chain it is chen-greedy.

Sources: Jain et al., Checkmate (MLSys 2020), section 6.1 and appendix B.1; Chen et al., Training Deep Nets with
Sublinear Memory Cost (arXiv 1604.06174), Algorithm 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.settings import greedy_candidates, segment_bytes_knob, within_budget
from remat_explorer.solvers.heuristics.split_points import articulation_split_points
from remat_explorer.solvers.method import Candidate


def ap_greedy(graph: Graph, segment_bytes: float | None = None) -> Iterator[Candidate]:
    """Schedules of Algorithm 3, from the largest segments to the smallest.

    Args:
        graph: any training graph.
        segment_bytes: b; None for the search.

    Raises:
        SolverError: if ``segment_bytes`` is no integer of at least 0.

    >>> from remat_explorer.instances import linear
    >>> [found.schedule.cost for found in ap_greedy(linear(8), segment_bytes=2)]
    [21.0]
    """
    yield from greedy_candidates(graph, articulation_split_points, segment_bytes)


AP_SEGMENT_BYTES = segment_bytes_knob(articulation_split_points)
solve_ap_greedy = within_budget(ap_greedy)
