"""Checkmate's approximation with a search over its allowance and its threshold: the cheapest that fits.

Jain et al., Checkmate (MLSys 2020), the last sentence of appendix D, which leaves open which values are tried. The
linear program depends on the allowance alone, so it is solved once for each.
"""

from __future__ import annotations

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.rounding.linear_program import FractionalSchedule, reduced_budget, solve_linear_program
from remat_explorer.solvers.rounding.two_phase import DIGITS, round_deterministically

EPSILONS = (0.0, 0.1, 0.05, 0.2, 0.02, 0.3, 0.15, 0.4)  # the first proves a bound; the paper's own comes next
MOST_THRESHOLDS = 40  # where the linear program has more degrees than this, as many of them evenly


def solve_checkmate_approx_search(graph: Graph, budget: int, limits: Limits) -> Answer:
    """Deterministic two-phase rounding at several allowances and every threshold that makes a difference.

    Args:
        graph: the training graph, one implementation per operation.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell; each linear program may take half of the time that is left.

    Returns:
        The cheapest rounded schedule within the budget, and the optimum of the linear program of the whole budget as
        its bound, where there was time to solve it.

    Raises:
        SolverError: if an operation has several implementations, or the back end fails.
    """
    condensed = Condensed.of(graph)
    bound, best = graph.total_cost, None
    for epsilon in EPSILONS:
        if limits.over:
            break
        room = reduced_budget(graph, budget, epsilon)
        relaxed = solve_linear_program(condensed, room, limits.share(0.5))
        if room == budget:
            if relaxed.status == "infeasible":
                return Answer(None, infeasible=True, solver=limits.solver)
            bound = max(bound, relaxed.bound)
        if relaxed.status == "solved":
            best = _cheaper_rounding(relaxed, budget, best, bound, limits)
        limits.tell(relaxed.failure or f"rounded with an allowance of {epsilon:g}", best, bound)
    return Answer(best, bound, solver=limits.solver)


def thresholds(S: np.ndarray) -> list[float]:
    """Thresholds that round S* to different S, from keeping most to keeping least.

    Rounding changes only where the threshold passes a degree that occurs in S*.

    >>> thresholds(np.array([[0.0, 0.25], [0.25, 1.0]]))
    [0.0, 0.25]
    """
    degrees = np.unique(np.append(S.round(DIGITS), 0.0))
    degrees = degrees[degrees < 1]
    if len(degrees) > MOST_THRESHOLDS:
        degrees = degrees[np.linspace(0, len(degrees) - 1, MOST_THRESHOLDS).round().astype(int)]
    return [float(degree) for degree in degrees]


def _cheaper_rounding(
    relaxed: FractionalSchedule, budget: int, best: Schedule | None, bound: float, limits: Limits
) -> Schedule | None:
    """The cheapest of ``best`` and what rounding at each threshold gives within the budget."""
    for threshold in thresholds(relaxed.S):
        if limits.over:
            break
        schedule = round_deterministically(relaxed.condensed, relaxed.S, threshold)
        if (best is None or schedule.cost < best.cost) and Plan.of(schedule).peak <= budget:
            best = schedule
            limits.tell("rounding", best, bound)
    return best


METHOD = Method(
    solve_checkmate_approx_search,
    "two-phase rounding at several allowances and every threshold that makes a difference",
    "Jain et al. 2020, appendix D, last sentence",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    symbol="x",
)
