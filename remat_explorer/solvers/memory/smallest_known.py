"""The smallest budget with a known schedule, as a budget that can be asked for: "smallest"."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from remat_explorer.graph import Graph
from remat_explorer.once import once
from remat_explorer.quantities import SMALLEST, parse_budget
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations, Retained
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.budgets import read_budgets
from remat_explorer.solvers.cache import Question, keep, load_solution
from remat_explorer.solvers.checkpoint_all import checkpoint_all_peak
from remat_explorer.solvers.memory.minimum_budget import MinimumBudget, minimum_budget
from remat_explorer.solvers.monet.condensed_choices import allowed_codes
from remat_explorer.solvers.registry import method_of

Budget = str | int | float | MinimumBudget


def budget_of(graph: Graph, budget: Budget, cache: bool = False) -> int:
    """A budget in bytes.

    Args:
        graph: whose budget it is.
        budget: bytes, "1.5 GiB", "60%" of the checkpoint-all peak, or "smallest", the smallest with a known schedule;
            or what `minimum_budget` gave.
        cache: take the smallest that is kept in the user's cache folder, or keep it there.

    Raises:
        QuantityError: if it is none of these.

    >>> from remat_explorer.instances import linear
    >>> budget_of(linear(8), "60%"), budget_of(linear(8), "smallest"), budget_of(linear(8), minimum_budget(linear(8)))
    (6, 3, 3)
    """
    if isinstance(budget, MinimumBudget):
        return budget.known_feasible
    peak = checkpoint_all_peak(graph) if isinstance(budget, str) else 0  # takes a moment, and bytes do not need it
    return parse_budget(budget, peak, lambda: smallest_known(graph, cache))


def is_smallest(budget: Budget | None) -> bool:
    """Whether the smallest budget with a known schedule is asked for."""
    return isinstance(budget, str) and budget.strip().lower() == SMALLEST


def is_relative(budget: Budget | None) -> bool:
    """Whether a budget is another number of bytes for another graph.

    >>> is_relative("60%"), is_relative(" Smallest"), is_relative("2 GiB"), is_relative(None)
    (True, True, False, False)
    """
    return isinstance(budget, str) and (is_smallest(budget) or budget.strip().endswith("%"))


def require_budget(budget: Budget | None) -> None:
    """Refuse what is no budget of any graph, before there is a graph; None passes.

    Raises:
        QuantityError: quoting it.
    """
    if budget is not None and not isinstance(budget, MinimumBudget):
        parse_budget(budget, 0, lambda: 0)


def budgets_of(graph: Graph, budgets: Sequence[str | int | float]) -> list[int]:
    """Several of them, ascending, each once.

    Raises:
        QuantityError: if there is none, or one of them is no budget.

    >>> from remat_explorer.instances import linear
    >>> budgets_of(linear(8), ["60%", "smallest", 6])
    [3, 6]
    """
    return read_budgets(budgets, checkpoint_all_peak(graph), lambda: smallest_known(graph))


def smallest_known(graph: Graph, cache: bool = False) -> int:
    """Bytes of the smallest budget with a known schedule; looked for once for each graph.

    Args:
        graph: whose it is.
        cache: keep its schedule in the user's cache folder, too, or take it from there, checked.
    """
    if not cache:
        return _least(graph)[0]
    question = Question(graph, checkpoint_all_peak(graph), SMALLEST, "", 0.0)
    kept = load_solution(question)
    if kept is None:
        kept = Solution(graph, SMALLEST, Status.FEASIBLE, question.budget, _schedule(graph), None, 0.0)
        keep(question, kept)
    assert kept.peak is not None  # it has a schedule
    return kept.peak


def with_known(solution: Solution, budget: Budget, implementations: str | Collection[str] = "all") -> Solution:
    """The solution, or, where a search that goes on from what is known has none, the schedule of the smallest budget.

    Args:
        solution: within the budget.
        budget: as it was asked for; one in bytes has no schedule that is known.
        implementations: which may be chosen.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solution import Status
    >>> found = with_known(Solution(linear(8), "optimal", Status.UNKNOWN, 4, None, 17.0, 0.0), "smallest")
    >>> found.peak, str(found.status)
    (3, 'feasible')
    """
    graph, method = solution.graph, method_of(solution.strategy)
    if solution.status is not Status.UNKNOWN or method is None or not method.improves_on(graph):
        return solution
    if isinstance(budget, MinimumBudget):
        if budget.schedule.graph.sha256 != graph.sha256:  # bytes that were asked about another graph
            return solution
        known = budget.schedule.on(graph)
    elif is_smallest(budget) and _least(graph)[0] <= solution.budget:
        known = _schedule(graph)
    else:
        return solution
    codes = allowed_codes(graph, implementations)
    if not all(code in codes[k] for _, k, code in known.sequence):
        return solution
    bound = None if solution.lower_bound is None else min(solution.lower_bound, known.cost)
    return replace(solution, status=Status.FEASIBLE, schedule=known, lower_bound=bound)


def _schedule(graph: Graph) -> Schedule:
    return Schedule.of_runs(graph, *_least(graph)[1:])


@once
def _least(graph: Graph) -> tuple[int, int, Computations, Retained]:
    smallest = minimum_budget(graph)  # a schedule refers to its graph, which could then never be forgotten
    schedule = smallest.schedule
    return smallest.known_feasible, schedule.stages, schedule.computations, schedule.retained
