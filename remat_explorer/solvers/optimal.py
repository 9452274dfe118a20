"""The optimal strategy: a search that has a schedule at once, improves it, and proves how good it is.

Planned walks give a first schedule, the few-moments relaxation a first bound. Then rounds follow until bound and
schedule meet: the refinement raises the bound, the local search improves the schedule, and walks follow what the
relaxation holds in memory. Every relaxation is one of the full frontier-advancing problem (gradients may be recomputed,
too), so the best of the bounds is a bound on it; a schedule becomes the incumbent only once it is within the budget to
the byte. Rounds are measured in iterations and nodes, not in seconds, so a search that is run to its end does the same
in every run.
"""

from __future__ import annotations

import math

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.few_moments import few_moments_bound
from remat_explorer.solvers.guidance import guides, guides_to
from remat_explorer.solvers.planner import guided_schedule, plan_schedule
from remat_explorer.solvers.point import Point
from remat_explorer.solvers.refinement import Refinement
from remat_explorer.solvers.restricted import run_again_in, solve_within
from remat_explorer.solvers.rounding import cost_step

SETTLED = 1e-7  # relative gap up to which the search has ended
MOMENTS = 0.3  # share of the time that is left, at most, for the first bound
NEAR = 0.3  # the same, for each search near a relaxation's point
SMALL = 30  # operations up to which every stage is single from the beginning


def solve_optimal(graph: Graph, budget: int, limits: Limits) -> Answer:
    """The cheapest schedule within the budget, or the best known with a bound when the time is up.

    Args:
        graph: the training graph, one implementation per operation.
        budget: bytes, resident bytes included.
        limits: time, back end, threads (a second one runs the local search beside the bounds), and whom to tell.

    Raises:
        SolverError: if an operation has several implementations, or the back end fails.
    """
    return Search(Condensed.of(graph), budget, limits).run()


class Search:
    """The incumbent and the bound, and the steps that improve them.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        limits: time, back end, threads and whom to tell.
        best: a schedule within the budget that is known already.
        bound: a lower bound that is known already.
    """

    def __init__(
        self, condensed: Condensed, budget: int, limits: Limits, best: Schedule | None = None, bound: float = 0.0
    ) -> None:
        self.condensed, self.budget, self.limits = condensed, budget, limits
        self.best, self.bound = best, max(bound, condensed.graph.total_cost)
        self.step = cost_step(condensed.graph) * (1 - 1e-6)  # two different costs are at least so far apart

    @property
    def settled(self) -> bool:
        """Whether the incumbent is proven optimal, or that there is none."""
        if self.best is None:
            return math.isinf(self.bound)
        gap = self.best.cost - self.bound
        return gap <= SETTLED * self.best.cost or gap < self.step

    def run(self) -> Answer:
        """Search until the answer is proven or the time is up."""
        for step in (self._plan, self._bound_from_moments, self._refine):
            if self.limits.over or self.settled:
                break
            step()
        if self.best is None and math.isinf(self.bound):
            return Answer(None, infeasible=True, solver=self.limits.solver)
        self._tell("done")
        return Answer(self.best, self.bound, solver=self.limits.solver)

    def _plan(self) -> None:
        self._tell("planning")
        self._keep(plan_schedule(self.condensed, self.budget, self.limits.left / 4, self.limits.cancelled))

    def _bound_from_moments(self) -> None:
        self._tell("bounding from a few moments")
        self.moments = few_moments_bound(self.condensed, self.budget, self.limits.share(MOMENTS), self.best)
        self._raise_bound(self.moments.bound)
        if not self.settled and not self.limits.over:
            walks = guides(self.condensed, self.moments)
            self._keep(guided_schedule(self.condensed, self.budget, walks, lambda: self.limits.over))

    def _refine(self) -> None:
        """Rounds of a higher bound and a better schedule."""
        small = self.condensed.n <= SMALL
        singles = range(self.condensed.n) if small else self.moments.moments
        refinement = Refinement(self.condensed, self.budget, self.limits, singles, self.bound)
        while not self.limits.over and not self.settled:
            refinement.advance(self.best)
            self._raise_bound(refinement.bound)
            self._keep(refinement.schedule)
            if self.settled or refinement.finished:
                break
            if refinement.point is not None:
                self._follow(refinement.point)

    def _follow(self, point: Point) -> None:
        """Schedules near a relaxation's point."""
        walks = guides_to(point.held())
        self._keep(guided_schedule(self.condensed, self.budget, walks, lambda: self.limits.over))
        self._tell("looking for a schedule near the relaxation")
        limits = self.limits.share(NEAR)
        self._keep(solve_within(self.condensed, self.budget, run_again_in(point), limits, self.best))

    def _keep(self, found: Schedule | None) -> None:
        if found is not None and (self.best is None or found.cost < self.best.cost):
            self.best = found
            self._tell("found a better schedule")

    def _raise_bound(self, bound: float) -> None:
        """Infinity claims that there is no schedule; one in hand refutes that: it was the solver's tolerance."""
        if self.best is None or math.isfinite(bound):
            self.bound = max(self.bound, bound)

    def _tell(self, doing: str) -> None:
        self.limits.tell(doing, self.best, self.bound)
