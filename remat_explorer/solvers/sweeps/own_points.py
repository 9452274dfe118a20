"""The points of a method that does not ask for the budget: each of its schedules, where it falls.

Such a method has the same schedules whatever the budget is: one for each value of its knob, or a single one. A budget
only chooses among them. Its curve is therefore these schedules themselves, each at its own peak, between the budgets
of a sweep or beyond them, and what it has at a budget follows from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from remat_explorer.checker import check_schedule
from remat_explorer.graph import Graph
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.method import Candidate
from remat_explorer.solvers.sweeps.sharing import assessed, bound_at


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
    """The schedules of a method as points, in the same order, each checked.

    Args:
        graph: the training graph.
        strategy: name of the method.
        candidates: its schedules, which nobody has checked yet.
        seconds: wall time that all of them took.

    Raises:
        ScheduleError: if one of them breaks a rule.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.strategies.griewank import griewank
    >>> points = checked_points(linear(4), "griewank", griewank(linear(4)), 0.0)
    >>> [(point.label, point.budget, point.cost) for point in points[:2]]
    [('4 slots', 6, 9.0), ('3 slots', 5, 10.0)]
    """
    points = []
    for candidate in candidates:
        checked = check_schedule(candidate.schedule.on(graph))
        schedule, label = checked.schedule, candidate.label
        points.append(OwnPoint(graph, strategy, Status.FEASIBLE, checked.peak, schedule, None, seconds, label=label))
    return points


def first_cheapest(points: Sequence[OwnPoint], budget: int) -> Solution | None:
    """What the method has at a budget: the cheapest point that fits, of equally cheap ones the first, or None.

    Args:
        points: in the order in which the method tries them.
        budget: bytes, resident bytes included.

    >>> first_cheapest([], 100) is None
    True
    """
    fitting = [point for point in points if point.budget <= budget]
    best = min(fitting, key=lambda point: point.cost or 0.0, default=None)
    return None if best is None else assessed(best, budget, best.schedule, None)


def with_bounds(points: Iterable[OwnPoint], solutions: Sequence[Solution]) -> list[OwnPoint]:
    """The points with the best lower bound that solutions of any strategy prove for their budgets, by peak and cost."""
    bounded = []
    for point in points:
        advancing = point.schedule is not None and point.schedule.is_frontier_advancing
        bound = bound_at(point.budget, solutions) if advancing else None
        better = assessed(point, point.budget, point.schedule, bound)
        bounded.append(dataclasses.replace(point, status=better.status, lower_bound=better.lower_bound))
    return sorted(bounded, key=lambda point: (point.budget, point.cost or 0.0))
