"""Choices of implementations that a search for less memory has planned with, and which of them it tries next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.memory_at_overhead.exact_memory import CAUTION
from remat_explorer.solvers.memory_at_overhead.memory_descent import LOOSE, MemoryDescent
from remat_explorer.solvers.memory_at_overhead.memory_incumbent import MemoryIncumbent
from remat_explorer.solvers.memory_at_overhead.memory_settings import MEMORY_SEARCH, MemorySearchSettings
from remat_explorer.solvers.monet.choice_search import ChoiceSearch
from remat_explorer.solvers.monet.codes import Codes
from remat_explorer.solvers.monet.least_memory_moments import LeastMemory
from remat_explorer.solvers.monet.relaxation_with_choices import RelaxationWithChoices
from remat_explorer.solvers.monet.tables import Tables


class MemoryCandidates:
    """A descent for each choice that was planned with; their schedules go to the incumbent.

    Args:
        graph: operations may have several implementations, or be optional.
        most_cost: limit on the cost, in the graph's unit.
        incumbent: what better schedules and bounds are handed to.
        share: limits of a share of the time that is left.
        codes: the implementations of each operation that may be chosen; all if None.
        settings: of the search; those of the choices that are tried, and of the relaxation.
    """

    def __init__(
        self,
        graph: Graph,
        most_cost: float,
        incumbent: MemoryIncumbent,
        share: Callable[[float], Limits],
        codes: Codes | None,
        settings: MemorySearchSettings = MEMORY_SEARCH,
    ) -> None:
        self.graph, self.most_cost, self.incumbent, self.share, self.codes = graph, most_cost, incumbent, share, codes
        self.settings, self._relaxation = settings.candidates, settings.relaxation
        self.descents: dict[tuple, MemoryDescent] = {}
        self._asked: list[int] = []  # budgets at which the relaxation was asked
        self._seed = 0

    def plan(self, choice: Mapping[int, int]) -> MemoryDescent | None:
        """Bisection with walks, and the best runs so far, with a choice; None if it was done before, or cannot be."""
        descent = MemoryDescent.of(self.graph, choice, self.most_cost, self.codes, self.settings.descent)
        if descent is None or descent.key in self.descents:
            return None
        self.descents[descent.key] = descent
        limits = self.share(self.settings.planning)
        descent.bisect(lambda: limits.over)
        descent.offer(self.incumbent.best)
        self.keep(descent)
        return descent

    def keep(self, descent: MemoryDescent) -> None:
        """Hand the best schedule of a descent to the incumbent."""
        schedule = descent.lifted()
        if schedule is not None and schedule.cost <= descent.most_cost:
            self.incumbent.keep(schedule)

    def peak_with(self, choice: Mapping[int, int], schedule: Schedule | None) -> int:
        """The least peak that is known once a choice was planned with, for which a schedule may be known."""
        if schedule is not None and schedule.cost <= self.most_cost * (1 + LOOSE):
            self.incumbent.keep(schedule)
        self.plan(choice)
        return self.incumbent.peak

    def ranked(self) -> list[MemoryDescent]:
        """Those with the least memory first."""
        return sorted(self.descents.values(), key=lambda one: one.peak)

    def second(self) -> MemoryDescent | None:
        """The second best with other implementations than the defaults: those did what they can at the beginning."""
        return next((one for one in self.ranked()[1:] if one.choice), None)

    def near_best(self, tables: Tables, budget: int, limits: Limits) -> MemoryDescent | None:
        """The best choice with changes after which walks within the budget cost less."""
        self._seed += 1
        search = ChoiceSearch(tables, self.ranked()[0].choice, self._seed, self.codes)
        search.lower(budget)
        search.improve(self.settings.changes, self.most_cost, lambda: limits.over)
        return self.plan(search.choice)

    def relaxed(self, tables: Tables, memory: LeastMemory, budget: int, limits: Limits) -> MemoryDescent | None:
        """What the relaxation with cost as the objective would choose within the budget, unless that is impossible."""
        if any(abs(budget - asked) < self.settings.apart * asked for asked in self._asked):
            return None
        self._asked.append(budget)
        asked = RelaxationWithChoices(tables, budget, self._relaxation)
        asked.moments = memory.moments or asked.moments
        seconds = min(limits.left, self.share(self.settings.relaxing).left)
        relaxed = asked.improve(replace(limits, time_limit=limits.elapsed + seconds), integral=False)
        if relaxed.bound > self.most_cost * (1 + CAUTION):
            self.incumbent.raise_bound(budget + 1)
            return None
        return self.plan(relaxed.choice()) if relaxed.d else None
