"""Chen's sqrt(n) on chains: a checkpoint after every floor(sqrt(n)) of n layers.

What lies between two checkpoints is recomputed once, as a segment, when the backward pass reaches it. The length of the
segments is the one setting of the method, so it has no knob.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174), section 4.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.settings import sqrt_n_candidates, within_budget
from remat_explorer.solvers.heuristics.split_points import chain_points
from remat_explorer.solvers.method import Candidate


def chen_sqrt_n(graph: Graph) -> Iterator[Candidate]:
    """The one schedule of this method.

    Args:
        graph: a chain.

    Raises:
        SolverError: if the graph is no chain.

    >>> from remat_explorer.instances import linear
    >>> [found.schedule.cost for found in chen_sqrt_n(linear(8))]
    [21.0]
    """
    yield from sqrt_n_candidates(graph, chain_points)


solve_chen_sqrt_n = within_budget(chen_sqrt_n)
