"""The smallest budget with a known schedule, as a budget that can be asked for: "smallest"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from remat_explorer.graph import Graph
from remat_explorer.once import once
from remat_explorer.quantities import parse_budget
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations, Retained
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.budgets import read_budgets
from remat_explorer.solvers.checkpoint_all import checkpoint_all_peak
from remat_explorer.solvers.memory.minimum_budget import minimum_budget
from remat_explorer.solvers.strategies.registry import method_of


def budget_of(graph: Graph, budget: str | int | float) -> int:
    """A budget in bytes.

    Args:
        graph: whose budget it is.
        budget: bytes, "1.5 GiB", "60%" of the checkpoint-all peak, or "smallest": the smallest with a known schedule.

    Raises:
        QuantityError: if it is none of these.

    >>> from remat_explorer.instances import linear
    >>> budget_of(linear(8), "60%"), budget_of(linear(8), "smallest")
    (6, 3)
    """
    peak = checkpoint_all_peak(graph) if isinstance(budget, str) else 0  # takes a moment, and bytes do not need it
    return parse_budget(budget, peak, lambda: smallest_known(graph))


def budgets_of(graph: Graph, budgets: Sequence[str | int | float]) -> list[int]:
    """Several of them, ascending, each once.

    Raises:
        QuantityError: if there is none, or one of them is no budget.

    >>> from remat_explorer.instances import linear
    >>> budgets_of(linear(8), ["60%", "smallest", 6])
    [3, 6]
    """
    return read_budgets(budgets, checkpoint_all_peak(graph), lambda: smallest_known(graph))


def smallest_known(graph: Graph) -> int:
    """Bytes of the smallest budget with a known schedule; looked for once for each graph."""
    return _least(graph)[0]


def with_known(solution: Solution) -> Solution:
    """The solution, or, where a search that goes on from what is known has none, the schedule of the smallest budget.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solution import Status
    >>> found = with_known(Solution(linear(8), "optimal", Status.UNKNOWN, 4, None, 17.0, 0.0))
    >>> found.peak, str(found.status)
    (3, 'feasible')
    """
    graph, method = solution.graph, method_of(solution.strategy)
    if solution.status is not Status.UNKNOWN or method is None or not method.improves_on(graph):
        return solution
    known, stages, computations, retained = _least(graph)
    if known > solution.budget:
        return solution
    schedule = Schedule.of_runs(graph, stages, computations, retained)
    bound = None if solution.lower_bound is None else min(solution.lower_bound, schedule.cost)
    return replace(solution, status=Status.FEASIBLE, schedule=schedule, lower_bound=bound)


@once
def _least(graph: Graph) -> tuple[int, int, Computations, Retained]:
    smallest = minimum_budget(graph)  # a schedule refers to its graph, which could then never be forgotten
    schedule = smallest.schedule
    return smallest.known_feasible, schedule.stages, schedule.computations, schedule.retained
