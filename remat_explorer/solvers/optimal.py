"""The optimal strategy: a planned schedule, a bound from a few moments, then the liveness formulation as a MILP.

Every relaxation is one of the full frontier-advancing problem (gradients may be recomputed, too), so the best of the
bounds is a bound on it; a schedule becomes the incumbent only once it is within the budget to the byte. Graphs whose
MILP could not even be built in the time that is left keep what the first two steps gave.
"""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.few_moments import MomentsBound, few_moments_bound, integral_moments_bound
from remat_explorer.solvers.guidance import guides, guides_to
from remat_explorer.solvers.lazy_rows import LivenessRelaxation, refuse
from remat_explorer.solvers.liveness_model import LivenessModel, last_use
from remat_explorer.solvers.milp import RELATIVE_GAP, Milp
from remat_explorer.solvers.planner import guided_schedule, plan_schedule

# shares of the time that is left, at most
PLANNING, MOMENTS, RELAXING = 0.15, 0.15, 0.3
INTEGRAL_MOMENTS, INTEGRAL_MOMENTS_ALONE = 0.2, 0.85  # before the liveness formulation, and without it
ROUND = 0.5  # of one round of the MILP, so that violated rows can still be added
SECONDS_PER_COLUMN = 2.5e-4  # to build and relax the liveness formulation, measured


def solve_optimal(graph: Graph, budget: int, limits: Limits) -> Answer:
    """The cheapest schedule within the budget, or the best known with a bound when the time is up.

    Args:
        graph: the training graph, one implementation per operation.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell.

    Raises:
        SolverError: if an operation has several implementations, or the back end fails.
    """
    search = _Search(Condensed.of(graph), budget, limits)
    for step in (search.plan, search.bound_from_moments, search.relax, search.prove):
        if limits.over or search.settled:
            break
        step()
    return search.answer()


class _Search:
    """The incumbent and the bound, and the steps that improve them."""

    def __init__(self, condensed: Condensed, budget: int, limits: Limits) -> None:
        self.condensed, self.budget, self.limits = condensed, budget, limits
        self.best: Schedule | None = None
        self.bound = condensed.graph.total_cost
        self.points: tuple[tuple[int, int], ...] = ()
        stages = np.maximum(last_use(condensed) - condensed.producer, 0).sum()
        self.uses_liveness = SECONDS_PER_COLUMN * 2 * float(stages) < limits.left

    @property
    def settled(self) -> bool:
        """Whether the incumbent is proven optimal, or that there is none."""
        if self.best is None:
            return math.isinf(self.bound)
        return self.best.cost - self.bound <= RELATIVE_GAP * self.best.cost

    def answer(self) -> Answer:
        """What is known now."""
        if math.isinf(self.bound):
            return Answer(None, infeasible=True, solver=self.limits.solver)
        self._tell("done")
        return Answer(self.best, self.bound, solver=self.limits.solver)

    def plan(self) -> None:
        """A first schedule."""
        self._tell("planning")
        seconds = min(2.0 + self.condensed.n / 200, PLANNING * self.limits.left)
        self._keep(plan_schedule(self.condensed, self.budget, seconds, self.limits.cancelled))

    def bound_from_moments(self) -> None:
        """The few-moments relaxation, as a linear and as an integer program, each followed by guided walks."""
        self._tell("bounding from a few moments")
        relaxed = few_moments_bound(self.condensed, self.budget, self.limits.share(MOMENTS), self.best)
        self._follow(relaxed)
        if self.settled or self.limits.over:
            return
        self._tell("bounding from a few moments, integrally")
        share = INTEGRAL_MOMENTS if self.uses_liveness else INTEGRAL_MOMENTS_ALONE
        self._follow(integral_moments_bound(self.condensed, self.budget, relaxed, self.limits.share(share)))

    def _follow(self, relaxed: MomentsBound) -> None:
        self._raise_bound(relaxed.bound)
        if not self.settled and not self.limits.over:
            walks = guides(self.condensed, relaxed)
            self._keep(guided_schedule(self.condensed, self.budget, walks, lambda: self.limits.over))

    def relax(self) -> None:
        """The liveness formulation's linear program, which finds the memory rows that matter."""
        if self.uses_liveness:
            self._tell("relaxing the liveness formulation")
            relaxation = LivenessRelaxation(self.condensed, self.budget, self.limits.share(RELAXING))
            relaxed = relaxation.solve(self.best, self.bound)
            self._raise_bound(relaxed.bound)
            self.points = relaxed.points

    def prove(self) -> None:
        """The liveness formulation's MILP, with the memory rows that each round's solution violates added."""
        limits = self.limits
        model = LivenessModel(self.condensed, self.budget, Milp(limits.solver, limits.threads))
        if not self.uses_liveness or not self._build(model):
            return
        share = ROUND
        while not limits.over and not self.settled:
            self._tell("solving the liveness formulation")
            outcome = model.milp.solve(share * limits.left, self._start(model))
            self._raise_bound(math.inf if outcome.status == "infeasible" else model.cost(outcome.bound))
            if outcome.status == "infeasible":
                return
            if outcome.values is None:
                continue
            R, S = model.matrices(outcome.values)
            if refuse(model, outcome.values):  # too much memory somewhere, but a good hint at what to keep
                self._keep(guided_schedule(self.condensed, self.budget, guides_to(S), lambda: limits.over))
                continue
            self._keep(self.condensed.schedule(R.round()))
            if outcome.status == "optimal":
                return
            share = 1.0  # no row is missing: what is left of the time is for one long solve

    def _build(self, model: LivenessModel) -> bool:
        self._tell("building the liveness formulation")
        if not model.build(self.limits):
            return False
        for t, k in self.points:
            if self.limits.over:
                return False
            model.add_memory_row(t, k)
        return True

    def _start(self, model: LivenessModel) -> np.ndarray | None:
        return None if self.best is None else model.point(self.best.R, self.best.S[:, self.condensed.member])

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
