"""Checkmate's approximation: the linear program of problem (9) with an allowance, rounded in two phases.

Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys 2020. Three methods:

* deterministic (section 5, Algorithm 2): solve the linear program with the budget less an allowance epsilon, retain
  what it retains to more than one half, and compute as little as that allows. Rounding may need more memory than the
  program had; the allowance is room for it, and where it is too small the method has no schedule;
* randomized (appendix D): many draws of what is retained, of which the cheapest that fits;
* with a search over the allowance and the threshold (the last sentence of appendix D, which leaves open which values
  are tried). The linear program depends on the allowance alone, so it is solved once for each.
"""

from __future__ import annotations

import math
import numbers

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.methods.two_phase_rounding import (
    DIGITS,
    FractionalSchedule,
    draw_samples,
    reduced_budget,
    round_deterministically,
    solve_linear_program,
)
from remat_explorer.solvers.solver_interface import Answer, Limits

EPSILON = 0.1  # the paper's allowance
THRESHOLD = 0.5  # and its threshold


def solve_checkmate_approx(
    graph: Graph, budget: int, limits: Limits, epsilon: float = EPSILON, threshold: float = THRESHOLD
) -> Answer:
    """Deterministic two-phase rounding.

    The linear program has less than the budget by the share ``epsilon`` of what is not resident; retained is what it
    retains to more than the degree ``threshold``. Its optimum is a bound with epsilon=0 only. There is no schedule
    where the rounded one exceeds the budget, or the time is too short.
    """
    epsilon = _require_epsilon(epsilon)
    threshold = _below_one("threshold", threshold, "a number from 0 to less than 1, such as 0.5")
    condensed = CondensedGraph.of(graph)
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


DETERMINISTIC = Method(
    solve_checkmate_approx,
    "the linear program of problem (9), its budget lowered by epsilon; what it keeps to more than threshold is kept",
    "Jain et al. 2020, section 5 and Algorithm 2",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("epsilon", "threshold"),
    symbol="triangle-down",
)


SAMPLES = 100


def solve_checkmate_approx_random(
    graph: Graph, budget: int, limits: Limits, samples: int = SAMPLES, seed: int = 0, epsilon: float = EPSILON
) -> Answer:
    """Randomized two-phase rounding: the cheapest of ``samples`` schedules that fits into the budget.

    The same seed gives the same answer, unless the time is up before all samples are drawn.
    """
    samples, seed = _whole("samples", samples, 1, ", such as 100"), _whole("seed", seed, 0)
    epsilon = _require_epsilon(epsilon)
    room = reduced_budget(graph, budget, epsilon)
    relaxed = solve_linear_program(CondensedGraph.of(graph), room, limits)
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


RANDOMIZED = Method(
    solve_checkmate_approx_random,
    "the same linear program, rounded at random many times, and the cheapest schedule that fits",
    "Jain et al. 2020, appendix D",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("samples", "seed", "epsilon"),
    symbol="cross",
)


EPSILONS = (0.0, 0.1, 0.05, 0.2, 0.02, 0.3, 0.15, 0.4)  # the first proves a bound; the paper's own comes next
MOST_THRESHOLDS = 40  # where the linear program has more degrees than this, as many of them evenly


def solve_checkmate_approx_search(graph: Graph, budget: int, limits: Limits) -> Answer:
    """Deterministic two-phase rounding at several allowances and every threshold that makes a difference.

    Each linear program may take half of the time that is left. The bound is the optimum of that of the whole budget,
    where there was time to solve it.
    """
    condensed = CondensedGraph.of(graph)
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


SEARCHED = Method(
    solve_checkmate_approx_search,
    "checkmate-approx with several epsilons and every threshold that makes a difference",
    "Jain et al. 2020, appendix D, last sentence",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    symbol="x",
)


def _below_one(name: str, given: object, what: str) -> float:
    """An option that lies from 0 to less than 1."""
    number = _number(given)
    if number is None or not 0 <= number < 1:
        raise SolverError(f"{name} is {shown(given)}; expected {what}")
    return number


def _require_epsilon(epsilon: object) -> float:
    return _below_one("epsilon", epsilon, "a share of the budget from 0 to less than 1, such as 0.1")


def _whole(name: str, given: object, least: int, such: str = "") -> int:
    """An option that is a whole number of at least ``least``."""
    if isinstance(given, bool) or not isinstance(given, numbers.Integral) or given < least:
        raise SolverError(f"{name} is {shown(given)}; expected a whole number of at least {least}{such}")
    return int(given)


def _number(given: object) -> float | None:
    """``given`` as a finite float, or None."""
    try:
        number = math.nan if isinstance(given, bool) or not isinstance(given, numbers.Real) else float(given)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
