"""Checkmate's problem (9) as columns and rows of an integer program, and its unpartitioned and its split form.

Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys 2020: problem (9) is
(1a) to (1f) with frontier-advancing stages (8a) to (8c) and the memory recurrence (2) to (4), whose FREE is (5),
written as (6) and linearized by (7a) to (7c). Extended to operations with several outputs (R belongs to operations, S
and FREE to values), workspace, persistent values, resident bytes, and outputs that take over the storage of an input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.linear_expression import ABSENT, require_columns
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solver_interface import Limits

MOST_SPLITS = 100  # more than two parts gained nothing wherever it was tried


@dataclass(frozen=True)
class StageRows:
    """Which operations each row of R may compute.

    Stage t, which ends with the first run of operation t, is the rows t * splits to (t + 1) * splits - 1 (arXiv
    1910.02653v1, section 4.10). Where (8a) to (8c) do not hold, it is not ``partitioned``: there are n rows, and each
    may compute everything.
    """

    n: int
    splits: int = 1
    partitioned: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.splits, bool) or not isinstance(self.splits, int) or not 1 <= self.splits <= MOST_SPLITS:
            expected = f"a whole number from 1 to {MOST_SPLITS}, the parts of each stage"
            raise SolverError(f"splits is {shown(self.splits)}; expected {expected}")

    @property
    def count(self) -> int:
        """Number of rows of R and S."""
        return self.n * self.splits

    def known(self, row: int) -> int:
        """Operations 0 to this number less 1 may have run before the row."""
        return row // self.splits if self.partitioned else self.n

    def first(self, row: int) -> int:
        """The operation that runs for the first time at the end of this row, (8a), or -1."""
        return row // self.splits if self.partitioned and (row + 1) % self.splits == 0 else -1

    def computable(self, row: int) -> int:
        """(8c): operations 0 to this number less 1 may run in the row."""
        return self.known(row) + (self.first(row) >= 0)


class CheckmateProblem:
    """The columns and rows of problem (9) for one graph and one budget.

    R and S are column numbers of shape (rows, n) and (rows, groups), -1 where the variable is fixed to 0. D, of shape
    (rows, n), says whether operation k, which has persistent outputs, has run before the row. Frontier-advancing stages
    need no such variable, since operation k has run from stage k + 1 on. Costs are scaled so that their mean is 1.
    """

    def __init__(self, condensed: CondensedGraph, budget: int, milp: Milp, rows: StageRows | None = None) -> None:
        self.condensed, self.milp = condensed, milp
        self.rows = rows = rows or StageRows(condensed.n)
        graph, n, total = condensed.graph, condensed.n, condensed.graph.total_cost
        self.cost_scale = n / total if total else 1.0
        self.unit = float(max(condensed.bytes.max(initial=0), condensed.transient.max(initial=0), 1))
        self.budget = budget / self.unit
        self.R = np.full((rows.count, n), ABSENT)
        self.S = np.full((rows.count, condensed.groups), ABSENT)
        self.D = np.full((rows.count, n), ABSENT)
        self.FREE: dict[tuple[int, int, int], int] = {}
        persistent = [sum(graph.values[v].bytes for v in graph.outputs(k) if graph.persistent[v]) for k in range(n)]
        self.persistent = np.array(persistent) / self.unit

    def build(self, limits: Limits) -> bool:
        """Add everything, row by row; False if the time ran out before the end."""
        for step in (self._add_binaries, self._add_rules, self._add_memory):
            for t in range(self.rows.count):
                if limits.over:
                    return False
                step(t)
        if not self.rows.partitioned:  # (1e): what no operation follows, or what stays, is computed in some stage
            for k, outputs in enumerate(self.condensed.outputs):
                if not outputs or self.persists(k):
                    self._row([(1, column) for column in self.R[:, k]], ">", 1)
        return True

    def persists(self, k: int) -> bool:
        """Whether operation k has persistent outputs."""
        graph = self.condensed.graph
        return any(graph.persistent[v] for v in graph.outputs(k))

    def _add_binaries(self, t: int) -> None:
        problem, milp, rows = self.condensed, self.milp, self.rows
        for i in range(rows.computable(t)):  # (8c): R is lower triangular
            first = 1.0 if i == rows.first(t) else 0.0  # (8a): R[t,t] = 1
            self.R[t, i] = milp.column(problem.costs[i] * self.cost_scale, first, 1, integer=True)  # (1a), (1f)
        for v, producer in enumerate(problem.producer):
            if t > 0 and producer < rows.known(t):  # (1d): S[0,i] = 0; (8b): S is strictly lower triangular
                self.S[t, v] = milp.column(integer=True)
            for k in self._frees(v):
                if self.R[t, k] >= 0:
                    self.FREE[t, v, k] = milp.column(integer=True)  # (7a)
        for k in range(problem.n if t > 0 and not rows.partitioned else 0):
            if self.persists(k):
                self.D[t, k] = milp.column()  # its rows leave it no choice between 0 and 1

    def _frees(self, v: int) -> list[int]:
        """The operations after which value v may be freed: its readers.

        Section 4.8 drops FREE[t,k,k], because nobody computes what nobody reads. An operation with several outputs
        is run for one of them, so the others must be freed right after it.
        """
        problem = self.condensed
        producer = int(problem.producer[v])
        return [*([producer] if len(problem.outputs[producer]) > 1 else []), *problem.readers[v]]

    def _add_rules(self, t: int) -> None:
        problem, R, S = self.condensed, self.R, self.S
        for k, inputs in enumerate(problem.inputs):
            for v in inputs if R[t, k] >= 0 else ():  # (1b): R[t,j] <= R[t,i] + S[t,i]
                self._row([(1, R[t, k]), (-1, R[t, problem.producer[v]]), (-1, S[t, v])], "<", 0)
        for v, producer in enumerate(problem.producer):
            if S[t, v] >= 0:  # (1c): S[t,i] <= R[t-1,i] + S[t-1,i]
                self._row([(1, S[t, v]), (-1, R[t - 1, producer]), (-1, S[t - 1, v])], "<", 0)
        if not self.rows.partitioned:
            self._add_persistence(t)
        for v in range(problem.groups):
            for k in self._frees(v):
                if (t, v, k) in self.FREE:
                    self._add_free(t, v, k)

    def _add_persistence(self, t: int) -> None:
        """(1b) and (1c) of what stays: D[t,k] = 1 exactly if k has run before row t."""
        graph, R, D = self.condensed.graph, self.R, self.D
        for j in range(graph.n):
            for i in {int(graph.producer[v]) for v in graph.inputs(j) if graph.persistent[v]}:
                self._row([(1, R[t, j]), (-1, R[t, i]), (-1, D[t, i])], "<", 0)
        for k in np.flatnonzero(D[t] >= 0):
            self._row([(1, D[t, k]), (-1, R[t - 1, k]), (-1, D[t - 1, k])], "<", 0)
            self._row([(1, D[t, k]), (-1, R[t - 1, k])], ">", 0)
            self._row([(1, D[t, k]), (-1, D[t - 1, k])], ">", 0)

    def _add_free(self, t: int, v: int, k: int) -> None:
        """(5): FREE[t,v,k] = 1 exactly if k runs and v is then neither read in the row nor kept.

        (6) says the same by num_hazards, the number of factors of (5) that are 0 (Lemma 4.1): FREE is 1 exactly where
        it is 0. By Lemma 4.2 that is (7b) and (7c).
        """
        later = [self.R[t, j] for j in self.condensed.readers[v] if j > k]
        if t + 1 < self.rows.count:
            later.append(self.S[t + 1, v])
        # num_hazards = (1 - R[t,k]) + S[t+1,v] + sum of R[t,j] over readers j > k; kappa is its largest value
        kappa = 1 + len(later)
        hazards = [(-1, self.R[t, k]), *((1, column) for column in later)]
        free = self.FREE[t, v, k]
        self._row([*hazards, (1, free)], ">", 0)  # (7b): 1 - FREE <= num_hazards
        self._row([*hazards, (kappa, free)], "<", kappa - 1)  # (7c): num_hazards <= kappa (1 - FREE)

    def _add_memory(self, t: int) -> None:
        problem, milp, rows = self.condensed, self.milp, self.rows
        # what is there all through the row is in no variable, so it narrows the budget
        base = problem.base[rows.known(t)] if rows.partitioned else problem.graph.resident_bytes
        room = self.budget - base / self.unit
        milp.row([], [], "<", room)
        previous = -1
        for k in range(rows.computable(t)):
            taken = self._taken_over(t, k)
            now = milp.column(lower=0, upper=max(room, 0.0) + sum(size for size, _ in taken))  # (9): U[t,k] <= M_budget
            made = -problem.output_bytes[k] / self.unit
            if k == 0:  # (2): U[t,0] = M_input + 2 M_param + sum of M_i S[t,i] + M_0 R[t,0]
                held = [(-size / self.unit, self.S[t, v]) for v, size in enumerate(problem.bytes)]
                stays = [(-size, column) for size, column in zip(self.persistent, self.D[t], strict=True)]
                self._row([(1, now), (made, self.R[t, 0]), *held, *stays], "=", 0)
            else:  # (3): U[t,k+1] = U[t,k] - mem_freed(t, v_k) + M_{k+1} R[t,k+1], with mem_freed by (4)
                freed = [(problem.bytes[v] / self.unit, self.FREE[t, v, k - 1]) for v in self._touched(k - 1, t)]
                stays, constant = self._stays(t, k - 1)
                self._row([(1, now), (-1, previous), (made, self.R[t, k]), *freed, *stays], "=", constant)
            if problem.transient[k] or taken:  # U[t,k] + workspace R[t,k] - M_a FREE[t,a,k] <= M_budget
                transient = (problem.transient[k] / self.unit, self.R[t, k])
                self._row([(1, now), transient, *((-size, column) for size, column in taken)], "<", room)
            previous = now

    def _stays(self, t: int, k: int) -> tuple[list[tuple[float, int]], float]:
        """What k's persistent outputs add after it in row t: terms of D[t,k] - D[t+1,k], and the part that is fixed."""
        if self.rows.partitioned or not self.persists(k):
            return [], 0.0
        size, last = float(self.persistent[k]), t + 1 == self.rows.count
        terms = [(size, self.D[t, k]), *([] if last else [(-size, self.D[t + 1, k])])]
        return terms, size if last else 0.0

    def _taken_over(self, t: int, k: int) -> list[tuple[float, int]]:
        """The value a that k may overwrite and FREE[t,a,k], the column that says that it dies there: a pair or none."""
        free = self.FREE.get((t, int(self.condensed.overwritten[k]), k))
        return [] if free is None else [(float(self.condensed.credit[k] / self.unit), free)]

    def _touched(self, k: int, t: int) -> list[int]:
        """Values that may be freed right after k in row t."""
        return [v for v in (*self.condensed.inputs[k], *self.condensed.outputs[k]) if (t, v, k) in self.FREE]

    def _row(self, terms: list[tuple[float, int]], sense, right: float) -> None:
        """Add a row, without the variables that are fixed to 0."""
        require_columns(self.milp, terms, sense, right)

    def matrices(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R (rows, n) and S (rows, groups) at a point, fractional where the point is."""
        extended = np.append(values, 0.0)  # so that column -1 reads 0
        return extended[self.R], extended[self.S]

    def schedule(self, values: np.ndarray) -> Schedule:
        """The leanest schedule with the R of an integral point."""
        graph = self.condensed.graph
        R, _ = self.matrices(values)
        empty = np.zeros((self.rows.count, len(graph.values)), dtype=bool)
        return Schedule(graph, R.round(), empty).compact()
