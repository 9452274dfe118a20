"""Checkpoint-all: compute everything once and keep each value until its last use, as plain execution does."""

from __future__ import annotations

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits


def checkpoint_all(graph: Graph) -> Schedule:
    """The schedule without any recomputation.

    >>> from remat_explorer.instances import linear
    >>> checkpoint_all(linear(8)).cost
    17.0
    """
    return Schedule(graph, np.eye(graph.n), np.zeros((graph.n, len(graph.values)))).compact()


def checkpoint_all_peak(graph: Graph) -> int:
    """Bytes that keeping everything takes: the 100% of a budget.

    >>> from remat_explorer.instances import linear
    >>> checkpoint_all_peak(linear(8))
    10
    """
    return Plan.of(checkpoint_all(graph)).peak


def solve_checkpoint_all(graph: Graph, budget: int, limits: Limits) -> Answer:
    """Checkpoint-all if it fits into the budget; there is no other schedule of this strategy."""
    schedule = checkpoint_all(graph)
    if Plan.of(schedule).peak > budget:
        return Answer(None, infeasible=True)
    limits.tell("computed everything once", schedule, graph.total_cost)
    return Answer(schedule, lower_bound=graph.total_cost)
