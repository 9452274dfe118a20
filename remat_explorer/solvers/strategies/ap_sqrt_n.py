"""AP sqrt(n): Chen's sqrt(n) on the articulation points of the undirected forward graph.

Every floor(sqrt(n))-th of the n articulation points is a checkpoint; S follows from these, and R is the least that S
needs. On a chain it is chen-sqrt-n. Where skip connections leave few articulation points, as in a U-Net, there is
little to choose from.

Source: Jain et al., Checkmate (MLSys 2020), section 6.1 and appendix B.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.settings import sqrt_n_candidates, within_budget
from remat_explorer.solvers.heuristics.split_points import articulation_split_points
from remat_explorer.solvers.method import Candidate


def ap_sqrt_n(graph: Graph) -> Iterator[Candidate]:
    """The schedules of this method: one, or two where segments read past each other's checkpoints.

    Args:
        graph: any training graph.

    >>> from remat_explorer.instances import linear
    >>> [found.schedule.cost for found in ap_sqrt_n(linear(8))]
    [21.0]
    """
    yield from sqrt_n_candidates(graph, articulation_split_points)


solve_ap_sqrt_n = within_budget(ap_sqrt_n)
