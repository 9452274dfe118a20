"""The points of a sweep while it runs: what is known of each, what was told of it, and how far that is.

Points of a sweep that were solved before, and points kept for the next time, in the cache of `solve`.

A point counts as a search with the seconds that the sweep gives to a point on average. What is kept of a strategy is
what it proved itself: a bound that another strategy lent is no answer of this one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.cache import Question, load_solution, store_solution
from remat_explorer.solvers.condensed_graph import largest_operation
from remat_explorer.solvers.memory.minimum_budget import NONE_FITS
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.registry import default_strategy, method_of
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.solve import judge
from remat_explorer.solvers.solver_interface import Answer, checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.sweeps.frontier import Frontier
from remat_explorer.solvers.sweeps.own_points import (
    OwnCurve,
    OwnPoint,
    best_within,
    bound_at,
    checked_points,
    first_cheapest,
    has_own_curve,
    merge_solutions,
    share_best,
    unknown_point,
    with_bounds,
)

Point = tuple[str, int]  # strategy and budget in bytes


class KeptPoints:
    """What the cache has and gets of a sweep; ``time_limit`` is seconds for each point, on average."""

    def __init__(self, graph: Graph, solver: str, time_limit: float, threads: int) -> None:
        self.graph, self.solver, self.time_limit, self.threads = graph, solver, time_limit, threads
        self.taken: set[Point] = set()

    def load(self, strategy: str, budget: int) -> Solution | None:
        """A kept answer that is as good as a new one, checked again, or None."""
        solution = load_solution(self._question(strategy, budget))
        if solution is not None:
            self.taken.add((strategy, budget))
        return solution

    def store(self, solutions: Sequence[Solution], lost: Iterable[Point], ended: bool) -> list[str]:
        """Keep the points that are new; returns sentences on why some could not be kept.

        Solutions are what was found for each point alone; of lost points nothing but a proof is kept. Unless the sweep
        ``ended`` with all of its time, a point counts with the time it had.
        """
        problems: dict[str, None] = {}
        gone = set(lost)
        for name in dict.fromkeys(solution.strategy for solution in solutions):
            for solution in share_best([s for s in solutions if s.strategy == name]):
                point = (name, solution.budget)
                proven = solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
                if point in self.taken or (point in gone and not proven):
                    continue
                question = self._question(*point)
                question = question if ended or proven else question.within(solution.seconds)
                problems[store_solution(question, solution)] = None
        return [problem for problem in problems if problem]

    def _question(self, strategy: str, budget: int) -> Question:
        return Question(self.graph, budget, strategy, self.solver, self.time_limit, self.threads)


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        seconds: since it began.
        done: points that nothing will be tried for any more.
        points: all points, but for those of a method's own curve beside them.
        widest_gap: the largest gap of the points that have one, or None.
    """

    seconds: float
    done: int
    points: int
    widest_gap: float | None


class SweepPoints:
    """Strategies times budgets, each with the best that was found for it, and own curves; none before `begin`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._known: dict[Point, Solution] = {}
        self._kept: set[Point] = set()
        self._lost: dict[Point, str] = {}
        self._again: dict[Point, tuple[str, str]] = {}
        self._told: dict[Point, Solution] = {}
        self._own: dict[str, list[OwnPoint]] = {}
        self._incomplete: set[str] = set()  # strategies whose curve lacks schedules, for want of time
        self._without_curve: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def begin(
        self, strategies: Iterable[str], budgets: Iterable[int], first: Schedule | None, kept: KeptPoints | None = None
    ) -> None:
        """Add all points, with what is known without a search.

        A point that is found in the cache is not searched again; own curves are made anew.
        """
        peak = checkpoint_all_peak(self.graph)
        choices = self.graph.has_choices
        everything, exact = checkpoint_all(self.graph), default_strategy(self.graph)
        cost = CondensedChoices.of(self.graph).least_cost if choices else self.graph.total_cost
        for name, budget in itertools.product(strategies, budgets):
            self._known[name, budget] = unknown_point(self.graph, name, budget)
            answer = Answer(None, cost)
            method = method_of(name)  # one that cannot be loaded says so when it runs
            if method is not None and budget < method.smallest_budget(self.graph):
                answer = Answer(None, infeasible=True)
            elif name == exact and budget >= peak:
                answer = Answer(everything, cost)
            elif name == exact and first is not None:
                answer, first = Answer(first, cost), None  # the larger budgets share it
            self.take(name, budget, answer, 0.0)
            if kept is not None and not has_own_curve(name) and (solution := kept.load(name, budget)) is not None:
                self._known[name, budget] = merge_solutions(self._known[name, budget], solution)
                self._kept.add((name, budget))

    def keep(self, kept: KeptPoints, ended: bool) -> list[str]:
        """Write the points to the cache; returns sentences on why some could not be kept."""
        lost = {point for point in self._known if point in self._lost or point[0] in self._without_curve}
        return kept.store(list(self._known.values()), lost, ended)

    def take(self, strategy: str, budget: int, answer: Answer, seconds: float) -> None:
        """Check an answer and keep what is better than what was known; nothing of it if its schedule is wrong."""
        solution = judge(self.graph, budget, strategy, answer, seconds)
        self._known[strategy, budget] = merge_solutions(self._known[strategy, budget], solution)

    def take_curve(self, strategy: str, curve: OwnCurve) -> None:
        """Check the schedules of a strategy that does not ask for the budget, and give each budget what fits.

        If one of them is wrong, none is kept.
        """
        points = checked_points(self.graph, strategy, curve.candidates, curve.seconds)
        self._own[strategy] = points
        if not curve.complete:
            self._incomplete.add(strategy)
        for name, budget in list(self._known):
            if name == strategy and (cheapest := first_cheapest(points, budget)) is not None:
                self._known[name, budget] = merge_solutions(self._known[name, budget], cheapest)

    def lose_curve(self, strategy: str, error: str) -> None:
        """A strategy that does not ask for the budget has no schedules: it refuses the graph, or its worker died."""
        self._without_curve[strategy] = f"{strategy!r} has no curve: {error}"

    def lose(self, strategy: str, budgets: Iterable[int], error: str) -> None:
        """A search had no result."""
        for budget in budgets:
            self._lost[strategy, budget] = f"a search within {format_bytes(budget)} was lost: {error}"

    def search_again(self, strategy: str, budgets: Sequence[int], error: str) -> None:
        """A search for several budgets had no result, and each of them is searched again by itself."""
        span = f"{len(budgets)} budgets from {format_bytes(budgets[0])}"
        self._again[strategy, budgets[0]] = (
            f"a search of {span} on was lost, and each was searched again: {error}",
            error,
        )

    def open(self, strategy: str) -> list[int]:
        """Budgets of a strategy at which something can still be found or proven, ascending."""
        settled = (Status.OPTIMAL, Status.INFEASIBLE)
        mine = [s for s in self._shared() if s.strategy == strategy and (strategy, s.budget) not in self._kept]
        return [s.budget for s in mine if s.status not in settled]

    def starts(self, strategy: str, budgets: Sequence[int]) -> tuple[list[Schedule], float | None]:
        """The best schedules of the strategy for some budgets, each once, and the best bound at the first of them."""
        same = [s for s in self._known.values() if s.strategy == strategy]
        best = [best_within(budget, same) for budget in budgets]
        schedules = {id(s.schedule): s.schedule for s in best if s is not None and s.schedule is not None}
        return list(schedules.values()), bound_at(budgets[0], self._shared()) if budgets else None

    def news(self) -> Iterator[Solution]:
        """The points that got better since they were told the last time."""
        for solution in self._shared():
            point = (solution.strategy, solution.budget)
            if _is_news(self._told.get(point), solution):
                self._told[point] = solution
                yield solution

    def widest_gap(self) -> float | None:
        """The largest gap among the points that were told."""
        return max((s.gap for s in self._told.values() if s.gap is not None), default=None)

    def frontier(self, cancelled: bool, seconds: float, deaths: Sequence[str] = ()) -> Frontier:
        """What is known now, with the reasons for what is not, and how workers ended that were not told to."""
        solutions, messages = self._shared(), {}
        known = min((solution.peak for solution in solutions if solution.peak is not None), default=None)
        for solution in solutions:
            point, name = (solution.strategy, solution.budget), solution.strategy
            if point in self._lost:
                messages[point] = self._lost[point]
            elif name in self._without_curve:
                if name not in {strategy for strategy, _ in messages}:  # once, not for every budget
                    messages[point] = self._without_curve[name]
            elif solution.schedule is None:
                messages[point] = self._why_none(solution, cancelled, known)
        remarks = {point: text for point, (text, error) in self._again.items() if not _is_said(error, messages)}
        untold = [death for death in deaths if not _is_said(death, messages | remarks)]
        if untold and solutions:
            point = (solutions[0].strategy, solutions[0].budget)
            ended = f"a worker process ended before its time, and another one took its place: {untold[0]}"
            remarks[point] = _joined(remarks.get(point), ended)
        messages |= {point: _joined(messages.get(point), text) for point, text in remarks.items()}
        own = with_bounds(itertools.chain(*self._own.values()), solutions)
        return Frontier(self.graph, tuple(solutions), messages, seconds, tuple(own))

    def _shared(self) -> list[Solution]:
        return share_best(list(self._known.values()))

    def _why_none(self, solution: Solution, cancelled: bool, known: int | None) -> str:
        """Why a point has no schedule."""
        budget = format_bytes(solution.budget)
        if not self.graph.has_choices and solution.budget < (largest := largest_operation(self.graph))[1]:
            name, needs = self.graph.operations[largest[0]].name, format_bytes(largest[1])
            return f"{NONE_FITS} {budget}: {name!r} alone needs {needs} while it runs"
        if solution.status is Status.INFEASIBLE:
            return f"{solution.strategy!r} has no schedule within {budget}"
        if solution.strategy in self._own:
            tried = " that there was time for" if solution.strategy in self._incomplete else ""
            return f"none of the schedules of {solution.strategy!r}{tried} fits into {budget}"
        if cancelled:
            return f"the sweep was cancelled before {solution.strategy!r} had a schedule within {budget}"
        least = "" if known is None else f"; the smallest budget with a known schedule is {format_bytes(known)}"
        ended = f"before it was ended by {solution.limit}" if solution.limit else "in time"
        return f"{solution.strategy!r} found no schedule within {budget} {ended}{least}; give it more time or memory"


def _is_news(before: Solution | None, now: Solution) -> bool:
    if before is None:
        return now.schedule is not None or now.status is Status.INFEASIBLE
    return (before.cost, before.lower_bound, before.status) != (now.cost, now.lower_bound, now.status)


def _is_said(what: str, messages: Mapping[Point, str]) -> bool:
    return any(what in text for text in messages.values())


def _joined(*texts: str | None) -> str:
    return "; ".join(text for text in texts if text)
