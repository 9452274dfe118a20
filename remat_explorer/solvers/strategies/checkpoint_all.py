"""Checkpoint-all: compute everything once and keep each value until its last use, as plain execution does.

Source: Jain et al., Checkmate (MLSys 2020), Table 1.
"""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.checkpoint_all import checkpoint_all, checkpoint_all_peak, least_cost
from remat_explorer.solvers.method import Method, Support


def solve_checkpoint_all(graph: Graph, budget: int, limits: Limits) -> Answer:
    """Checkpoint-all if it fits into the budget; there is no other schedule of this strategy.

    >>> from remat_explorer.instances import linear
    >>> solve_checkpoint_all(linear(8), 10, Limits()).schedule.cost
    17.0
    """
    schedule = checkpoint_all(graph)
    if Plan.of(schedule).peak > budget:
        return Answer(None, infeasible=True)
    least = least_cost(graph)
    limits.tell("computed everything once", schedule, least)
    return Answer(schedule, lower_bound=least)


METHOD = Method(
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
