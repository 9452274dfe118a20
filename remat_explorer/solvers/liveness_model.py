"""The liveness formulation: the optimum of Checkmate's problem (9) with a fraction of its size.

Only R and S are binary. Without loss of generality nothing is computed or retained that nobody reads; then a value i
is alive when k runs in stage t exactly if it is retained into stage t + 1 or some reader j >= k of it runs in stage
t. That is a maximum, so it needs neither FREE nor U: continuous variables L, bounded from below, stand for it, and
the memory at a point (t, k) is one row. The rows are added only where they are needed. An input that k overwrites
where it dies counts at (t, k) only if it is alive after k, which is the same maximum over fewer readers.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp


class Affine(NamedTuple):
    """constant + factor * column; the column is -1 where there is none."""

    constant: float
    column: int = -1
    factor: float = 0.0

    @property
    def is_zero(self) -> bool:
        """Whether this is 0 at every point."""
        return self.column < 0 and self.constant == 0


ZERO, ONE = Affine(0.0), Affine(1.0)


class LivenessModel:
    """Columns for R, S and L and the rows that tie them, for one graph and one budget.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        milp: an empty problem to build into.

    Attributes:
        cost_scale: the objective counts costs times this, so that the mean cost is 1.
        objective_constant: what the substitution of R adds to the objective.
        points: the (stage, operation) whose memory row is in the problem.
    """

    def __init__(self, condensed: Condensed, budget: int, milp: Milp) -> None:
        self.condensed, self.budget, self.milp = condensed, budget, milp
        n, total = condensed.n, condensed.graph.total_cost
        self.cost_scale = n / total if total else 1.0
        self.objective_constant = 0.0
        self.unit = float(max(condensed.bytes.max(initial=0), 1))
        self.R = [[ZERO] * n for _ in range(n)]
        self.S = [[ZERO] * condensed.groups for _ in range(n + 1)]
        self.L: dict[tuple[int, int, int], Affine] = {}
        self.points: set[tuple[int, int]] = set()
        self.last_use = last_use(condensed)

    def build(self, limits: Limits) -> bool:
        """Add columns, rules (1b) and (1c), and the memory rows (t, t); False if the time ran out before the end."""
        for step in (self._add_columns, self._add_rules, lambda t: self.add_memory_row(t, t)):
            for t in range(self.condensed.n):
                if limits.over:
                    return False
                step(t)
        return True

    def _add_columns(self, t: int) -> None:
        problem, milp = self.condensed, self.milp
        costs = problem.costs * self.cost_scale
        self.R[t][t] = ONE
        self.objective_constant += costs[t]
        for k in range(t):
            useful = [v for v in problem.outputs[k] if self.last_use[v] >= t]  # others can only be spurious
            needed = [v for v in useful if problem.reads[t, v]]
            if needed:
                # exactly one of "retained" and "recomputed" holds for an input of t, and one for all of one producer
                column = milp.column(cost=-costs[k], integer=True)
                self.objective_constant += costs[k]
                self.R[t][k] = Affine(1.0, column, -1.0)
                for v in needed:
                    self.S[t][v] = Affine(0.0, column, 1.0)
            elif useful:
                self.R[t][k] = Affine(0.0, milp.column(cost=costs[k], integer=True), 1.0)
            for v in useful:
                if v not in needed:
                    self.S[t][v] = Affine(0.0, milp.column(integer=True), 1.0)

    def _add_rules(self, t: int) -> None:
        problem = self.condensed
        for k in range(t):
            if self.R[t][k].is_zero:
                continue
            for v in problem.inputs[k]:  # (1b): R[t,k] <= R[t,p(v)] + S[t,v]
                if not problem.reads[t, v]:
                    self._at_most([(1, self.R[t][k]), *self._missing(t, v)], 0)
        for v in range(problem.groups):  # (1c): S[t+1,v] <= R[t,p(v)] + S[t,v]
            if problem.producer[v] < t and not problem.reads[t, v] and not self.S[t + 1][v].is_zero:
                self._at_most([(1, self.S[t + 1][v]), *self._missing(t, v)], 0)

    def _missing(self, t: int, v: int) -> list[tuple[float, Affine]]:
        return [(-1, self.R[t][self.condensed.producer[v]]), (-1, self.S[t][v])]

    def add_memory_row(self, t: int, k: int) -> bool:
        """Limit the memory while operation k runs in stage t; False if that row is already there."""
        if (t, k) in self.points:
            return False
        self.points.add((t, k))
        terms = [(size / self.unit, term) for size, term in self._memory(t, k)]
        self._at_most(terms, (self.budget - int(self.condensed.base[t])) / self.unit)
        return True

    def _memory(self, t: int, k: int) -> list[tuple[int, Affine]]:
        """Bytes beyond the stage's base, as sizes and how present each is."""
        problem = self.condensed
        terms = [(int(problem.output_bytes[k] + problem.transient[k]), self.R[t][k])]
        for v in range(problem.groups):
            if problem.producer[v] >= t:
                break
            credit = int(problem.credit[k]) if v == problem.overwritten[k] else 0
            present = self._alive(t, v, k) if problem.producer[v] < k else self.S[t][v]
            terms.append((int(problem.bytes[v]) - credit, present))
            if credit:
                terms.append((credit, self._alive_after(t, v, k)))
        return [(size, term) for size, term in terms if size and not term.is_zero]

    def _alive(self, t: int, v: int, k: int) -> Affine:
        """Whether v, computed before k, is in memory when k runs in stage t."""
        if self.condensed.reads[t, v]:
            return ONE
        readers = [j for j in self.condensed.readers[v] if k <= j < t and not self.R[t][j].is_zero]
        return self._largest(t, v, readers)

    def _alive_after(self, t: int, v: int, k: int) -> Affine:
        """Whether v, read by k, is still in memory once k has run in stage t."""
        return self._alive(t, v, k + 1) if k < t else self.S[t + 1][v]

    def _largest(self, t: int, v: int, readers: list[int]) -> Affine:
        """At least S[t+1,v] and R[t,j] of every reader: L[t,v,j] chains them, so that points share columns."""
        kept = self.S[t + 1][v]
        if not readers:
            return kept
        key = (t, v, readers[0])
        if key not in self.L:
            rest = self._largest(t, v, readers[1:])
            if rest.is_zero:
                self.L[key] = self.R[t][readers[0]]
            else:
                self.L[key] = largest = Affine(0.0, self.milp.column(), 1.0)
                self._at_most([(1, self.R[t][readers[0]]), (-1, largest)], 0)
                self._at_most([(1, rest), (-1, largest)], 0)
        return self.L[key]

    def add_cover_row(self, t: int, k: int, R: np.ndarray, S: np.ndarray) -> None:
        """Forbid an integral point that exceeds the budget at (t, k) by less than the solver's tolerance.

        The present terms alone exceed the budget, so they cannot all be present: a cover inequality.
        """
        room = self.budget - int(self.condensed.base[t])
        terms = sorted(self._memory(t, k), key=lambda pair: -pair[0])
        values = self.point(R, S)
        cover: list[Affine] = []
        for size, term in terms:
            if room >= 0 and self._value(term, values) > 0.5:
                cover.append(term)
                room -= size
        self._at_most([(1, term) for term in cover], len(cover) - 1)

    def _at_most(self, terms: list[tuple[float, Affine]], right: float) -> None:
        columns, coefficients = [], []
        for weight, term in terms:
            right -= weight * term.constant
            if term.column >= 0:
                columns.append(term.column)
                coefficients.append(weight * term.factor)
        self.milp.row(columns, coefficients, "<", right)

    @staticmethod
    def _value(term: Affine, values: np.ndarray) -> float:
        return term.constant + (term.factor * float(values[term.column]) if term.column >= 0 else 0.0)

    def cost(self, objective: float) -> float:
        """The cost, in the graph's unit, that a value of the objective stands for."""
        return float((objective + self.objective_constant) / self.cost_scale)

    def matrices(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R (n, n) and S (n, groups) at a point, fractional where the point is."""
        extended = np.append(values, 0.0)  # so that column -1 reads 0
        R, S = (terms[..., 0] + terms[..., 2] * extended[terms[..., 1].astype(int)] for terms in self._terms)
        return R, S

    @cached_property
    def _terms(self) -> tuple[np.ndarray, np.ndarray]:
        """R and S as arrays of (constant, column, factor), once they are built."""
        n, groups = self.condensed.n, self.condensed.groups
        return np.array(self.R, dtype=float).reshape(n, n, 3), np.array(self.S[:-1], dtype=float).reshape(n, groups, 3)

    def point(self, R: np.ndarray, S: np.ndarray) -> np.ndarray:
        """The value of every column at integral R (n, n) and S (n, groups): a start for a solve."""
        values = np.zeros(self.milp.columns)
        for terms, matrix in zip(self._terms, (R, S), strict=True):
            free = terms[..., 1] >= 0
            values[terms[free][:, 1].astype(int)] = np.abs((matrix[free] > 0) - terms[free][:, 0])
        for (t, v, j), term in self.L.items():
            if term is not self.R[t][j]:
                readers = [i for i in self.condensed.readers[v] if j <= i < t]
                kept = t + 1 < self.condensed.n and S[t + 1, v] > 0
                values[term.column] = float(kept or (R[t, readers] > 0).any())
        return values


def last_use(condensed: Condensed) -> np.ndarray:
    """The last stage in which each group can be worth having: for a first run, or for a recomputation that is.

    Args:
        condensed: n operations and their groups of values.

    Returns:
        int of shape (groups,).
    """
    last = np.zeros(condensed.groups, dtype=np.int64)
    for v in range(condensed.groups - 1, -1, -1):  # readers come after producers, so their outputs are done
        last[v] = max(max(j, *last[list(condensed.outputs[j])], 0) for j in condensed.readers[v])
    return last
