"""Memory rows added where they are violated, for the linear program and for the integer program."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.live_memory import live_memory
from remat_explorer.solvers.liveness_model import LivenessModel
from remat_explorer.solvers.milp import Milp

TOLERANCE = 1e-6  # of the budget: below it a fractional point counts as within the budget


@dataclass(frozen=True)
class Relaxed:
    """The linear program's answer: a valid lower bound on the cost, and where memory binds.

    Attributes:
        bound: cost below which no schedule can be; infinity if the budget is proven infeasible.
        points: (stage, operation) of the rows that were needed.
        finished: whether no row is violated any more.
    """

    bound: float
    points: tuple[tuple[int, int], ...]
    finished: bool


class LivenessRelaxation:
    """The liveness formulation without integrality, solved by rounds of violated memory rows."""

    def __init__(self, condensed: Condensed, budget: int, limits: Limits) -> None:
        self.model = LivenessModel(condensed, budget, Milp(limits.solver, limits.threads, relaxed=True))
        self.limits = limits

    def solve(self, incumbent: Schedule | None = None, bound: float = 0.0) -> Relaxed:
        """Add the most violated row of every stage until none is violated or the time is up.

        Args:
            incumbent: the best schedule so far, for the progress reports.
            bound: a lower bound that is known already.
        """
        model, limits = self.model, self.limits
        bound, finished = max(bound, model.condensed.graph.total_cost), False
        if not model.build(limits):
            return Relaxed(bound, (), False)
        while not limits.over:
            outcome = model.milp.solve(limits.left)
            if outcome.status == "infeasible":
                return Relaxed(math.inf, tuple(model.points), True)
            if outcome.values is None:
                break
            bound = max(bound, model.cost(outcome.bound))
            limits.tell("relaxing the liveness formulation", incumbent, bound)
            R, S = model.matrices(outcome.values)
            worst = violated_points(model, R, S)
            if not [model.add_memory_row(t, k) for t, k in worst]:
                finished = True
                break
        return Relaxed(bound, tuple(sorted(model.points)), finished)


def violated_points(model: LivenessModel, R: np.ndarray, S: np.ndarray) -> list[tuple[int, int]]:
    """The point of each stage that most exceeds the budget, among those without a row."""
    U = live_memory(model.condensed, R, S)
    U[R <= 1e-9] = -math.inf
    for t, k in model.points:
        U[t, k] = -math.inf
    worst = U.argmax(axis=1)
    limit = model.budget * (1 + TOLERANCE)
    return [(t, int(k)) for t, k in enumerate(worst) if U[t, k] > limit and k <= t]


def refuse(model: LivenessModel, values: np.ndarray) -> bool:
    """Add rows that cut off an integral point, exactly; False if the point is within the budget to the byte."""
    R, S = (matrix.round() for matrix in model.matrices(values))
    U = live_memory(model.condensed, R, S)
    exceeded = np.argwhere((model.budget < U) & (R > 0))
    for t, k in exceeded.tolist():
        if not model.add_memory_row(t, k):
            model.add_cover_row(t, k, R, S)
    return bool(len(exceeded))
