"""The strategy `monet`: the joint problem of schedule and implementations."""

from __future__ import annotations

import math
from collections.abc import Collection

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, allowed_codes
from remat_explorer.solvers.monet.joint_problem import JointProblem


def solve_monet(graph: Graph, budget: int, limits: Limits, implementations: str | Collection[str] = "all") -> Answer:
    """The cheapest schedule within the budget with an implementation chosen for every run.

    Args:
        graph: the training graph; operations may have several implementations, or be optional.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell.
        implementations: "all"; "exact", those whose results are bit-equal; or names of implementations. Defaults are
            always among them. The lower bound is about schedules of these implementations.

    Raises:
        UnknownNameError: if the graph has no implementation of a given name.
        SolverError: if the back end fails.

    Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), for the choice of implementations.
    """
    condensed = CondensedChoices.of(graph, allowed_codes(graph, implementations))
    least = condensed.least_cost
    if int(condensed.least_memory.max()) > budget:
        return Answer(None, infeasible=True)
    problem = JointProblem(condensed, budget, Milp(limits.solver, limits.threads, relaxed=True))
    limits.tell("building the joint problem", lower_bound=least)
    if not problem.build(limits):
        return Answer(None, least, solver=limits.solver)
    best, bound = problem.solve(limits)
    if best is None and math.isinf(bound):
        return Answer(None, infeasible=True, solver=limits.solver)
    limits.tell("done", best, bound)
    return Answer(best, bound, solver=limits.solver)
