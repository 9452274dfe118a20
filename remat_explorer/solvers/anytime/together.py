"""The optimal strategy at several budgets: one relaxation for all of them, and schedules and bounds that are shared.

In: a graph and ascending budgets. Out: a schedule and a lower bound for each.

1. The few-moments relaxation chooses its moments at the smallest budget, where memory is shortest. One linear program
   with these moments then bounds every budget (`several_budgets`).
2. As long as there is time, the budget whose gap is the largest for the time spent on it makes one small step
   (`budget_search`): a local search, or a proof.
3. After every step its schedule goes to larger budgets, where it fits, too, and its bound to smaller ones, where it is
   valid, too. The next smaller budget may begin a local search with that schedule, which exceeds it.

`plan_each` comes before this in a sweep and gives each budget its first schedule; `improve` comes after it and searches
at one budget, from what is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime.budget_search import BudgetSearch
from remat_explorer.solvers.anytime.constructed import constructed
from remat_explorer.solvers.anytime.moments_at_budgets import MomentsAtBudgets
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.bounds.few_moments import MomentsBound, few_moments_bound
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.planner import plan_schedule

_BOUNDING_SHARE = 0.5  # of the time for all bounds, at most
_CHOOSING_SHARE = 0.5  # of that for the choice of moments, at most
_PROVING = 1.2  # time of one round of proof, at most, in even shares
# time on a budget at which its gap counts for a quarter (with a power of 2), in even shares; an even share is the
# time divided by the budgets
_SPENT = 0.25
_POWER = 2.0  # with which a gap counts for less the more time was spent on it


def plan_each(graph: Graph, budgets: Sequence[int], limits: Limits) -> list[Answer]:
    """A constructed or the planner's schedule for each budget, where there is one in an even share of the time.

    Args:
        graph: the training graph, one implementation per operation.
        budgets: bytes, ascending.
        limits: time for all of them together.

    >>> from remat_explorer.instances import linear
    >>> small, large = plan_each(linear(8), [4, 10], Limits(30))
    >>> small.schedule.cost >= 26, large.schedule.cost
    (True, 17.0)
    """
    condensed = Condensed.of(graph)
    answers: list[Answer] = []
    for i, budget in enumerate(budgets):
        even = limits.share(1 / (len(budgets) - i))
        made = [*constructed(condensed, budget, even), plan_schedule(condensed, budget, even.left, limits.cancelled)]
        answers.append(Answer(min(filter(None, made), key=lambda schedule: schedule.cost, default=None)))
    return answers


def solve_together(
    graph: Graph,
    budgets: Sequence[int],
    starts: Sequence[Schedule],
    limits: Limits,
    planned: bool = False,
) -> list[Answer]:
    """Schedules and bounds for several budgets.

    Args:
        graph: the training graph, one implementation per operation.
        budgets: bytes, ascending.
        starts: schedules to begin with wherever they fit.
        limits: time for all of them together, and back end.
        planned: whether ``starts`` has the planner's schedules for these budgets.

    Returns:
        One answer per budget; their costs fall and their bounds fall from budget to budget.

    >>> from remat_explorer.instances import linear
    >>> answers = solve_together(linear(8), [4, 6, 10], [], Limits(30))
    >>> [round(answer.lower_bound, 1) for answer in answers]
    [26.0, 21.0, 17.0]
    """
    condensed, even = Condensed.of(graph), limits.left / max(len(budgets), 1)
    bounds = _bounds(condensed, budgets, limits.share(_BOUNDING_SHARE))
    proving = _PROVING * even
    points = zip(budgets, bounds, strict=True)
    searches = [BudgetSearch(condensed, budget, bound, limits, proving, planned) for budget, bound in points]
    for start in starts:
        peak = Plan.of(start).peak
        for search in searches:
            search.take(start if peak <= search.budget else None)
    while not limits.over:
        worth = [search.gap / (1 + search.seconds / (_SPENT * even)) ** _POWER for search in searches]
        i = worth.index(max(worth))
        if not worth[i]:
            break
        searches[i].advance()
        _share(searches, i)
    return [_answer(search, limits) for search in searches]


def _bounds(condensed: Condensed, budgets: Sequence[int], limits: Limits) -> list[MomentsBound]:
    """The relaxation at each budget; where nothing is solved any more, the next larger budget's bound is valid, too."""
    adapted = few_moments_bound(condensed, budgets[0], limits.share(_CHOOSING_SHARE))
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


def _share(searches: Sequence[BudgetSearch], i: int) -> None:
    """Schedules go to larger budgets, bounds to smaller ones, and a beginning to the next smaller one."""
    search = searches[i]
    for larger in searches[i + 1 :]:
        larger.take(search.best)
    for smaller in searches[:i]:
        smaller.bound = max(smaller.bound, search.bound)
    if i and search.best is not searches[i - 1].best:
        searches[i - 1].beyond = search.best


def _answer(search: BudgetSearch, limits: Limits) -> Answer:
    if math.isinf(search.bound):  # a schedule in hand refutes that there is none: it was the solver's tolerance
        return Answer(search.best, None, search.best is None, limits.solver)
    return Answer(search.best, search.bound, solver=limits.solver)
