"""The variables of the liveness formulation: the optimum of Checkmate's problem (9) with a fraction of its size.

Only R and S are binary. Without loss of generality nothing is computed or retained that nobody reads; then a value i
is alive when k runs in stage t exactly if it is retained into stage t + 1 or some reader j >= k of it runs in stage
t. That is a maximum, so it needs neither FREE nor U, and none of (2) to (7c): continuous variables L, bounded from
below, stand for it, and the memory at a point (t, k) is one row (`liveness_model`).

Runs of stages may be merged (`Stages`): the problem is then a relaxation, much smaller, whose bound is valid.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from remat_explorer.solvers.bounds.possibilities import possibilities
from remat_explorer.solvers.bounds.stages import Stages
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.linear_expression import ONE, ZERO, LinearExpression, require, single_columns
from remat_explorer.solvers.milp import Milp


class LivenessColumns:
    """Columns for R and S, the rows (1b) and (1c), and what a point of them says.

    Args:
        condensed: n operations and their groups of values.
        milp: an empty problem to build into.
        stages: which stages are single and which are merged; all single if None.
        allowed: which operation may run again in which stage, bool of shape (n, n); any if None.

    Attributes:
        R, S: R[q][k] and S[q][v] of entry q of the stages; an operation that the entry runs first is 1.
        cost_scale: the objective counts costs times this, so that the mean cost is 1.
        objective_constant: what the substitution of R adds to the objective.
    """

    def __init__(
        self,
        condensed: Condensed,
        milp: Milp,
        stages: Stages | None = None,
        allowed: np.ndarray | None = None,
    ) -> None:
        self.condensed, self.milp = condensed, milp
        self.stages = stages or Stages.of(condensed)
        n, total = condensed.n, condensed.graph.total_cost
        self.cost_scale = n / total if total else 1.0
        self.objective_constant = 0.0
        self.R = [[ZERO] * n for _ in range(len(self.stages))]
        self.S = [[ZERO] * condensed.groups for _ in range(len(self.stages) + 1)]
        self.reruns, self.holds, self.must_hold = possibilities(self.stages, allowed)

    def add_columns(self, q: int) -> None:
        problem, milp = self.condensed, self.milp
        first, last, read = int(self.stages.first[q]), int(self.stages.last[q]), self.stages.reads[q]
        costs = problem.costs * self.cost_scale
        for t in range(first, last + 1):
            self.R[q][t] = ONE
            self.objective_constant += costs[t]
        for v in np.flatnonzero(self.must_hold[q]).tolist():
            self.S[q][v] = ONE
        free = self.holds[q] & ~self.must_hold[q]
        for k in range(first):
            useful = [v for v in problem.outputs[k] if free[v]]
            needed = [v for v in useful if read[v]] if self.reruns[q, k] else []
            if needed:
                # exactly one of "retained" and "recomputed" holds for an input of t, and one for all of one producer
                column = milp.column(cost=-costs[k], integer=True)
                self.objective_constant += costs[k]
                self.R[q][k] = ONE - LinearExpression.of(column)
                for v in needed:
                    self.S[q][v] = LinearExpression.of(column)
            elif self.reruns[q, k]:
                self.R[q][k] = LinearExpression.of(milp.column(cost=costs[k], integer=True))
            for v in useful:
                if v not in needed:
                    self.S[q][v] = LinearExpression.of(milp.column(integer=True))

    def add_rules(self, q: int) -> None:
        problem, read = self.condensed, self.stages.reads[q]
        first = int(self.stages.first[q])
        for k in range(first):
            if self.R[q][k].is_zero:
                continue
            for v in problem.inputs[k]:  # (1b): R[t,k] <= R[t,p(v)] + S[t,v]
                if not read[v] and not self.must_hold[q, v]:
                    require(self.milp, [(1.0, self.R[q][k]), *self._missing(q, v)], "<")
        for v in range(problem.groups):  # (1c): S[t+1,v] <= R[t,p(v)] + S[t,v]
            held = read[v] or self.must_hold[q, v]
            if problem.producer[v] < first and not held and not self.S[q + 1][v].is_zero:
                require(self.milp, [(1.0, self.S[q + 1][v]), *self._missing(q, v)], "<")

    def _missing(self, q: int, v: int) -> list[tuple[float, LinearExpression]]:
        return [(-1.0, self.R[q][self.condensed.producer[v]]), (-1.0, self.S[q][v])]

    def cost(self, objective: float) -> float:
        """The cost, in the graph's unit, that a value of the objective stands for."""
        return float((objective + self.objective_constant) / self.cost_scale)

    def matrices(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R (entries, n) and S (entries, groups) at a point, fractional where the point is."""
        extended = np.append(values, 0.0)  # so that column -1 reads 0
        R, S = (terms[..., 0] + terms[..., 2] * extended[terms[..., 1].astype(int)] for terms in self.terms)
        return R, S

    @cached_property
    def terms(self) -> tuple[np.ndarray, np.ndarray]:
        """R and S as arrays of (constant, column, weight), once they are built."""
        R, S = (single_columns([part for row in rows for part in row]) for rows in (self.R, self.S[:-1]))
        return R.reshape(len(self.stages), -1, 3), S.reshape(len(self.stages), -1, 3)

    def reruns_excluded(self, reduced_costs: np.ndarray, room: float) -> np.ndarray:
        """Which operation runs again in which entry in no schedule whose cost is within ``room`` of the bound.

        Args:
            reduced_costs: of the linear program whose bound is meant.
            room: in the graph's unit.

        Returns:
            bool of shape (entries, n), only where there is a variable.
        """
        R = self.terms[0]
        column, falls = R[..., 1].astype(int), R[..., 2] < 0
        rise = np.append(reduced_costs, 0.0)[column] * np.where(falls, -1.0, 1.0) / self.cost_scale
        return (column >= 0) & (rise > room)
