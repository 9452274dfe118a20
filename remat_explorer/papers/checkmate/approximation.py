"""How close approximations come to the optimum, budget by budget: what Checkmate's Table 2 is made of.

Budgets are B = largest operation + f (checkpoint-all peak - largest operation). The optimum is the cheapest schedule
that is known at a budget, and a proof tells where no other can be cheaper. A linear program that is not solved within
its limit is no failure of its rounding, and counts as "not in time".

Source: Jain et al., Checkmate (MLSys 2020), Table 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.solution import Solution
from remat_explorer.solvers import Progress, checkpoint_all_peak, solve
from remat_explorer.solvers.budgets import largest_operation

ROUNDING, FIRST = "checkmate-approx", "first answer"
METHODS = ("ap-sqrt-n", "ap-greedy", "griewank", ROUNDING, FIRST)
PROVEN = 1e-4  # gap that counts as a proof


@dataclass(frozen=True)
class ApproximationLimits:
    """Seconds of each solve, and of each linear program that is rounded."""

    time_limit: float = 10.0
    rounding_limit: float = 100.0


@dataclass
class Course:
    """The first schedule that the optimal strategy tells of, and whether its proof is close enough to end.

    Attributes:
        cancelled: asked as well.
        first: the report with the first schedule.
        cost, bound: the best so far.
    """

    cancelled: Callable[[], bool] = lambda: False
    first: Progress | None = None
    cost: float = math.inf
    bound: float = 0.0

    def hear(self, progress: Progress) -> None:
        """Take in a report."""
        if progress.cost is not None:
            self.first = self.first or progress
            self.cost = min(self.cost, progress.cost)
        self.bound = max(self.bound, progress.lower_bound or 0.0)

    def over(self) -> bool:
        """Whether there is nothing more to find, or somebody asked to stop."""
        return self.cancelled() or self.cost - self.bound <= PROVEN * self.cost < math.inf


@dataclass
class Ratios:
    """Cost over the cheapest known, budget by budget, of one method on one graph.

    Attributes:
        found: the ratios where there is a schedule.
        late: budgets at which the linear program was not solved in time.
        refused: why the method does not take the graph, or "".
    """

    found: list[float] = field(default_factory=list)
    late: int = 0
    refused: str = ""

    @property
    def mean(self) -> float | None:
        """The geometric mean, or None where there is no schedule.

        >>> Ratios([2.0, 8.0]).mean
        4.0
        """
        return math.exp(sum(map(math.log, self.found)) / len(self.found)) if self.found else None


@dataclass(frozen=True)
class ApproximationComparison:
    """Every method on one graph.

    Attributes:
        points: for each budget with a schedule what is known there, for JSON.
        ratios: by method.
        proven: budgets at which the optimum is proven.
    """

    points: list[dict[str, Any]]
    ratios: dict[str, Ratios]
    proven: int


def budget_at(graph: Graph, fraction: float) -> int:
    """The budget B of a fraction f, in bytes.

    >>> from remat_explorer.instances import linear
    >>> budget_at(linear(8), 0), budget_at(linear(8), 1)
    (3, 10)
    """
    least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
    return int(least + fraction * (most - least))


def compare(
    graph: Graph,
    fractions: list[float],
    limits: ApproximationLimits,
    tell: Callable[[str], None] = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ApproximationComparison:
    """Every method at every budget of a graph.

    Args:
        graph: the training graph.
        fractions: values of f.
        limits: seconds.
        tell: hears a line for each budget.
        cancelled: asked between steps; once True the budgets so far are returned.
    """
    ratios, points, proven = {name: Ratios() for name in METHODS}, [], 0
    for fraction in sorted(fractions):
        if cancelled():
            break
        budget = budget_at(graph, fraction)
        best, costs = costs_at(graph, budget, limits, cancelled)
        numbers = [cost for cost in (best.cost, *map(costs.get, METHODS)) if isinstance(cost, float | int)]
        if not numbers:
            tell(f"{graph.name} at {fraction:g}: no schedule is known")
            continue
        proven += best.gap is not None and best.gap <= PROVEN
        count(ratios, costs, min(numbers))
        point = {"fraction": fraction, "budget": budget, "cheapest": min(numbers), "lower_bound": best.lower_bound}
        points.append(point | {"optimal": best.cost, "gap": best.gap, "costs": costs})
        tell("  ".join([f"{graph.name} at {fraction:g}", str(best), *(f"{name} {costs[name]}" for name in METHODS)]))
    return ApproximationComparison(points, ratios, proven)


def count(ratios: dict[str, Ratios], costs: dict[str, Any], cheapest: float) -> None:
    """Add the costs of one budget to the ratios of each method.

    Args:
        ratios: by method; changed in place.
        costs: as `costs_at` returns them.
        cheapest: cost of the cheapest known schedule.
    """
    for name, ratio in ratios.items():
        if costs[name] == "not in time":
            ratio.late += 1
        elif isinstance(costs[name], str):
            ratio.refused = costs[name]
        elif costs[name] is not None:
            ratio.found.append(costs[name] / cheapest)


def costs_at(
    graph: Graph, budget: int, limits: ApproximationLimits, cancelled: Callable[[], bool] = lambda: False
) -> tuple[Solution, dict[str, Any]]:
    """The optimal strategy's solution at a budget, and the cost of each method there.

    A cost is None where a method has no schedule, "not in time" where its linear program was not solved, and a
    sentence where it refuses the graph.
    """
    course = Course(cancelled)
    best = solve(graph, budget, time_limit=limits.time_limit, threads=1, on_progress=course.hear, cancelled=course.over)
    costs: dict[str, Any] = {FIRST: None if course.first is None else course.first.cost}
    costs["first answer seconds"] = None if course.first is None else course.first.seconds
    for name in METHODS[:-1]:
        heard: list[str] = []
        limit = limits.rounding_limit if name == ROUNDING else limits.time_limit
        try:
            solution = solve(graph, budget, name, limit, on_progress=lambda now, heard=heard: heard.append(now.doing))
        except SolverError as error:
            costs[name] = str(error)
            continue
        late = solution.cost is None and any("too short" in doing for doing in heard)
        costs[name] = "not in time" if late else solution.cost
        costs[f"{name} seconds"] = solution.seconds
        costs[f"{name} said"] = heard[-1] if heard else ""
    return best, costs
