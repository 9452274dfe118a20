"""MONeT's own problem, restricted as its paper writes it, for comparison with `monet`."""

from __future__ import annotations

import math
from collections.abc import Collection

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, allowed_codes
from remat_explorer.solvers.monet.paper_problem import PaperProblem

LOCAL_MEMORY = ("upper", "lower")


def solve_monet_paper(
    graph: Graph,
    budget: int,
    limits: Limits,
    implementations: str | Collection[str] = "all",
    local_memory: str = "upper",
) -> Answer:
    """The cheapest schedule of MONeT's class: gradients are computed once, and nothing is recomputed before the loss.

    Args:
        graph: the training graph; operations may have several implementations, or be optional.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell.
        implementations: "all", "exact", or names or kinds of implementations; defaults are always among them.
        local_memory: the paper's bound of what recomputation keeps beside checkpoints, "upper" or "lower"
            (appendix A); with the lower one a solution may not fit, and then there is none.

    Returns:
        The schedule, with a lower bound that holds for every schedule, not for this class alone.

    Raises:
        SolverError: if ``local_memory`` is neither, or the back end fails.
        UnknownNameError: if the graph has no implementation of a given name.

    Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), section 4 and appendix A.
    """
    if local_memory not in LOCAL_MEMORY:
        raise SolverError(f"local_memory is {shown(local_memory)}; expected 'upper' or 'lower'")
    condensed = CondensedChoices.of(graph, allowed_codes(graph, implementations))
    problem = PaperProblem(
        condensed, budget, Milp(limits.solver, limits.threads, relaxed=True), local_memory == "upper"
    )
    least = condensed.least_cost
    limits.tell("building MONeT's problem", lower_bound=least)
    if not problem.build(limits):
        return Answer(None, least, solver=limits.solver)
    best, bound = problem.solve(limits, own_bound=False)
    if best is None and math.isinf(bound):
        return Answer(None, infeasible=True, solver=limits.solver)
    if best is not None and Plan.of(best).peak > budget:
        best = None
    limits.tell("done", best, least)
    return Answer(best, least, solver=limits.solver)


METHOD = Method(
    solve_monet_paper,
    "MONeT's own restriction: no gradient is recomputed, and local memory is bounded by the forward pass's",
    "Shah et al. 2021, section 4 and appendix A",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("implementations", "local_memory"),
    choices=Support.YES,
    symbol="diamond",
)
