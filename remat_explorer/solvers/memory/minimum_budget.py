"""The smallest budget: one that no schedule can beat, one for which a schedule is known, and what makes it so.

`minimum_budget` finds both (see `lowest_peak`); `budget_of` reads a budget, of which "smallest" is the one with a known
schedule, and `budgets_of` those of a sweep, which `spaced_budgets` spaces.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from remat_explorer.entry_checks import Within, require_arguments
from remat_explorer.errors import QuantityError, shown
from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import SMALLEST, begins_at_smallest, exact_bytes, format_bytes, parse_budget
from remat_explorer.schedule import Computations, Retained, Schedule
from remat_explorer.solvers.cache import Question, load_solution, store_or_warn
from remat_explorer.solvers.memory.lowest_peak import least_plain, least_with_choices
from remat_explorer.solvers.monet.condensed_choices import allowed_codes
from remat_explorer.solvers.registry import default_strategy, method_of
from remat_explorer.solvers.search.planner import load_search
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.solver_interface import checkpoint_all_peak

NONE_FITS = "no schedule that goes stage by stage fits into"  # frontier-advancing, stages whole: the README says what


@dataclass(frozen=True)
class MinimumBudget:
    """Between which budgets a graph starts to be feasible; all bytes include the resident ones.

    Attributes:
        lower_bound: bytes; no frontier-advancing schedule fits into less.
        operation: index of the operation that makes it so.
        name: its name.
        values: ids of the values that must be in memory while it runs, its outputs included, and without the one
            that an output may take the place of. A persistent output that runs again is there in two versions.
        needed: bytes that it needs there; less than ``lower_bound`` where a proof by the optimal strategy goes beyond.
        fixed: bytes of ``needed`` that are there whatever is scheduled: resident bytes, and results (parameter
            gradients, the loss) of earlier operations.
        known_feasible: the smallest budget in bytes for which a schedule is known.
        schedule: that schedule.
        checkpoint_all_peak: bytes that keeping everything takes.
        stage: index of the operation for whose sake ``operation`` runs while other inputs of it wait; the same as
            ``operation`` where that one alone needs the bytes.
        peak_stage: the stage in which the known schedule needs the most.
        peak_operation: the operation that runs there.
        alive: ids of the values in memory while it runs, its outputs included.
        way: name of the implementation in which ``operation`` needs the least, where it has several; else "".
    """

    lower_bound: int
    operation: int
    name: str
    values: tuple[int, ...]
    needed: int
    fixed: int
    known_feasible: int
    schedule: Schedule
    checkpoint_all_peak: int
    stage: int
    peak_stage: int
    peak_operation: int
    alive: tuple[int, ...]
    way: str = ""

    @property
    def proven(self) -> bool:
        """Whether the known schedule's budget is proven to be the smallest."""
        return self.lower_bound == self.known_feasible

    def __str__(self) -> str:
        return self.explain()

    def explain(self) -> str:
        """What limits the budget, and the smallest budget worth trying, in words."""
        return f"{self._reason()}: {NONE_FITS} less. {self._worth_trying()}"

    def explain_infeasible(self, strategy: str, budget: int) -> str:
        """Why a strategy has no schedule within a budget, and the smallest budget worth trying, in words.

        Args:
            strategy: a key of `STRATEGIES`, which has proven it.
            budget: bytes.

        >>> from remat_explorer.instances import linear
        >>> minimum_budget(linear(8)).explain_infeasible("optimal", 2).split(",")[0]
        "no schedule that goes stage by stage fits into 2 B: 'v9' alone needs 3 B while it runs"
        """
        require_arguments(MinimumBudget.explain_infeasible, locals())
        within = f"{strategy!r} has no schedule within {format_bytes(budget)}"
        if budget >= self.known_feasible:
            better = default_strategy(self.schedule.graph)
            return (
                f"{within}, but there is one that needs {exact_bytes(self.known_feasible)}: try the strategy {better!r}"
            )
        if budget < self.lower_bound:
            return f"{NONE_FITS} {format_bytes(budget)}: {self._reason()}. {self._worth_trying()}"
        return f"{within}, which is proven. {self._worth_trying()}"

    def explain_unknown(self, strategy: str, budget: int, limit: str = "") -> str:
        """That a strategy found no schedule within a budget, and the smallest budget with a known one, in words.

        Args:
            strategy: its name.
            budget: bytes.
            limit: what ended it, as `Solution.limit` has it; "" where that is not known.

        >>> from remat_explorer.instances import linear
        >>> print(minimum_budget(linear(8)).explain_unknown("checkmate-ilp", 4).split(":")[0])
        'checkmate-ilp' found no schedule within 4 B in time, but there is one that needs 3 B
        """
        require_arguments(MinimumBudget.explain_unknown, locals())
        within = f"{strategy!r} found no schedule within {format_bytes(budget)} "
        within += f"before it was ended by {limit}" if limit else "in time"
        if budget >= self.known_feasible:
            better, needs = default_strategy(self.schedule.graph), exact_bytes(self.known_feasible)
            other = "" if better == strategy else f" the strategy {better!r}, or"
            return f"{within}, but there is one that needs {needs}: try{other} a larger time limit"
        if budget < self.lower_bound:
            return f"{within}; {NONE_FITS} {format_bytes(budget)}: {self._reason()}. {self._worth_trying()}"
        return f"{within}. {self._worth_trying()}"

    def _reason(self) -> str:
        """What the lower bound rests on."""
        names = [node.name for node in self.schedule.graph.operations]
        if self.stage == self.operation:
            reason = f"{self.name!r} alone needs {exact_bytes(self.needed)} while it runs"
            reason += f", even {self.way!r}" if self.way else ""
        else:
            reason = f"{self.name!r} needs {exact_bytes(self.needed)} when it runs for {names[self.stage]!r}, "
            reason += "whose other inputs wait"
        reason += f", {format_bytes(self.fixed)} of it for parameters, inputs and results that are there whatever is "
        reason += "scheduled"
        if self.needed < self.lower_bound:
            reason += f"; less than {exact_bytes(self.lower_bound)} is proven infeasible"
        return reason

    def _worth_trying(self) -> str:
        """The known schedule's budget, and where it needs that."""
        names = [node.name for node in self.schedule.graph.operations]
        everything = self.checkpoint_all_peak
        share = math.ceil(1000 * self.known_feasible / everything) / 10 if everything else 100  # of no bytes at all
        place, own = f"stage {self.peak_stage}", int(self.schedule.graph.mandatory[self.peak_stage])
        if own != self.peak_operation:
            place += f", for {names[own]!r}"
        certainty = "a schedule for it is known" + (", and it is the smallest" if self.proven else "")
        least = f"{exact_bytes(self.known_feasible)}, {share:g}% of keeping everything"
        return (
            f"The smallest budget worth trying is {least}; {certainty}. It needs the most while "
            f"{names[self.peak_operation]!r} runs in {place}, with {len(self.alive)} values in memory. The budget "
            f'"{SMALLEST}" asks for it, and "40% of the way" for more: 100% of the way is keeping everything'
        )


def minimum_budget(
    graph: Graph,
    seconds: Annotated[float, Within(0, 1e6, "seconds")] = 3.0,
    implementations: str | Collection[str] = "all",
) -> MinimumBudget:
    """The smallest budget of ``graph``: value found, and proven bound.

    Args:
        graph: the training graph; operations may have several implementations, or be optional.
        seconds: of the bound, the search, and on small graphs the proof that closes the two, about, on an idle core.
            The search counts its work, so that a busy machine finds the same, in up to four times its share.
            Compiling the search, once on a machine, is no part of them.
        implementations: which may be chosen, where there are several: "all"; "exact"; or names or kinds.

    Raises:
        UnknownNameError, SolverError: if the graph has no such implementations.

    >>> from remat_explorer.instances import linear
    >>> found = minimum_budget(linear(8))
    >>> found.lower_bound, found.known_feasible, found.proven, found.schedule.cost
    (3, 3, True, 45.0)
    """
    require_arguments(minimum_budget, locals())
    load_search()
    plain = not graph.has_choices
    least = least_plain(graph, seconds) if plain else least_with_choices(graph, seconds, implementations)
    limiting = least.limiting
    return MinimumBudget(
        least.lower_bound,
        limiting.operation,
        graph.operations[limiting.operation].name,
        limiting.values,
        limiting.bytes,
        limiting.fixed,
        Plan.of(least.schedule).peak,
        least.schedule,
        checkpoint_all_peak(graph),
        limiting.stage,
        *_highest(least.schedule),
        limiting.way,
    )


def _highest(schedule: Schedule) -> tuple[int, int, tuple[int, ...]]:
    """Stage and operation at which a schedule's plan needs the most, and the values in memory there."""
    plan = Plan.of(schedule)
    graph, at = schedule.graph, plan.timeline.peak_statement
    held: set[int] = set()
    for statement in plan.statements[: at + 1]:
        if isinstance(statement, Compute):
            held -= {statement.overwrites}
            held |= set(graph.outputs(statement.operation, statement.implementation))
        else:
            held.discard(statement.value)
    highest = plan.statements[at]
    assert isinstance(highest, Compute)  # memory is as high while the first value is freed after it, not higher
    return highest.stage, highest.operation, tuple(sorted(held))


Budget = str | int | float | MinimumBudget


def budget_of(graph: Graph, budget: Budget, cache: bool = False) -> int:
    """A budget in bytes.

    Args:
        graph: whose budget it is.
        budget: bytes, "1.5 GiB", "60%" of the checkpoint-all peak; "smallest", the smallest with a known schedule, or
            "40% of the way" from there to that peak; or what `minimum_budget` gave.
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

    >>> is_relative("60%"), is_relative("9% of the way"), is_relative("2 GiB"), is_relative(None)
    (True, True, False, False)
    """
    return isinstance(budget, str) and (begins_at_smallest(budget) or budget.strip().endswith("%"))


def require_budget(budget: Budget | None) -> None:
    """Refuse what is no budget of any graph, before there is a graph; None passes.

    Raises:
        QuantityError: quoting it.
    """
    if budget is not None and not isinstance(budget, MinimumBudget):
        parse_budget(budget, 0, lambda: 0)


def budgets_of(graph: Graph, budgets: Sequence[str | int | float]) -> list[int]:
    """Budgets of a sweep in bytes, ascending, each once."""
    if not len(budgets):
        raise QuantityError(
            'there are no budgets to sweep over; give a number of budgets, or a list like ["60%", 4096]'
        )
    peak = checkpoint_all_peak(graph)
    return sorted({parse_budget(budget, peak, lambda: smallest_known(graph)) for budget in budgets})


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
        store_or_warn(question, kept)
    assert kept.peak is not None  # it has a schedule
    return kept.peak


def fall_back_on_smallest(
    solution: Solution, budget: Budget, implementations: str | Collection[str] = "all"
) -> Solution:
    """The solution, or, where a search that goes on from what is known has none, the schedule of the smallest budget.

    Args:
        solution: within the budget.
        budget: as it was asked for; one in bytes has no schedule that is known.
        implementations: which may be chosen.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solution import Status
    >>> found = fall_back_on_smallest(Solution(linear(8), "optimal", Status.UNKNOWN, 4, None, 17.0, 0.0), "smallest")
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
    elif begins_at_smallest(budget) and _least(graph)[0] <= solution.budget:
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


@memoize_by_identity
def _least(graph: Graph) -> tuple[int, int, Computations, Retained]:
    smallest = minimum_budget(graph)  # a schedule refers to its graph, which could then never be forgotten
    schedule = smallest.schedule
    return smallest.known_feasible, schedule.stages, schedule.computations, schedule.retained


MOST_BUDGETS = 1000  # of a sweep, or for each set of an ablation
CROWDING = 2.0  # budgets grow with this power of their place, so they lie closer where the curve is steep


def spaced_budgets(least: int, most: int, count: int) -> list[int]:
    """Up to ``count`` budgets from ``least`` to ``most``, both included, closer together near ``least``.

    Cost rises steeply towards the smallest feasible budget, so evenly spaced ones would show little of it:

        B_i = least + (most - least) * (i / (count - 1)) ** 2

    Of the powers from 1 to 3, and of geometric spacing, the square left the smallest largest step of cost between
    neighbours, and nearly the smallest area between the steps and the curve, on the captured and the Keras networks.

    Args:
        least: bytes of the smallest budget, the smallest known to be feasible.
        most: bytes of the largest budget, the peak of checkpoint-all.
        count: how many; of 1, only ``most`` remains. Fewer come back where there are not so many whole bytes.

    >>> spaced_budgets(100, 200, 5)
    [100, 106, 125, 156, 200]
    >>> spaced_budgets(3, 5, 12)
    [3, 4, 5]
    """
    places = [(i / (count - 1)) ** CROWDING for i in range(count)] if count > 1 else [1.0]
    return sorted({least + round((most - least) * place) for place in places})


def require_count(count: int) -> int:
    """``count``, if so many budgets can be spaced."""
    if isinstance(count, bool) or not 1 <= count <= MOST_BUDGETS:
        raise QuantityError(
            f"{shown(count)} is not a number of budgets; give 1 to {MOST_BUDGETS}, or a list of budgets"
        )
    return count
