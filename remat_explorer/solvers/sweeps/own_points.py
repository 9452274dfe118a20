"""The points of a method that does not ask for the budget: each of its schedules, where it falls.

Such a method has the same schedules whatever the budget is: one for each value of its knob, or a single one. A budget
only chooses among them. Its curve is therefore these schedules themselves, each at its own peak, between the budgets
of a sweep or beyond them, and what it has at a budget follows from them.

The schedules of a method that does not ask for the budget: made once for a sweep, in a worker; JSON on the way back.

Like any answer of a worker they are a claim, which the parent checks.

What the points of a sweep may take from each other, so that the curve is monotone by construction.

A *schedule* fits every budget from its peak on, whichever budget it was found for. It is shared among the points of
its own strategy only: a curve shows what that method finds. A *lower bound* proven for a budget holds for every
smaller one, since a schedule for the smaller budget is one for the larger, too. Bounds are about all frontier-advancing
schedules, so they are shared among strategies, with every point whose schedule is frontier-advancing; a strategy
without stages gives its bounds, but takes none. That a strategy has *no schedule* within a budget is true of its
smaller budgets.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.documents import quote
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.method import Candidate
from remat_explorer.solvers.registry import STRATEGIES, method_of
from remat_explorer.solvers.solution import Solution, Status, pack_runs, proven_status, unpack_runs
from remat_explorer.solvers.solver_interface import Limits


@dataclass(frozen=True, eq=False)
class OwnCurve:
    """What a worker says of a method's schedules."""

    candidates: tuple[Candidate, ...]  # in the order in which the method tries them; not checked
    complete: bool  # whether these are all of them, or the time was up before
    seconds: float  # wall time that they took


def has_own_curve(strategy: str) -> bool:
    """Whether a method does not ask for the budget.

    One that cannot be loaded is taken to have a curve, so that a sweep hears of it once, from its worker.
    """
    method = method_of(strategy)
    return method is None or method.candidates is not None


def write_curve(graph: Graph, strategy: str, limits: Limits) -> str:
    """Make the schedules of a method, at least one and as many as there is time for; the text for `read_curve`."""
    method = STRATEGIES[strategy]
    assert method.candidates is not None
    begun, candidates, complete = time.monotonic(), [], True
    for candidate in method.candidates(graph):
        candidates.append({"label": candidate.label, "runs": pack_runs(candidate.schedule)})
        if limits.over:
            complete = False
            break
    return json.dumps({"candidates": candidates, "complete": complete, "seconds": time.monotonic() - begun})


def read_curve(text: Any, graph: Graph) -> OwnCurve:
    """The schedules in a worker's text."""
    try:
        document = json.loads(text)
        if "error" in document:
            raise SolverError(str(document["error"]))
        entries = [(str(entry["label"]), entry["runs"]) for entry in document["candidates"]]
        candidates = tuple(Candidate(unpack_runs(runs, graph, SolverError), label) for label, runs in entries)
        return OwnCurve(candidates, bool(document["complete"]), float(document["seconds"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SolverError(f"the worker sent schedules that cannot be read: {error!r}: {quote(text)}") from None


def share_best(solutions: Sequence[Solution]) -> list[Solution]:
    """The same points in the same order, each with the best schedule and bound that any of them can give it."""
    return [_with_all(solution, solutions) for solution in solutions]


def merge_solutions(old: Solution, new: Solution) -> Solution:
    """One point from two answers for the same strategy and budget: the cheaper schedule, the higher bound."""
    schedule = min((s.schedule for s in (new, old) if s.schedule), key=lambda schedule: schedule.cost, default=None)
    infeasible = Status.INFEASIBLE in (old.status, new.status)
    bounds = [s.lower_bound for s in (old, new) if s.lower_bound is not None]
    seconds, solver = old.seconds + new.seconds, new.solver or old.solver
    return assess_schedule(new, new.budget, schedule, max(bounds, default=None), infeasible, seconds, solver)


def bound_at(budget: int, solutions: Iterable[Solution]) -> float | None:
    """The highest lower bound that holds for frontier-advancing schedules within ``budget``, or None."""
    bounds = [s.lower_bound for s in solutions if s.budget >= budget and s.lower_bound is not None]
    return max(bounds, default=None)


def best_within(budget: int, solutions: Iterable[Solution]) -> Solution | None:
    """The cheapest solution whose peak is within ``budget``; of equals the one with the lowest peak."""
    fitting = [s for s in solutions if s.cost is not None and s.peak is not None and s.peak <= budget]
    return min(fitting, key=lambda s: (s.cost or 0.0, s.peak or 0), default=None)


def assess_schedule(
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
    """
    status, bound = proven_status(None if schedule is None else schedule.cost, bound, infeasible)
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


def rules_out_budget(solution: Solution) -> bool:
    """Whether a solution proves that no schedule with stages fits into its budget, of whichever strategy.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solve import solve
    >>> rules_out_budget(solve(linear(8), 2)), rules_out_budget(solve(linear(8), 2, "checkpoint-all"))
    (True, False)
    """
    method = method_of(solution.strategy)
    complete = method is not None and method.proves_infeasible(solution.graph)
    return complete and solution.status is Status.INFEASIBLE


def unknown_point(graph: Graph, strategy: str, budget: int) -> Solution:
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
    changed = assess_schedule(solution, solution.budget, schedule, bound, infeasible)
    same_bound = changed.lower_bound == solution.lower_bound or (
        changed.lower_bound is not None
        and solution.lower_bound is not None
        and math.isclose(changed.lower_bound, solution.lower_bound, rel_tol=1e-12)
    )
    if changed.schedule is solution.schedule and same_bound and changed.status is solution.status:
        return solution
    return changed


@dataclass(frozen=True, eq=False)
class OwnPoint(Solution):
    """A schedule of a method as a solution whose budget is its own peak.

    Attributes:
        label: the setting that it comes from, in words; "" where the method has one schedule only.
    """

    label: str = ""

    @property
    def peak(self) -> int:
        """Predicted peak in bytes, which is the budget."""
        return self.budget

    @staticmethod
    def of(solution: Solution, label: str) -> OwnPoint:
        """A solution with the label of its setting."""
        s = solution
        fields = (s.graph, s.strategy, s.status, s.budget, s.schedule, s.lower_bound, s.seconds, s.solver)
        return OwnPoint(*fields, s.limit, label)


def checked_points(graph: Graph, strategy: str, candidates: Iterable[Candidate], seconds: float) -> list[OwnPoint]:
    """The schedules of a method as points, in the same order, each checked."""
    points = []
    for candidate in candidates:
        checked = check_schedule(candidate.schedule.on(graph))
        schedule, label = checked.schedule, candidate.label
        points.append(OwnPoint(graph, strategy, Status.FEASIBLE, checked.peak, schedule, None, seconds, label=label))
    return points


def first_cheapest(points: Sequence[OwnPoint], budget: int) -> Solution | None:
    """What the method has at a budget: the cheapest point that fits, of equally cheap ones the first, or None."""
    fitting = [point for point in points if point.budget <= budget]
    best = min(fitting, key=lambda point: point.cost or 0.0, default=None)
    return None if best is None else assess_schedule(best, budget, best.schedule, None)


def with_bounds(points: Iterable[OwnPoint], solutions: Sequence[Solution]) -> list[OwnPoint]:
    """The points with the best lower bound that solutions of any strategy prove for their budgets, by peak and cost."""
    bounded = []
    for point in points:
        advancing = point.schedule is not None and point.schedule.is_frontier_advancing
        bound = bound_at(point.budget, solutions) if advancing else None
        better = assess_schedule(point, point.budget, point.schedule, bound)
        bounded.append(dataclasses.replace(point, status=better.status, lower_bound=better.lower_bound))
    return sorted(bounded, key=lambda point: (point.budget, point.cost or 0.0))
