"""Checkmate's approximation with randomized rounding: many draws of what is retained, the cheapest that fits.

Jain et al., Checkmate (MLSys 2020), appendix D. All draws, as data for the paper's Figure 8, are
`remat_explorer.solvers.rounding.two_phase.scatter`.
"""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.rounding.linear_program import reduced_budget, solve_linear_program
from remat_explorer.solvers.rounding.two_phase import draw_samples, require_epsilon, require_samples, require_seed
from remat_explorer.solvers.strategies.checkmate_approx import EPSILON

SAMPLES = 100


def solve_checkmate_approx_random(
    graph: Graph, budget: int, limits: Limits, samples: int = SAMPLES, seed: int = 0, epsilon: float = EPSILON
) -> Answer:
    """Randomized two-phase rounding: the cheapest of ``samples`` schedules that fits into the budget.

    Args:
        graph: the training graph, one implementation per operation.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell.
        samples: how many schedules are drawn, unless the time is up before.
        seed: of the random numbers; the same seed gives the same answer.
        epsilon: by what share of the budget, beyond resident bytes, that of the linear program is less.

    Raises:
        SolverError: if an option has no such value, an operation has several implementations, or the back end fails.
    """
    samples, seed, epsilon = require_samples(samples), require_seed(seed), require_epsilon(epsilon)
    room = reduced_budget(graph, budget, epsilon)
    relaxed = solve_linear_program(Condensed.of(graph), room, limits)
    bound = relaxed.bound if room == budget else graph.total_cost
    if relaxed.status == "infeasible" and room == budget:
        return Answer(None, infeasible=True, solver=limits.solver)
    if relaxed.status != "solved":
        limits.tell(relaxed.failure, lower_bound=graph.total_cost)
        return Answer(None, graph.total_cost, solver=limits.solver, limit=limits.reached or relaxed.failure)
    best: Schedule | None = None
    for sample in draw_samples(relaxed, samples, seed):
        if sample.peak <= budget and (best is None or sample.cost < best.cost):
            best = sample.schedule
            limits.tell("drawing schedules", best, bound)
        if limits.over:
            break
    if best is None:
        limits.tell("no schedule that was drawn fits into the budget", lower_bound=bound)
    return Answer(best, bound, solver=limits.solver)


METHOD = Method(
    solve_checkmate_approx_random,
    "the same linear program, rounded at random many times, and the cheapest schedule that fits",
    "Jain et al. 2020, appendix D",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("samples", "seed", "epsilon"),
    symbol="cross",
)
