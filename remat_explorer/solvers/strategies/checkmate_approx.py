"""Checkmate's approximation: the linear program of problem (9), rounded in two phases.

Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys 2020, section 5 and
Algorithm 2: solve the linear program with the budget less an allowance epsilon, retain what it retains to more than
one half, and compute as little as that allows. Rounding may need more memory than the program had; the allowance is
room for it, and where it is too small the method has no schedule.
"""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.rounding.linear_program import reduced_budget, solve_linear_program
from remat_explorer.solvers.rounding.two_phase import require_epsilon, require_threshold, round_deterministically

EPSILON = 0.1  # the paper's allowance
THRESHOLD = 0.5  # and its threshold


def solve_checkmate_approx(
    graph: Graph, budget: int, limits: Limits, epsilon: float = EPSILON, threshold: float = THRESHOLD
) -> Answer:
    """Deterministic two-phase rounding.

    Args:
        graph: the training graph, one implementation per operation.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell.
        epsilon: by what share of the budget, beyond resident bytes, that of the linear program is less.
        threshold: retained is what the linear program retains to more than this degree.

    Returns:
        The rounded schedule, or none where it exceeds the budget or the linear program takes longer than there is
        time. The optimum of a linear program with less than the budget is no bound; with epsilon=0 it is one.

    Raises:
        SolverError: if an option has no such value, an operation has several implementations, or the back end fails.

    >>> from remat_explorer.instances import linear
    >>> answer = solve_checkmate_approx(linear(8), 8, Limits())
    >>> answer.schedule is None or answer.schedule.cost >= 17
    True
    """
    epsilon, threshold = require_epsilon(epsilon), require_threshold(threshold)
    condensed = Condensed.of(graph)
    room = reduced_budget(graph, budget, epsilon)
    relaxed = solve_linear_program(condensed, room, limits)
    bound = relaxed.bound if room == budget else graph.total_cost
    if relaxed.status != "solved":
        if relaxed.status == "infeasible" and room == budget:
            return Answer(None, infeasible=True, solver=limits.solver)
        limits.tell(relaxed.failure, lower_bound=graph.total_cost)
        return Answer(None, graph.total_cost, solver=limits.solver, limit=limits.reached or relaxed.failure)
    schedule = round_deterministically(condensed, relaxed.S, threshold)
    if Plan.of(schedule).peak > budget:
        limits.tell("the rounded schedule exceeds the budget", lower_bound=bound)
        limit = "the rounding, whose schedule exceeds the budget"
        return Answer(None, bound, solver=limits.solver, limit=limit)
    limits.tell("done", schedule, bound)
    return Answer(schedule, bound, solver=limits.solver)


METHOD = Method(
    solve_checkmate_approx,
    "the linear program of problem (9) with an allowance, rounded in two phases at a threshold",
    "Jain et al. 2020, section 5 and Algorithm 2",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("epsilon", "threshold"),
    symbol="triangle-down",
)
