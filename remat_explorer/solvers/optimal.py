"""The optimal strategy: planner's schedule, linear programming bound, then the liveness formulation as a MILP.

Memory rows are added in rounds. Every round's problem is a relaxation of the full frontier-advancing problem
(gradients may be recomputed, too), so each dual bound is valid for it; a round's schedule becomes the incumbent once
it is within the budget to the byte.
"""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.lazy_rows import LivenessRelaxation, refuse
from remat_explorer.solvers.liveness_model import LivenessModel
from remat_explorer.solvers.milp import RELATIVE_GAP, Milp
from remat_explorer.solvers.planner import plan_schedule

PLANNING_SHARE = 0.1  # of the time limit goes to the planner, at most
RELAXING_SHARE = 0.4  # of the time left goes to the linear program, at most
ROUND_SHARE = 0.6  # of the time left goes to one round of the MILP, so that violated rows can still be added


def solve_optimal(graph: Graph, budget: int, limits: Limits) -> Answer:
    """The cheapest schedule within the budget, or the best known with a bound when the time is up.

    Args:
        graph: the training graph, one implementation per operation.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell.

    Raises:
        SolverError: if an operation has several implementations, or the back end fails.
    """
    condensed = Condensed.of(graph)
    bound = graph.total_cost
    limits.tell("planning", lower_bound=bound)
    seconds = min(2.0 + condensed.n / 200, PLANNING_SHARE * limits.left)
    best = plan_schedule(condensed, budget, seconds, limits.cancelled)
    limits.tell("building the linear program", best, bound)
    if limits.over or (best is not None and best.cost <= bound):
        return Answer(best, bound)
    relaxed = LivenessRelaxation(condensed, budget, _share(limits, RELAXING_SHARE)).solve(best)
    if math.isinf(relaxed.bound):
        return _infeasible(best, bound, limits)
    bound = max(bound, relaxed.bound)
    return _Search(condensed, budget, limits, best, bound).run(relaxed.points)


class _Search:
    """Rounds of the MILP, with the incumbent and the bound between them."""

    def __init__(self, condensed: Condensed, budget: int, limits: Limits, best: Schedule | None, bound: float) -> None:
        self.condensed, self.budget, self.limits = condensed, budget, limits
        self.best, self.bound = best, bound
        self.model = LivenessModel(condensed, budget, Milp(limits.solver, limits.threads))

    def run(self, points: tuple[tuple[int, int], ...]) -> Answer:
        """Build with the memory rows ``points``, and solve until proven or out of time."""
        limits, model = self.limits, self.model
        if self._proven():
            return self._answer()
        limits.tell("building the integer program", self.best, self.bound)
        if not model.build(limits):
            return self._answer()
        for t, k in points:
            if limits.over:
                return self._answer()
            model.add_memory_row(t, k)
        while not limits.over and not self._proven():
            limits.tell("solving the integer program", self.best, self.bound)
            share = ROUND_SHARE if limits.left > 4 else 1.0
            outcome = model.milp.solve(share * limits.left, self._start())
            if outcome.status == "infeasible":
                return _infeasible(self.best, self.bound, limits)
            self.bound = max(self.bound, model.cost(outcome.bound))
            if outcome.values is not None and not refuse(model, outcome.values):
                self._keep(outcome.values)
                if outcome.status == "optimal":
                    break
        return self._answer()

    def _start(self) -> np.ndarray | None:
        if self.best is None:
            return None
        return self.model.point(self.best.R, self.best.S[:, self.condensed.member])

    def _keep(self, values: np.ndarray) -> None:
        R, _ = self.model.matrices(values)
        found = self.condensed.schedule(R.round())
        if self.best is None or found.cost < self.best.cost:
            self.best = found

    def _proven(self) -> bool:
        return self.best is not None and self.best.cost - self.bound <= RELATIVE_GAP * self.best.cost

    def _answer(self) -> Answer:
        self.limits.tell("done", self.best, self.bound)
        return Answer(self.best, self.bound, solver=self.limits.solver)


def _share(limits: Limits, share: float) -> Limits:
    """The same limits, with only a share of the time that is left."""
    return Limits(share * limits.left, limits.solver, limits.threads, limits.report, limits.cancelled)


def _infeasible(best: Schedule | None, bound: float, limits: Limits) -> Answer:
    """What a claim of infeasibility means: a schedule in hand refutes it, so it was the solver's tolerance."""
    if best is not None:
        return Answer(best, bound, solver=limits.solver)
    return Answer(None, infeasible=True, solver=limits.solver)
