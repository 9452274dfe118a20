"""Columns of the joint problem of schedule and implementations, and the rules for what is available.

delta[t,k,l] says that operation k runs in stage t in its way l, S[t,v] that group v is retained into stage t. One way
at most runs at each (t, k), so what is read and written there is a sum of columns,

    R[t,k] = sum over l of delta,  use[t,k,v] = sum over l that read v,  wr[t,v] = sum over l of p(v) that write v,

and no product is needed: neither Checkmate's FREE for each implementation (MONeT, Shah et al., ICLR 2021, appendix E)
nor the sigma of MONeT's own (10). Rules:

    (a) R[t,m_t] = 1, R <= 1                         (b) use[t,k,v] <= S[t,v] + wr[t,v]
    (c) S[t+1,v] <= S[t,v] + wr[t,v]

In MONeT, whose s^k, r^k and s^{k-1} are S[t], R[t] and S[t+1] in the stage of backward operation k, (a) is the choice
of one implementation (section 4), (b) the first half of (7), and (8) with s^k, and (c) the second half of (7), with the
indices of its Algorithm 2. The objective is (9).

Without loss of generality a run serves a later read, and a value that is computed in a stage is not retained into it.
So columns exist only where a read can still come, and what the stage's own operation reads in every way, written by
an operation with a single way, is recomputed exactly if it is not retained: one column stands for both. A group that
nothing in stage t may read or write is retained into t + 1 exactly if it was retained into t, so there S[t+1,v] is the
column S[t,v]: where few runs are allowed, few columns are left.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from remat_explorer.solvers.linear_expression import ONE, ZERO, LinearExpression, require, require_at_most, total
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, CondensedImplementation


class JointColumns:
    """delta, S, and rows (a) to (c).

    Args:
        problem: operations with their ways, and groups of values.
        milp: an empty problem to build into.
        allowed: which operation may run in which stage beside the stage's own, bool of shape (T, n); any if None.

    Attributes:
        delta: by (t, k), the way and its sum for each way that can run there.
        S: by (t, v), where the group can be retained into the stage.
        cost_scale: the objective counts costs times this, so that the mean cost is 1.
        objective_constant: what columns that stand for 1 - S add to the objective.
        derived: columns that follow from others, in that order: the column, `min` or `max`, and of what.
        either: whether nothing is gained by recomputing what is retained, or by retaining what is not read later.
    """

    either = True

    def __init__(self, problem: CondensedChoices, milp: Milp, allowed: np.ndarray | None = None) -> None:
        self.problem, self.milp = problem, milp
        graph = problem.graph
        self.own, self.first, self.T = graph.mandatory, graph.first_stage, graph.stages
        self.allowed = np.ones((self.T, graph.n), dtype=bool) if allowed is None else allowed
        self.cost_scale = graph.n / graph.total_cost if graph.total_cost else 1.0
        self.objective_constant = 0.0
        self._in_stage: dict[int, list[int]] = {}
        self.delta: dict[tuple[int, int], list[tuple[CondensedImplementation, LinearExpression]]] = {}
        self.S: dict[tuple[int, int], LinearExpression] = {}
        self.derived: list[tuple[int, Callable[..., float], LinearExpression, LinearExpression]] = []
        self.begun = self.first[problem.producer]  # the first stage in which a group can be written
        self.last_read = self._last_read()

    def add_stage(self, t: int) -> None:
        """Columns of stage t, each with its reads still to come."""
        problem, own = self.problem, int(self.own[t])
        certain = self._certain(t)
        for k in range(own):
            ways = [way for way in problem.ways[k] if self._can_run(t, k, way)]
            if not ways:
                continue
            needed = [v for v in ways[0].outputs if v in certain and self.begun[v] < t]
            if self.either and len(problem.ways[k]) == 1 and needed:
                column = self.milp.column(cost=-ways[0].cost * self.cost_scale, integer=True)
                self.objective_constant += ways[0].cost * self.cost_scale
                for v in needed:
                    self.S[t, v] = LinearExpression.of(column)
                self.delta[t, k] = [(ways[0], ONE - LinearExpression.of(column))]
            else:
                self.delta[t, k] = [(way, self._run(way)) for way in ways]
                if len(ways) > 1:
                    require_at_most(self.milp, self.R(t, k), ONE)
        ways = [way for way in problem.ways[own] if way.persists and self._can_begin(t, own, way)]
        if len(ways) == 1:
            self.delta[t, own] = [(ways[0], ONE)]
            self.objective_constant += ways[0].cost * self.cost_scale
        else:
            self.delta[t, own] = [(way, self._run(way)) for way in ways]
            require(self.milp, [(1.0, self.R(t, own))], "=", 1.0)
        self._in_stage[t] = [k for k in range(own + 1) if (t, k) in self.delta]
        touched = self._touched(t - 1)
        for v in np.flatnonzero((self.begun < t) & (t <= self.last_read)).tolist():
            if (t, v) not in self.S:
                same = self.S.get((t - 1, v)) if self.either and v not in touched else None
                self.S[t, v] = LinearExpression.of(self.milp.column(integer=True)) if same is None else same

    def _last_read(self) -> np.ndarray:
        """The last stage in which an allowed run may read each group, int of shape (groups,); -1 if none may."""
        reads = np.zeros((self.problem.graph.n, self.problem.groups), dtype=bool)
        for k, ways in enumerate(self.problem.ways):
            for way in ways:
                reads[k, list(way.inputs)] = True
        runs = self.allowed.copy()
        runs[np.arange(self.T), self.own] = True
        read = runs.astype(np.float32) @ reads.astype(np.float32) > 0
        last = np.where(read.any(axis=0), self.T - 1 - read[::-1].argmax(axis=0), -1)
        return np.minimum(last, self.problem.last_read)

    def _touched(self, t: int) -> set[int]:
        """Groups that a run in stage t may read or write."""
        runs = [way for k in self.operations_in(t) for way, _ in self.delta[t, k]]
        return {v for way in runs for v in (*way.inputs, *way.outputs)}

    def operations_in(self, t: int) -> list[int]:
        """Operations that can run in stage t, in no order."""
        return self._in_stage.get(t, [])

    def _certain(self, t: int) -> set[int]:
        """Groups that the stage's own operation reads in every way."""
        return set.intersection(*(set(way.inputs) for way in self.problem.ways[self.own[t]]))

    def _run(self, way: CondensedImplementation) -> LinearExpression:
        return LinearExpression.of(self.milp.column(cost=way.cost * self.cost_scale, integer=True))

    def _can_run(self, t: int, k: int, way: CondensedImplementation) -> bool:
        """Whether k, beside the stage's own operation, may run this way, and serve a read that can still come."""
        if not self.allowed[t, k] or self.first[k] > t or not way.outputs:
            return False
        return max(self.problem.last_read[v] for v in way.outputs) >= t and self._can_begin(t, k, way)

    def _can_begin(self, t: int, k: int, way: CondensedImplementation) -> bool:
        """Whether what it reads can exist: its operation's own values from an earlier stage only."""
        producer = self.problem.producer
        return all(self.begun[v] < t if producer[v] == k else self.begun[v] <= t for v in way.inputs)

    def add_rules(self, t: int) -> None:
        """Rows (b) and (c) of stage t."""
        problem = self.problem
        for k in self.operations_in(t):
            for v in {v for way, _ in self.delta[t, k] for v in way.inputs}:
                self._require_available(self.use(t, k, v), t, v)
        if t + 1 < self.T:
            for v in range(problem.groups):
                if (t + 1, v) in self.S and self.S[t + 1, v] != self.S.get((t, v)):
                    self._require_available(self.S[t + 1, v], t, v)

    def _require_available(
        self, needed: LinearExpression, t: int, v: int, written: LinearExpression | None = None
    ) -> None:
        require_at_most(self.milp, needed, self.held(t, v) + (self.wr(t, v) if written is None else written))

    def held(self, t: int, v: int) -> LinearExpression:
        """S[t,v]; nothing is retained beyond the last stage."""
        return self.S.get((t, v), ZERO)

    def R(self, t: int, k: int) -> LinearExpression:
        """Whether k runs in stage t."""
        return total(part for _, part in self.delta.get((t, k), ()))

    def use(self, t: int, k: int, v: int) -> LinearExpression:
        """Whether k runs in stage t in a way that reads v."""
        return total(part for way, part in self.delta.get((t, k), ()) if v in way.inputs)

    def wr(self, t: int, v: int) -> LinearExpression:
        """Whether v is written in stage t."""
        k = int(self.problem.producer[v])
        return total(part for way, part in self.delta.get((t, k), ()) if v in way.outputs)

    def cost(self, objective: float) -> float:
        """The cost, in the graph's unit, that a value of the objective stands for."""
        return float((objective + self.objective_constant) / self.cost_scale)

    def codes(self, values: np.ndarray) -> np.ndarray:
        """R of an integral point, with the codes of the implementations, int of shape (T, n)."""
        R = np.zeros((self.T, self.problem.graph.n), dtype=np.int64)
        for (t, k), ways in self.delta.items():
            for way, part in ways:
                if part.at(values) > 0.5:
                    R[t, k] = way.code
        return R
