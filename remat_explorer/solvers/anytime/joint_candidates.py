"""The choices that the search of `monet` has planned with, and what is planned and searched with each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime.plain_search import PlainSearch
from remat_explorer.solvers.base import PROVEN, Limits, Progress
from remat_explorer.solvers.bounds.few_moments import few_moments_bound
from remat_explorer.solvers.bounds.point import guides
from remat_explorer.solvers.incumbent import Incumbent
from remat_explorer.solvers.monet.condensed_choices import Codes, CondensedChoices
from remat_explorer.solvers.monet.selections import CandidateSelection
from remat_explorer.solvers.search.planner import guided_schedule, plan_schedule

MOST = 2  # choices that are searched on in one turn
_CLOSE = 0.02  # relative distance from the cheapest schedule up to which another choice is searched on
_ROUNDS = 2  # of the first search on with one of the best choices; each later one has twice as many


class JointCandidates:
    """Choices, each with the plain graph that it leaves, its schedules and its bound.

    Args:
        problem: operations with their ways.
        budget: bytes, resident bytes included.
        codes: the implementations of each operation that may be chosen; all if None.
        incumbent: takes in every schedule that is found.
        limits: of the whole search, with one thread.
    """

    def __init__(
        self,
        problem: CondensedChoices,
        budget: int,
        codes: Codes | None,
        incumbent: Incumbent,
        limits: Limits,
    ) -> None:
        self.graph, self.budget, self.codes = problem.graph, budget, codes
        self.incumbent, self.limits = incumbent, limits
        self._planned: dict[tuple, CandidateSelection] = {}

    @property
    def nothing_left(self) -> bool:
        """Whether searches of the best choices have come to their end."""
        return all(self._is_finished(candidate) for candidate in self.promising())

    def best_schedules(self) -> list[Schedule]:
        """The incumbent, and the best schedule of each choice, the cheapest first."""
        best = [candidate.best for candidate in sorted(self._planned.values(), key=_cost)]
        return [schedule for schedule in (self.incumbent.schedule, *best) if schedule is not None]

    def promising(self) -> list[CandidateSelection]:
        """The candidates whose schedules are close to the cheapest, the cheapest first."""
        candidates = sorted(self._planned.values(), key=_cost)
        if not candidates:
            return []
        most = (1 + _CLOSE) * _cost(candidates[0])
        return [one for one in candidates if not self._is_finished(one) and _cost(one) <= most][:MOST] or candidates[:1]

    def _is_finished(self, candidate: CandidateSelection) -> bool:
        """Whether a search of a choice has come to its end, or is proven to find nothing cheaper."""
        return candidate.finished or candidate.bound >= self.incumbent.cost * (1 - PROVEN / 10)

    def of(self, choice: Mapping[int, int]) -> CandidateSelection | None:
        """The candidate of a choice, the same each time.

        None if it needs an implementation that may not be chosen, or cannot fit.
        """
        candidate = CandidateSelection.of(self.graph, choice, self.budget, self.codes) if choice else None
        if candidate is None or not candidate.keeps_to(self.codes):
            return None
        return self._planned.get(candidate.key, candidate)

    def plan(self, choice: Mapping[int, int], doing: str) -> None:
        """Plan for a moment with these implementations, unless that was done before."""
        candidate = self.of(choice)
        if candidate is None or candidate.key in self._planned:
            return
        self.incumbent.tell(doing)
        self._planned[candidate.key] = candidate
        limits = self.limits
        condensed, budget = candidate.condensed, self.budget
        planned = plan_schedule(condensed, budget, limits.left, limits.cancelled)
        self.incumbent.keep(candidate.take(planned))
        quiet = replace(limits, report=lambda progress: None)
        moments = few_moments_bound(condensed, budget, quiet)
        candidate.bound = moments.bound
        walks = guides(condensed, moments)
        if walks and not limits.over:
            guided = guided_schedule(condensed, budget, walks, lambda: limits.over)
            self.incumbent.keep(candidate.take(guided))

    def search(self, candidate: CandidateSelection, rounds: int) -> None:
        """Search on with one choice that may cost less, each time for twice as many rounds as before."""
        if self._is_finished(candidate):
            return

        def hear(progress: Progress) -> None:
            if progress.schedule is not None:
                self.incumbent.keep(candidate.take(progress.schedule))

        limits = replace(self.limits, report=hear)
        plain, bound = candidate.plain, candidate.bound
        search = PlainSearch(candidate.condensed, self.budget, limits, plain, bound)
        self.incumbent.keep(candidate.take(search.run(rounds * 2**candidate.searches).schedule))
        candidate.searches += 1
        candidate.finished, candidate.bound = search.settled, search.incumbent.bound

    def plan_known(self) -> None:
        """Plan with the implementations of the incumbent's first runs, and begin there where it has no others."""
        if self.incumbent.schedule is None or self.incumbent.within(PROVEN / 10):
            return
        self.plan(first_choice(self.incumbent.schedule), "planning with the implementations of the known schedule")
        candidate = self.of(first_choice(self.incumbent.schedule))
        if candidate is not None:
            lowered = candidate.selection.lower(self.incumbent.schedule)
            if lowered.violation() is None and Plan.of(lowered).peak <= self.budget:
                candidate.take(lowered)

    def search_best(self) -> None:
        """Search on with the best choices."""
        for candidate in self.promising():
            if not self.limits.over:
                self.search(candidate, _ROUNDS)


def first_choice(schedule: Schedule) -> dict[int, int]:
    """The implementation of each mandatory operation's first run, by operation."""
    return {k: int(schedule.R[t, k]) for t, k in enumerate(schedule.graph.mandatory.tolist())}


def _cost(candidate: CandidateSelection) -> float:
    return math.inf if candidate.best is None else candidate.best.cost
