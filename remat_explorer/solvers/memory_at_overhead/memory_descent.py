"""One choice of implementations, and schedules of it with less and less memory at a limited cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.few_moments import few_moments_bound
from remat_explorer.solvers.bounds.guidance import guides
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.memory_at_overhead.memory_settings import MEMORY_SEARCH, DescentSettings
from remat_explorer.solvers.monet.codes import Codes
from remat_explorer.solvers.monet.selections import Selection, consistent, restricted_to
from remat_explorer.solvers.search.guide import Guide
from remat_explorer.solvers.search.local_search import LocalSearch
from remat_explorer.solvers.search.planner import EXPONENTS, GUIDED_EXPONENTS
from remat_explorer.solvers.search.walks import Walks

LOOSE = 1e-9  # relative excess over the limit on the cost that is rounding


class MemoryDescent:
    """Schedules of one choice of implementations, each with less memory than the one before.

    Args:
        selection: one implementation per operation.
        most_cost: limit on the cost, in the graph's unit.
        choice: of which the selection was made.
        settings: of bisection, relaxation and local search.

    Attributes:
        condensed: its plain graph.
        least: bytes that some operation needs for itself.
        plain: the schedule of the plain graph with the least memory within the limit, or None.
        peak: of the plan of ``plain``, in bytes.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.monet.selections import default_selection
    >>> descent = MemoryDescent(default_selection(linear(8)), most_cost=26.0)
    >>> descent.bisect(lambda: False)
    >>> descent.peak, descent.attempt(budget=4, iterations=20_000, limits=Limits(10)), descent.peak
    (5, True, 4)
    """

    def __init__(
        self,
        selection: Selection,
        most_cost: float,
        choice: Mapping[int, int] | None = None,
        settings: DescentSettings = MEMORY_SEARCH.candidates.descent,
    ) -> None:
        self.choice, self.settings = dict(choice or {}), settings
        self.selection, self.most_cost = selection, most_cost * (1 + LOOSE)
        self.condensed = Condensed.of(selection.graph)
        self.spare = self.most_cost - selection.graph.total_cost
        self.least = int(self.condensed.operation_bytes.max())
        self.plain: Schedule | None = None
        self.peak = 0
        self._dear: list[tuple[int, Schedule]] = []  # peaks, ascending, of schedules above the limit, cost descending
        self._searches = 0
        if self.spare >= 0:
            self._take(checkpoint_all(selection.graph))

    @staticmethod
    def of(
        graph: Graph,
        choice: Mapping[int, int],
        most_cost: float,
        codes: Codes | None = None,
        settings: DescentSettings = MEMORY_SEARCH.candidates.descent,
    ) -> MemoryDescent | None:
        """That of a choice, made consistent; None if it cannot be, or costs more than the limit without any rerun.

        Args:
            graph: the training graph.
            choice: numbers, from 1, of implementations by operation; the default's where there is none.
            most_cost: limit on the cost, in the graph's unit.
            codes: the implementations of each operation that may be chosen; all if None.
            settings: of bisection, relaxation and local search.
        """
        try:
            selection = restricted_to(graph, consistent(graph, choice, codes))
        except SolverError:  # what one operation must write and another must not
            return None
        descent = MemoryDescent(selection, most_cost, choice, settings)
        return None if descent.plain is None else descent

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What tells it from others: its operations and their implementations."""
        return self.selection.operations, self.selection.codes

    def lifted(self) -> Schedule | None:
        """The best schedule on the graph with choices."""
        return None if self.plain is None else self.selection.lift(self.plain)

    def offer(self, schedule: Schedule) -> None:
        """Take the runs of a schedule of the graph with choices, if they are within the limit with these choices."""
        self._take(self.selection.lower(schedule))

    def bisect(self, over: Callable[[], bool]) -> None:
        """Come down to about the least budget in which a walk without guides keeps to the limit."""
        low, unguided = self.least - 1, Guide.everywhere(np.zeros(self.condensed.groups), self.condensed.n)
        while self.plain is not None and self.peak - low > max(1, self.settings.close * self.peak) and not over():
            budget = (low + self.peak) // 2
            if not self._walk(budget, [unguided], EXPONENTS, over):
                low = budget

    def attempt(self, budget: int, iterations: int, limits: Limits) -> bool:
        """Try to come down to a budget: by walks that a relaxation guides, then by local search.

        The search goes on from the cheapest schedule within the budget that is known to be above the limit, else from
        the best one, which is beyond the budget: it finds its way back.

        Args:
            budget: bytes, resident bytes included.
            iterations: of local search, at most.
            limits: time and back end.
        """
        if self.plain is None or budget < self.least:
            return False
        quiet = Limits(min(self.settings.bounding, limits.left), limits.solver, 1, cancelled=limits.cancelled)
        relaxed = few_moments_bound(self.condensed, budget, quiet, settings=self.settings.moments)
        if relaxed.bound > self.most_cost:
            return False
        towards = guides(self.condensed, relaxed)
        if self._walk(budget, towards, GUIDED_EXPONENTS, lambda: limits.over):
            return True
        self._searches += 1
        search = LocalSearch(self.condensed, budget, self._searches, self.settings.local)
        search.guide(towards)
        schedules = [schedule for peak, schedule in self._dear if peak <= budget]
        if schedules:
            search.offer(schedules[-1])
        search.begin((schedules[-1] if schedules else self.plain).computations, iterations // 2)
        search.run(iterations, lambda: limits.over or search.least <= self.spare)
        return self._take(search.best)

    def _walk(
        self,
        budget: int,
        towards: list[Guide],
        exponents: tuple[tuple[float, float, float], ...],
        over: Callable[[], bool],
    ) -> bool:
        walks = Walks(self.condensed, budget)
        for powers, guide in [(powers, guide) for guide in towards for powers in exponents]:
            if over():
                break
            walked = walks.walk(powers, guide, most_cost=self.spare)
            if walked.complete and self._take(self.condensed.schedule(walked.computations)):
                return True
        return False

    def _take(self, schedule: Schedule | None) -> bool:
        """Keep a schedule if it is within the limit and needs less memory than any before."""
        if schedule is None or schedule.violation() is not None:
            return False
        peak = Plan.of(schedule).peak
        if schedule.cost > self.most_cost:
            if peak < self.peak and not any(p <= peak and one.cost <= schedule.cost for p, one in self._dear):
                self._dear = [(p, one) for p, one in self._dear if p < peak or one.cost < schedule.cost]
                self._dear = sorted([*self._dear, (peak, schedule)], key=lambda pair: pair[0])
            return False
        if self.plain is not None and peak >= self.peak:
            return False
        self.plain, self.peak = schedule, peak
        return True
