"""Checkmate's integer linear program, as the paper writes it.

Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys 2020: problem (9),
which is (1a) to (1f) with frontier-advancing stages (8a) to (8c) and the memory recurrence (2), (3) linearized by
(7a) to (7c). Extended to operations with several outputs (R belongs to operations, S and FREE to values), workspace,
persistent values, resident bytes, and outputs that take over the storage of an input. The unpartitioned form leaves
(8a) to (8c) out; section 4.6 and appendix A use it to show why stages matter.
"""

from __future__ import annotations

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp


class CheckmateProblem:
    """The columns and rows of problem (9) for one graph and one budget.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        milp: an empty problem to build into.
        unpartitioned: leave out (8a) to (8c).

    Attributes:
        R, S: column numbers of shape (n, n) and (n, groups), -1 where the variable is fixed to 0.
        cost_scale: the objective is costs times this, so that the mean cost is 1.
    """

    def __init__(self, condensed: Condensed, budget: int, milp: Milp, unpartitioned: bool = False) -> None:
        if unpartitioned and condensed.graph.persistent.any():
            raise SolverError(
                f"graph {condensed.graph.name!r} has persistent values; the unpartitioned form, which has no stage at "
                "which they are first computed, is only for graphs without"
            )
        self.condensed, self.milp, self.unpartitioned = condensed, milp, unpartitioned
        n, total = condensed.n, condensed.graph.total_cost
        self.cost_scale = n / total if total else 1.0
        self.unit = float(max(condensed.bytes.max(initial=0), condensed.transient.max(initial=0), 1))
        self.budget = budget / self.unit
        self.R = np.full((n, n), -1)
        self.S = np.full((n, condensed.groups), -1)
        self.FREE: dict[tuple[int, int, int], int] = {}

    def build(self, limits: Limits) -> bool:
        """Add everything, stage by stage; False if the time ran out before the end."""
        for stage in (self._add_binaries, self._add_rules, self._add_memory):
            for t in range(self.condensed.n):
                if limits.over:
                    return False
                stage(t)
        if self.unpartitioned:  # (1e): what no operation follows is computed in some stage
            for k in (k for k, outputs in enumerate(self.condensed.outputs) if not outputs):
                self._row([(1, column) for column in self.R[:, k]], ">", 1)
        return True

    def _add_binaries(self, t: int) -> None:
        problem, milp, n = self.condensed, self.milp, self.condensed.n
        for i in range(n if self.unpartitioned else t + 1):  # (8c): R is lower triangular
            first = 1.0 if i == t and not self.unpartitioned else 0.0  # (8a): R[t,t] = 1
            self.R[t, i] = milp.column(problem.costs[i] * self.cost_scale, first, 1, integer=True)  # (1a), (1f)
        for v, producer in enumerate(problem.producer):
            if t > 0 and (self.unpartitioned or producer < t):  # (1d): S[0,i] = 0; (8b): S is strictly lower triangular
                self.S[t, v] = milp.column(integer=True)
            for k in self._frees(v):
                if self.R[t, k] >= 0:
                    self.FREE[t, v, k] = milp.column(integer=True)

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
        for v in range(problem.groups):
            for k in self._frees(v):
                if (t, v, k) in self.FREE:
                    self._add_free(t, v, k)

    def _add_free(self, t: int, v: int, k: int) -> None:
        """(5), linearized: FREE[t,v,k] = 1 exactly if k runs and v is then neither read in the stage nor kept."""
        later = [self.R[t, j] for j in self.condensed.readers[v] if j > k]
        if t + 1 < self.condensed.n:
            later.append(self.S[t + 1, v])
        # num_hazards = (1 - R[t,k]) + S[t+1,v] + sum of R[t,j] over readers j > k; kappa is its largest value
        kappa = 1 + len(later)
        hazards = [(-1, self.R[t, k]), *((1, column) for column in later)]
        free = self.FREE[t, v, k]
        self._row([*hazards, (1, free)], ">", 0)  # (7b): 1 - FREE <= num_hazards
        self._row([*hazards, (kappa, free)], "<", kappa - 1)  # (7c): num_hazards <= kappa (1 - FREE)

    def _add_memory(self, t: int) -> None:
        problem, milp = self.condensed, self.milp
        previous = -1
        for k in range(problem.n if self.unpartitioned else t + 1):
            # (9): U[t,k] <= M_budget; persistent and resident bytes are in no variable, so they narrow the budget
            room = self.budget - problem.base[t] / self.unit
            taken = self._taken_over(t, k)
            now = milp.column(lower=0, upper=max(room, 0.0) + sum(size for size, _ in taken))
            milp.contradiction |= room < 0
            made = -problem.output_bytes[k] / self.unit
            if k == 0:  # (2): U[t,0] = M_input + 2 M_param + sum of M_i S[t,i] + M_0 R[t,0]
                held = [(-size / self.unit, self.S[t, v]) for v, size in enumerate(problem.bytes)]
                self._row([(1, now), (made, self.R[t, 0]), *held], "=", 0)
            else:  # (3): U[t,k+1] = U[t,k] - mem_freed(t, v_k) + M_{k+1} R[t,k+1]
                freed = [(problem.bytes[v] / self.unit, self.FREE[t, v, k - 1]) for v in self._touched(k - 1, t)]
                self._row([(1, now), (-1, previous), (made, self.R[t, k]), *freed], "=", 0)
            if problem.transient[k] or taken:  # U[t,k] + workspace R[t,k] - M_a FREE[t,a,k] <= M_budget
                transient = (problem.transient[k] / self.unit, self.R[t, k])
                self._row([(1, now), transient, *((-size, column) for size, column in taken)], "<", room)
            previous = now

    def _taken_over(self, t: int, k: int) -> list[tuple[float, int]]:
        """The value a that k may overwrite and FREE[t,a,k], the column that says that it dies there: a pair or none."""
        free = self.FREE.get((t, int(self.condensed.overwritten[k]), k))
        return [] if free is None else [(float(self.condensed.credit[k] / self.unit), free)]

    def _touched(self, k: int, t: int) -> list[int]:
        """Values that may be freed right after k in stage t."""
        return [v for v in (*self.condensed.inputs[k], *self.condensed.outputs[k]) if (t, v, k) in self.FREE]

    def _row(self, terms: list[tuple[float, int]], sense, right: float) -> None:
        """Add a row, without the variables that are fixed to 0."""
        terms = [(coefficient, int(column)) for coefficient, column in terms if column >= 0]
        self.milp.row([column for _, column in terms], [coefficient for coefficient, _ in terms], sense, right)

    def schedule(self, values: np.ndarray) -> Schedule:
        """The schedule of an integral point."""
        return self.condensed.schedule(np.where(self.R >= 0, values[self.R], 0).round())


def solve_checkmate_ilp(graph: Graph, budget: int, limits: Limits) -> Answer:
    """Solve problem (9) from nothing: no start, no heuristic, as published.

    Raises:
        SolverError: if an operation has several implementations, or the back end fails.
    """
    condensed = Condensed.of(graph)
    room, lower_bound = budget, graph.total_cost
    while True:
        problem = CheckmateProblem(condensed, room, Milp(limits.solver, limits.threads))
        limits.tell("building problem (9)", lower_bound=lower_bound)
        if not problem.build(limits):
            return Answer(None, lower_bound, solver=limits.solver)
        limits.tell("solving problem (9)", lower_bound=lower_bound)
        outcome = problem.milp.solve(limits.left)
        if room == budget:  # a narrower budget proves nothing about this one
            if outcome.status == "infeasible":
                return Answer(None, infeasible=True, solver=limits.solver)
            lower_bound = max(lower_bound, outcome.bound / problem.cost_scale)
        if outcome.values is None:
            return Answer(None, lower_bound, solver=limits.solver)
        schedule = problem.schedule(outcome.values)
        excess = Plan.of(schedule).peak - budget
        if excess <= 0:
            limits.tell("done", schedule, lower_bound)
            return Answer(schedule, lower_bound, solver=limits.solver)
        # the solver's tolerance is relative, so it may let through a few bytes too many: ask for that much less
        room -= excess
