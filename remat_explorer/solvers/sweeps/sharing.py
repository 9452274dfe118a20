"""What the points of a sweep may take from each other, so that the curve is monotone by construction.

A *schedule* fits every budget from its peak on, whichever budget it was found for. It is shared among the points of
its own strategy only: a curve shows what that method finds. A *lower bound* proven for a budget holds for every
smaller one, since a schedule for the smaller budget is one for the larger, too. Bounds are about all frontier-advancing
schedules, so they are shared among strategies, with every point whose schedule is frontier-advancing; a strategy
without stages gives its bounds, but takes none. That a strategy has *no schedule* within a budget is true of its
smaller budgets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.base import PROVEN
from remat_explorer.solvers.strategies.registry import method_of


def shared(solutions: Sequence[Solution]) -> list[Solution]:
    """The same points in the same order, each with the best schedule and bound that any of them can give it.

    Args:
        solutions: checked points of one graph, of any strategies and budgets.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solve import solve
    >>> small = solve(linear(8), 4)
    >>> nothing = Solution(linear(8), "optimal", Status.UNKNOWN, 5, None, 22.0, 0.0)
    >>> [(point.cost, point.lower_bound) for point in shared([small, nothing])]
    [(26.0, 26.0), (26.0, 22.0)]
    """
    return [_with_all(solution, solutions) for solution in solutions]


def merged(old: Solution, new: Solution) -> Solution:
    """One point from two answers for the same strategy and budget: the cheaper schedule, the higher bound."""
    schedule = min((s.schedule for s in (new, old) if s.schedule), key=lambda schedule: schedule.cost, default=None)
    infeasible = Status.INFEASIBLE in (old.status, new.status)
    bounds = [s.lower_bound for s in (old, new) if s.lower_bound is not None]
    seconds, solver = old.seconds + new.seconds, new.solver or old.solver
    return assessed(new, new.budget, schedule, max(bounds, default=None), infeasible, seconds, solver)


def bound_at(budget: int, solutions: Iterable[Solution]) -> float | None:
    """The highest lower bound that holds for frontier-advancing schedules within ``budget``, or None."""
    bounds = [s.lower_bound for s in solutions if s.budget >= budget and s.lower_bound is not None]
    return max(bounds, default=None)


def best_within(budget: int, solutions: Iterable[Solution]) -> Solution | None:
    """The cheapest solution whose peak is within ``budget``; of equals the one with the lowest peak."""
    fitting = [s for s in solutions if s.cost is not None and s.peak is not None and s.peak <= budget]
    return min(fitting, key=lambda s: (s.cost or 0.0, s.peak or 0), default=None)


def assessed(
    like: Solution,
    budget: int,
    schedule: Schedule | None,
    bound: float | None,
    infeasible: bool = False,
    seconds: float | None = None,
    solver: str | None = None,
) -> Solution:
    """A solution of the strategy of ``like``, with a schedule that was checked before and a status computed anew.

    Args:
        like: whose graph, strategy and, unless given, seconds and solver it has.
        budget: bytes; the peak of ``schedule`` is within.
        schedule: checked, or None.
        bound: lower bound on the cost, or None.
        infeasible: whether the strategy has no schedule within the budget; one in hand refutes that.
        seconds: wall time spent on it.
        solver: the back end.
    """
    status = Status.INFEASIBLE if infeasible else Status.UNKNOWN
    if schedule is not None:
        status = Status.FEASIBLE
        if bound is not None:
            bound = min(bound, schedule.cost)
            if schedule.cost - bound <= PROVEN * schedule.cost:
                status = Status.OPTIMAL
    elif infeasible:
        bound = None
    return Solution(
        like.graph,
        like.strategy,
        status,
        budget,
        schedule,
        bound,
        like.seconds if seconds is None else seconds,
        like.solver if solver is None else solver,
        like.limit if status in (Status.FEASIBLE, Status.UNKNOWN) else "",
    )


def proves_infeasible(solution: Solution) -> bool:
    """Whether a solution proves that no schedule with stages fits into its budget, of whichever strategy.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solve import solve
    >>> proves_infeasible(solve(linear(8), 2)), proves_infeasible(solve(linear(8), 2, "checkpoint-all"))
    (True, False)
    """
    method = method_of(solution.strategy)
    complete = method is not None and method.proves_infeasible(solution.graph)
    return complete and solution.status is Status.INFEASIBLE


def empty(graph: Graph, strategy: str, budget: int) -> Solution:
    """A point of which nothing is known yet."""
    return Solution(graph, strategy, Status.UNKNOWN, budget, None, None, 0.0)


def _with_all(solution: Solution, solutions: Sequence[Solution]) -> Solution:
    same = [other for other in solutions if other.strategy == solution.strategy]
    best, bound = best_within(solution.budget, same), solution.lower_bound
    schedule = solution.schedule
    if best is not None and (schedule is None or (best.cost or 0.0) < schedule.cost):
        schedule = best.schedule
    method = method_of(solution.strategy)
    with_stages = method is None or method.stages
    if with_stages and (schedule is None or schedule.is_frontier_advancing):
        highest = bound_at(solution.budget, solutions)
        bound = highest if bound is None or (highest is not None and highest > bound) else bound
    infeasible = any(other.status is Status.INFEASIBLE and other.budget >= solution.budget for other in same)
    changed = assessed(solution, solution.budget, schedule, bound, infeasible)
    same_bound = changed.lower_bound == solution.lower_bound or (
        changed.lower_bound is not None
        and solution.lower_bound is not None
        and math.isclose(changed.lower_bound, solution.lower_bound, rel_tol=1e-12)
    )
    if changed.schedule is solution.schedule and same_bound and changed.status is solution.status:
        return solution
    return changed
