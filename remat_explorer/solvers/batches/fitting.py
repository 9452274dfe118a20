"""Whether a graph can be trained within a memory at a limited cost: a schedule, a proof of none, or neither."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from remat_explorer.checker import Checked, check_schedule
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.batches.overhead_limit import OverheadLimit, allowed_recomputation
from remat_explorer.solvers.bounds.few_moments import MomentsBound, few_moments_bound, integral_moments_bound
from remat_explorer.solvers.bounds.point import guides
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.planner import guided_schedule, plan_schedule

EXACT = 1e-9  # relative: what adding up costs in another order may change
CAUTION = 1e-6  # relative, on a bound that a solver computed
PLANNING, RELAXING = 0.3, 0.5  # shares of the time that is left, at most


@dataclass(frozen=True)
class Fit:
    """An answer.

    Attributes:
        answer: "feasible" with a checked schedule, "infeasible" with a proof, or "unknown".
        checked: the schedule, as the checker found it; None unless feasible.
        cost_limit: that the schedule keeps to, infinity for none.
    """

    answer: Literal["feasible", "infeasible", "unknown"]
    checked: Checked | None
    cost_limit: float


def fit(graph: Graph, memory: int, overhead_limit: OverheadLimit, limits: Limits) -> Fit:
    """Decide for one graph.

    Args:
        graph: the training graph, one implementation per operation.
        memory: bytes, resident bytes included.
        overhead_limit: as for `allowed_recomputation`.
        limits: time and back end.

    Raises:
        QuantityError: if the limit cannot be read.
        SolverError: if the solver fails, or an operation has several implementations.

    >>> from remat_explorer.instances import linear
    >>> [fit(linear(8), memory, "one extra forward", Limits()).answer for memory in (2, 4, 5)]
    ['infeasible', 'unknown', 'feasible']
    """
    spare = allowed_recomputation(graph.costs, graph.is_backward, overhead_limit)
    return _Decision(graph, memory, graph.total_cost + spare, limits).run()


class _Decision:
    """Planning and bounding in turn, until one of them settles it."""

    def __init__(self, graph: Graph, memory: int, cost_limit: float, limits: Limits) -> None:
        self.graph, self.memory, self.cost_limit, self.limits = graph, memory, cost_limit, limits
        self.condensed = Condensed.of(graph)

    def run(self) -> Fit:
        if self.condensed.operation_bytes.max() > self.memory:
            return self._infeasible()
        schedule = plan_schedule(self.condensed, self.memory, PLANNING * self.limits.left, self.limits.cancelled)
        relaxed = MomentsBound(0.0)
        for bound in (self._bound, self._integral_bound):
            if self._cheap_enough(schedule):
                break
            if self.limits.over:
                return Fit("unknown", None, self.cost_limit)
            relaxed = bound(relaxed)
            if math.isinf(relaxed.bound) or relaxed.bound > self.cost_limit * (1 + CAUTION):
                return self._infeasible()
            walks = guides(self.condensed, relaxed)
            schedule = guided_schedule(self.condensed, self.memory, walks, lambda: self.limits.over)
        if schedule is None or not self._cheap_enough(schedule):
            return Fit("unknown", None, self.cost_limit)
        return Fit("feasible", check_schedule(schedule.on(self.graph), self.memory), self.cost_limit)

    def _bound(self, relaxed: MomentsBound) -> MomentsBound:
        return few_moments_bound(self.condensed, self.memory, self.limits.share(RELAXING))

    def _integral_bound(self, relaxed: MomentsBound) -> MomentsBound:
        return integral_moments_bound(self.condensed, self.memory, relaxed, self.limits)

    def _cheap_enough(self, schedule: Schedule | None) -> bool:
        return schedule is not None and schedule.cost <= self.cost_limit * (1 + EXACT)

    def _infeasible(self) -> Fit:
        return Fit("infeasible", None, self.cost_limit)
