"""The optimal strategy at several budgets, with what one budget has to say to the others.

1. The few-moments relaxation finds its moments at the smallest budget, where the most are needed. One linear program
   with these moments then bounds every budget; see `several_budgets`.
2. Schedules are planned from the smallest budget up. What was found for a smaller one is the incumbent of the next, and
   where the bound says that it cannot be improved nothing is planned at all.

This is the cheap half of a sweep. `improve` is the other one: a search at one budget, begun from what is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.few_moments import MomentsBound, few_moments_bound
from remat_explorer.solvers.guidance import guides
from remat_explorer.solvers.optimal import SETTLED, Search
from remat_explorer.solvers.planner import guided_schedule, plan_schedule
from remat_explorer.solvers.several_budgets import MomentsAtBudgets

BOUNDING, MOMENTS = 0.8, 0.5  # shares of the time, at most: for all bounds, and of that for the choice of moments


def solve_together(graph: Graph, budgets: Sequence[int], start: Schedule | None, limits: Limits) -> list[Answer]:
    """Schedules and bounds for several budgets.

    Args:
        graph: the training graph, one implementation per operation.
        budgets: bytes, ascending.
        start: a schedule to begin with wherever it fits, or None.
        limits: time for all of them together, and back end.

    Returns:
        One answer per budget; their costs fall and their bounds fall from budget to budget.

    >>> from remat_explorer.instances import linear
    >>> answers = solve_together(linear(8), [4, 6, 10], None, Limits(30))
    >>> [round(answer.lower_bound, 1) for answer in answers]
    [23.3, 21.0, 17.0]
    """
    condensed = Condensed.of(graph)
    bounds = _bounds(condensed, budgets, limits.share(BOUNDING))
    fits_from = math.inf if start is None else Plan.of(start).peak
    found = [start if fits_from <= budget else None for budget in budgets]
    for step in (_follow_weakly, _follow_strongly, _plan):  # every budget gets a schedule before any gets a second walk
        best: Schedule | None = None
        for i, (budget, bound) in enumerate(zip(budgets, bounds, strict=True)):
            found[i] = best = _cheaper(found[i], best)
            if not limits.over and not _settled(best, bound):
                own = limits.share(1 / (len(budgets) - i))
                found[i] = best = _cheaper(best, step(condensed, budget, bound, best, own))
    return [_answer(schedule, bound, limits) for schedule, bound in zip(found, bounds, strict=True)]


def improve(graph: Graph, budget: int, known: Answer, limits: Limits) -> Answer:
    """The search of the optimal strategy at one budget, never worse than what is known.

    Args:
        graph: the training graph.
        budget: bytes.
        known: a schedule within the budget and a bound, or None for either.
        limits: time, back end, and whom to tell.
    """
    return Search(Condensed.of(graph), budget, limits, known.schedule, known.lower_bound or 0.0).run()


def _bounds(condensed: Condensed, budgets: Sequence[int], limits: Limits) -> list[MomentsBound]:
    """The relaxation at each budget; where nothing is solved any more, the next larger budget's bound is valid, too."""
    adapted = few_moments_bound(condensed, budgets[0], limits.share(MOMENTS))
    bounds = [MomentsBound(condensed.graph.total_cost)] * len(budgets)
    if adapted.moments and len(budgets) > 1 and not limits.over:
        problem = MomentsAtBudgets(condensed, budgets[0], adapted.moments, limits)
        for i in range(len(budgets) - 1, 0, -1):
            if limits.over:
                break
            bounds[i] = problem.at(budgets[i], limits)
    bounds[0] = adapted
    for i in range(len(budgets) - 2, -1, -1):
        if bounds[i].bound < bounds[i + 1].bound:
            bounds[i] = MomentsBound(bounds[i + 1].bound, bounds[i].moments, bounds[i].s, bounds[i].x)
    return bounds


def _follow_weakly(
    condensed: Condensed, budget: int, bound: MomentsBound, best: Schedule | None, limits: Limits
) -> Schedule | None:
    """Walks that keep what the relaxation holds; each step takes the best schedule so far, and may leave it alone."""
    return guided_schedule(condensed, budget, guides(condensed, bound)[:1], lambda: limits.over)


def _follow_strongly(
    condensed: Condensed, budget: int, bound: MomentsBound, best: Schedule | None, limits: Limits
) -> Schedule | None:
    """Walks that hardly depart from it."""
    return guided_schedule(condensed, budget, guides(condensed, bound)[1:], lambda: limits.over)


def _plan(
    condensed: Condensed, budget: int, bound: MomentsBound, best: Schedule | None, limits: Limits
) -> Schedule | None:
    """Walks of their own, and repair where nothing is known that fits."""
    return plan_schedule(condensed, budget, limits.left, limits.cancelled)


def _answer(schedule: Schedule | None, bound: MomentsBound, limits: Limits) -> Answer:
    if math.isinf(bound.bound):  # a schedule in hand refutes that there is none: it was the solver's tolerance
        return Answer(schedule, None, schedule is None, limits.solver)
    return Answer(schedule, bound.bound, solver=limits.solver)


def _settled(best: Schedule | None, bound: MomentsBound) -> bool:
    if best is None:
        return math.isinf(bound.bound)
    return best.cost - bound.bound <= SETTLED * best.cost


def _cheaper(first: Schedule | None, second: Schedule | None) -> Schedule | None:
    if first is None or second is None:
        return first or second
    return second if second.cost < first.cost else first
