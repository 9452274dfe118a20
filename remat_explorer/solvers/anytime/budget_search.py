"""One budget of a sweep: its schedule and its bound, improved in small steps, in turn with other budgets.

1. Walks and a short local search, unless they were made before.
2. Walks guided by the few-moments relaxation.
3. A cooling of local search.
4. The integer program of the few-moments relaxation, where there is time for it: it raises the bound more in half a
   second than the first round of `refinement` does.
5. Where the gap is wide then, walks that keep what the best persistent checkpoints are.
6. From then on coolings and rounds of `refinement` alternate, so that each has had about half of the time. Coolings
   begin with a new walk, with the best schedule, or with that of the next larger budget, which exceeds this one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime.chain_guides import chain_guides
from remat_explorer.solvers.anytime.constructed import constructed
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.few_moments import MomentsBound, integral_moments_bound
from remat_explorer.solvers.bounds.point import guides, guides_to
from remat_explorer.solvers.bounds.refinement import Refinement
from remat_explorer.solvers.bounds.stages import cost_step
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.heuristics.binomial import binomial_bound
from remat_explorer.solvers.search.local_search import LocalSearch
from remat_explorer.solvers.search.planner import guided_schedule, plan_schedule

_CLOSE = 1e-4  # relative gap up to which another budget is the better use of time
_UNKNOWN = 0.3  # the gap that a budget without any schedule is taken to have
_WIDE = 0.02  # the gap beyond which walks follow persistent checkpoints
_COOLING = 40_000  # iterations of local search in one step


class BudgetSearch:
    """The best schedule and bound at one budget of a sweep.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        relaxed: a bound that is valid there, with its solution if there is one.
        limits: time and back end.
        proving: seconds of one round of proof, at most.
        planned: whether the planner has had its turn; it has another one if no schedule is known all the same.

    Attributes:
        best: the cheapest schedule that is known, or None; may be set to a cheaper one that is within the budget.
        bound: no schedule within the budget costs less; may be raised to what is proven elsewhere.
        beyond: a schedule for a larger budget to begin with, or None.
        seconds: spent on it so far.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.bounds.few_moments import few_moments_bound
    >>> chain, limits = Condensed.of(linear(8)), Limits(30)
    >>> search = BudgetSearch(chain, 4, few_moments_bound(chain, 4, limits), limits, 1.0)
    >>> while search.gap:
    ...     search.advance()
    >>> search.best.cost
    26.0
    """

    def __init__(
        self,
        condensed: Condensed,
        budget: int,
        relaxed: MomentsBound,
        limits: Limits,
        proving: float,
        planned: bool = False,
    ) -> None:
        self.condensed, self.budget, self.limits = condensed, budget, limits
        self.relaxed, self.bound = relaxed, max(relaxed.bound, binomial_bound(condensed, budget))
        self.proving, self.planned = proving, planned
        self.best: Schedule | None = None
        self.beyond: Schedule | None = None
        self.seconds = 0.0
        self._least = cost_step(condensed.graph) * (1 - 1e-6)  # two different costs are at least so far apart
        self._local: LocalSearch | None = None
        self._refinement: Refinement | None = None
        self._steps = self._run()
        self._finished, self._coolings = False, 0

    @property
    def gap(self) -> float:
        """What is left to find or to prove, relative to the cost; 0 where nothing more is worth its time."""
        if self._finished or (self.best is None and math.isinf(self.bound)):
            return 0.0
        if self.best is None:
            return _UNKNOWN
        gap = self.best.cost - self.bound
        return 0.0 if gap <= _CLOSE * self.best.cost or gap < self._least else gap / self.best.cost

    def advance(self) -> None:
        """One step, of some tenths of a second at most on graphs of some hundred operations, but for proofs."""
        begun = time.monotonic()
        self._finished |= next(self._steps, None) is None
        self.seconds += time.monotonic() - begun

    def take(self, schedule: Schedule | None) -> None:
        """A schedule that is known to be within the budget."""
        if schedule is not None and (self.best is None or schedule.cost < self.best.cost):
            self.best = schedule

    def _is_over(self) -> bool:
        return self.limits.over

    def _run(self) -> Iterator[bool]:
        """Generator: the steps, each followed by True."""
        if not self.planned or self.best is None:
            for schedule in constructed(self.condensed, self.budget, self.limits):
                self.take(schedule)
            self.take(plan_schedule(self.condensed, self.budget, self.limits.left, self.limits.cancelled))
            yield True
        self._local = LocalSearch(self.condensed, self.budget)
        walks = guides(self.condensed, self.relaxed)
        self._local.guide(walks)
        self.take(guided_schedule(self.condensed, self.budget, walks, self._is_over))
        yield True
        self._search()
        yield True
        if self.limits.left > self.proving / 2:
            self._prove_at_moments()
            yield True
        if self.gap > _WIDE and (walks := chain_guides(self.condensed, self.budget, self._is_over)):
            self._local.guide(walks)
            self.take(guided_schedule(self.condensed, self.budget, walks, self._is_over))
            yield True
        searching, proving = 0.0, 0.0
        while self._refinement is None or not self._refinement.finished:
            begun = time.monotonic()
            if searching <= proving or self.limits.left < self.proving / 2:
                self._search()
                searching += time.monotonic() - begun
            else:
                self._prove()
                proving += time.monotonic() - begun
            yield True

    def _proof_limits(self) -> Limits:
        return self.limits.share(min(1.0, self.proving / max(self.limits.left, 1e-9)))

    def _search(self) -> None:
        """A cooling: from a new walk, from beyond the budget if there is something new, or from the best schedule."""
        assert self._local is not None
        self._local.offer(self.best)
        kind, self._coolings = self._coolings % 3, self._coolings + 1
        computations = None
        if self.beyond is not None and kind != 2:
            computations, self.beyond = self.beyond.computations, None
        elif self.best is not None and kind == 2:
            computations = self.best.computations
        self._local.begin(computations, _COOLING)
        self.take(self._local.run(_COOLING, lambda: self.limits.over))

    def _prove_at_moments(self) -> None:
        """The relaxation's integer program, which tells more of a short time than the refinement."""
        relaxed = integral_moments_bound(self.condensed, self.budget, self.relaxed, self._proof_limits())
        if self.best is None or math.isfinite(relaxed.bound):
            self.bound = max(self.bound, relaxed.bound)
        if self._local is not None and relaxed is not self.relaxed:
            self._local.guide(guides(self.condensed, relaxed))

    def _prove(self) -> None:
        """A round of the refinement, and walks to its point."""
        if self._refinement is None:
            moments = self.relaxed.moments
            self._refinement = Refinement(self.condensed, self.budget, self.limits, moments, self.bound)
        self._refinement.bound = max(self._refinement.bound, self.bound)
        self._refinement.limits = self._proof_limits()
        self._refinement.advance(self.best)
        self.take(self._refinement.schedule)
        if self.best is None or math.isfinite(self._refinement.bound):  # else it was the solver's tolerance
            self.bound = max(self.bound, self._refinement.bound)
        if self._refinement.point is not None and self._local is not None:
            self._local.guide(guides_to(*self._refinement.point.held()))
