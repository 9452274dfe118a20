"""The few-moments relaxation at several budgets: built once, of which only right-hand sides change.

The budget stands in the right-hand sides of the memory rows alone. The back end keeps its basis when they change, so
every budget after the first takes a few steps of the dual simplex method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.few_moments import MomentsBound, MomentsProblem
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp


class MomentsAtBudgets(MomentsProblem):
    """The linear program of chosen moments, at any budget from ``least`` on.

    Args:
        condensed: n operations and their groups of values.
        least: bytes of the smallest budget. Values that are small beside it are taken to be in memory for nothing;
            fewer of them than for larger budgets, so the bound is valid there, too.
        moments: operations, ascending.
        limits: time to build, and back end.

    >>> from remat_explorer.instances import linear
    >>> problem = MomentsAtBudgets(Condensed.of(linear(8)), 4, [8], Limits())
    >>> [round(problem.at(budget, Limits()).bound, 2) for budget in (4, 6, 10)]
    [22.0, 20.0, 17.0]
    """

    def __init__(self, condensed: Condensed, least: int, moments: Sequence[int], limits: Limits) -> None:
        super().__init__(condensed, least, list(moments), Milp(limits.solver, limits.threads, relaxed=True))
        self.complete = self.build(limits) and not self.milp.contradiction
        self._right_at_least = [self.milp.right(row) for row in self.memory_rows]

    def at(self, budget: int, limits: Limits) -> MomentsBound:
        """The bound at ``budget`` and what attains it; of an incomplete problem only that everything runs once."""
        assert budget >= self.budget
        if not self.complete:
            return MomentsBound(self.condensed.graph.total_cost)
        more = (budget - self.budget) / self.unit
        for row, right in zip(self.memory_rows, self._right_at_least, strict=True):
            self.milp.set_right(row, right - more)  # -(bytes in memory) >= -room
        outcome = self.milp.solve(limits.left, cancelled=limits.cancelled)
        if outcome.status == "infeasible":
            return MomentsBound(math.inf)
        if outcome.values is None:
            return MomentsBound(self.condensed.graph.total_cost)
        return MomentsBound(self.bound(outcome), tuple(self.moments), *self.presence(outcome.values))
