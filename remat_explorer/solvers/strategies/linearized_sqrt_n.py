"""Linearized sqrt(n): Chen's sqrt(n) on the topological order of the forward operations.

The forward graph is treated as if each operation read from the one before it: every floor(sqrt(n))-th of the n forward
operations is a checkpoint, S follows from these, and R is the least that S needs. On a chain it is chen-sqrt-n.

Source: Jain et al., Checkmate (MLSys 2020), section 6.1 and appendix B.2.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.settings import sqrt_n_candidates, within_budget
from remat_explorer.solvers.heuristics.split_points import linearized_points
from remat_explorer.solvers.method import Candidate


def linearized_sqrt_n(graph: Graph) -> Iterator[Candidate]:
    """The schedules of this method: one, or two where segments read past each other's checkpoints.

    Args:
        graph: any training graph.

    >>> from remat_explorer.instances import linear
    >>> [found.schedule.cost for found in linearized_sqrt_n(linear(8))]
    [21.0]
    """
    yield from sqrt_n_candidates(graph, linearized_points)


solve_linearized_sqrt_n = within_budget(linearized_sqrt_n)
