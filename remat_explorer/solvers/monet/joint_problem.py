"""The joint problem: the cheapest schedule and implementation of every run, exactly, with memory rows as needed.

In memory while k runs in stage t are, beyond the stage's base and what the run itself adds, the groups with p(v) >= k
that are retained into the stage, and those with p(v) < k that are alive. A group is alive if a run from k on reads it
or if it is retained into stage t + 1,

    (d) L[t,v,k] >= use[t,u,v] for k <= u <= m_t,   L[t,v,k] >= S[t+1,v],

a maximum, so L is continuous, bounded from below, and chained from reader to reader. Memory is a row at (t, k),

    (e) sum_{p(v)<k} M_v L[t,v,k] + sum_{p(v)>=k} M_v S[t,v] + sum_l (sum_O M + W) delta[t,k,l] - credit <= B,

where the credit for an overwritten value a is M_a times a column that is at most delta[t,k,l], and at most 1 - L after
k: an output takes over the storage only where a dies (f). Rows (e) are added where a point violates them.

MONeT (Shah et al., ICLR 2021) has in place of L the local memory of (3), which appendix A bounds, and the unions of (5)
and (6), in full (10) and (11). (e) is its (4) for forward pass (1), backward pass (2) and recomputation (3). What a run
adds is times delta, so one row is both (12) and (13), and all rows are (14). (f) stands for (15) and (16); its product
takes two of the three rows of appendix F. What may run in place only has delta[t,k,l] <= 1 - L after k, too.

Columns of the joint problem of schedule and implementations, and the rules for what is available.

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

import math
from collections.abc import Callable

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.linear_expression import ONE, ZERO, LinearExpression, require, require_at_most, total
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, CondensedImplementation
from remat_explorer.solvers.solver_interface import Limits

TOLERANCE = 1e-6  # of the budget: below it a fractional point counts as within the budget
POINTS = 4  # memory rows that one round adds to a stage, at most


class JointProblem:
    """The whole problem for one graph and one budget: delta, S, rows (a) to (c), and memory rows as needed.

    ``delta`` has by (t, k) each way that can run there, and its sum; S by (t, v) where the group can be retained into
    the stage. ``derived`` are columns that follow from others, in that order: the column, `min` or `max`, and of what.
    ``either``: whether nothing is gained by recomputing what is retained, or by retaining what is not read later.
    ``limits_all_memory``: whether what fits the rows fits the budget.
    """

    either = True

    def __init__(self, problem: CondensedChoices, budget: int, milp: Milp, allowed: np.ndarray | None = None) -> None:
        self.problem, self.budget, self.milp = problem, budget, milp
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
        self.unit = float(max(problem.bytes.max(initial=0), 1))
        self.points: set[tuple[int, int]] = set()
        self.L: dict[tuple[int, ...], LinearExpression] = {}
        self.limits_all_memory = True

    def add_stage(self, t: int) -> None:
        """Columns of stage t, each with its reads still to come."""
        problem, own = self.problem, int(self.own[t])
        # groups that the stage's own operation reads in every way
        certain = set.intersection(*(set(way.inputs) for way in problem.ways[own]))
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

    def build(self, limits: Limits) -> bool:
        """Add columns, rules, and the memory of first runs; False if the time ran out before the end."""
        for step in (self.add_stage, self.add_rules, self._keep_in_place, self._add_own_memory):
            for t in range(self.T):
                if limits.over:
                    return False
                step(t)
        return True

    def _keep_in_place(self, t: int) -> None:
        """What may run in place only does not where the value that it overwrites lives on."""
        for k in self.operations_in(t):
            for way, run in self.delta[t, k]:
                if way.in_place:
                    require_at_most(self.milp, run, ONE - self.alive_after(t, way.overwritten, k))

    def _add_own_memory(self, t: int) -> None:
        self.add_memory_row(t, int(self.own[t]))

    def add_memory_row(self, t: int, k: int) -> bool:
        """Limit the memory while operation k runs in stage t (e); False if that row is already there."""
        if (t, k) in self.points:
            return False
        self.points.add((t, k))
        problem, bytes_of = self.problem, self.problem.bytes
        parts = [part * (problem.during(way) / self.unit) for way, part in self.delta[t, k]]
        for v in np.flatnonzero((self.begun <= t) & (bytes_of > 0)).tolist():
            present = self._present(t, v, k) if problem.producer[v] < k else self.not_yet_written(t, v, k)
            parts.append(present * (float(bytes_of[v]) / self.unit))
        parts += [self._credit(t, k, *part) * -1.0 for part in self.delta[t, k] if part[0].credit]
        require_at_most(self.milp, total(parts), LinearExpression((self.budget - int(problem.base[t])) / self.unit))
        return True

    def _credit(self, t, k, way, part) -> LinearExpression:
        """What overwriting saves, in units: nothing where the value lives on after k."""
        after = self.alive_after(t, way.overwritten, k)
        size = way.credit / self.unit
        if part == ONE:
            return (ONE - after) * size
        taken = self._derived(min, part, ONE - after)
        require_at_most(self.milp, taken, part)
        require_at_most(self.milp, taken, ONE - after)
        return taken * size

    def _derived(self, of: Callable[..., float], one: LinearExpression, other: LinearExpression) -> LinearExpression:
        column = self.milp.column()
        self.derived.append((column, of, one, other))
        return LinearExpression.of(column)

    def alive(self, t: int, v: int, k: int) -> LinearExpression:
        """At least 1 if v, written before k, is read by k or later in stage t, or retained into the next."""
        return self._largest(t, v, [u for u in self.problem.readers[v] if u >= k and (t, u) in self.delta])

    def not_yet_written(self, t: int, v: int, k: int) -> LinearExpression:
        """Whether v, which k or a later operation writes, is in memory from earlier stages while k runs."""
        return self.held(t, v)

    def local(self, t: int, k: int) -> list[int]:
        """Groups that count as alive while k runs in stage t, whether or not anything reads them later."""
        return []

    def readers_that_count(self, t: int, k: int, readers: list[int]) -> list[int]:
        """Of the readers that keep a value alive while k runs, those that the bound sees."""
        return readers

    def _present(self, t: int, v: int, k: int) -> LinearExpression:
        readers = [u for u in self.problem.readers[v] if u >= k and (t, u) in self.delta]
        alive = self._largest(t, v, self.readers_that_count(t, k, readers))
        if alive == ONE or v not in self.local(t, k):
            return alive
        present = self._derived(max, alive, self.R(t, k))
        require_at_most(self.milp, alive, present)
        require_at_most(self.milp, self.R(t, k), present)
        return present

    def alive_after(self, t: int, v: int, k: int) -> LinearExpression:
        """The same once k has run."""
        return self.alive(t, v, k + 1)

    def _largest(self, t: int, v: int, readers: list[int]) -> LinearExpression:
        kept = self.held(t + 1, v)
        uses = [u for u in readers if not self.use(t, u, v).is_zero]
        if not uses:
            return kept
        if any(all(v in way.inputs for way, _ in self.delta[t, u]) for u in uses if u == self.own[t]):
            return ONE  # the stage's own operation reads it in every way
        key = (t, v, *uses)
        if key not in self.L:
            use, rest = self.use(t, uses[0], v), self._largest(t, v, uses[1:])
            if rest.is_zero:
                self.L[key] = use
            else:
                self.L[key] = largest = self._derived(max, use, rest)
                require_at_most(self.milp, use, largest)
                require_at_most(self.milp, rest, largest)
        return self.L[key]

    def add_violated(self, values: np.ndarray) -> int:
        """Add the rows of the points where memory exceeds the budget most in each stage, and return how many."""
        added = 0
        for t in range(self.T):
            U = memory_at(self, self.local, t, values)
            over = {k: u for k, u in U.items() if u > self.budget * (1 + TOLERANCE) and (t, k) not in self.points}
            for k in sorted(over, key=lambda k: -over[k])[:POINTS]:
                added += self.add_memory_row(t, k)
        return added

    def solve(
        self, limits: Limits, incumbent: Schedule | None = None, own_bound: bool = True
    ) -> tuple[Schedule | None, float]:
        """Rounds of the relaxation, then of the integer program, until no memory row is violated or the time is up.

        ``own_bound``: whether the bound holds for all schedules, and may be told.
        """
        best, bound = incumbent, self.problem.least_cost
        room = self.budget
        while not limits.over:
            outcome = self.milp.solve(limits.left, start=self._start(incumbent), cancelled=limits.cancelled)
            if room == self.budget:
                bound = max(bound, self._bound(outcome))
            limits.tell("solving the joint problem", best, bound if own_bound else self.problem.least_cost)
            if outcome.values is None:
                return best, bound
            if self.add_violated(outcome.values):
                continue
            if self.milp.relaxed:
                self.milp.require_integers()
                continue
            schedule = self.problem.schedule(self.codes(outcome.values))
            excess = Plan.of(schedule).peak - self.budget
            if excess <= 0 or not self.limits_all_memory:
                if best is None or schedule.cost < best.cost:
                    best = schedule
                return best, bound
            # the solver's tolerance is relative, so it may let through a few bytes too many: ask for that much less
            room = self.budget = self.budget - excess
            self.points.clear()
        return best, bound

    def _start(self, incumbent: Schedule | None) -> np.ndarray | None:
        """The known schedule as a point to begin with; None while the problem is relaxed, or where it is none."""
        if incumbent is None or self.milp.relaxed:
            return None
        R = unbeaten_codes(self.problem, incumbent.R)
        return None if R is None else joint_point(self, R)

    def _bound(self, outcome: MilpOutcome) -> float:
        return math.inf if outcome.status == "infeasible" else self.cost(outcome.bound)


def memory_at(
    joint: JointProblem, local: Callable[[int, int], list[int]], t: int, values: np.ndarray
) -> dict[int, float]:
    """Bytes in memory while each operation that can run in stage t runs: (e), MONeT's (1) to (3), with L smallest."""
    problem, bytes_of = joint.problem, joint.problem.bytes.astype(float)
    starts = np.array([joint.held(t, v).at(values) for v in range(problem.groups)])
    alive = np.array([joint.held(t + 1, v).at(values) for v in range(problem.groups)])
    memory: dict[int, float] = {}
    for k in range(int(joint.own[t]), -1, -1):
        if (t, k) not in joint.delta:
            continue
        ways = [(way, part.at(values)) for way, part in joint.delta[t, k]]
        memory[k] = float(problem.base[t])
        use = np.zeros(problem.groups)
        for way, share in ways:
            use[list(way.inputs)] += share
            memory[k] += problem.during(way) * share
            if way.credit:
                memory[k] -= way.credit * min(share, 1 - alive[way.overwritten])
        alive = np.maximum(alive, use)
        present = np.where(problem.producer < k, alive, starts)
        if groups := local(t, k):
            present[groups] = np.maximum(present[groups], sum(share for _, share in ways))
        memory[k] += float(present @ bytes_of)
    return memory


def unbeaten_codes(problem: CondensedChoices, R: np.ndarray) -> np.ndarray | None:
    """The same runs in implementations that the problem has; None where one is neither among them nor replaced.

    An implementation that another one beats in everything is left out of the problem, so the other runs in its place:
    what fits the budget still does, for no more cost.
    """
    R = R.astype(np.int64)
    for k in np.flatnonzero(R.any(axis=0)).tolist():
        known = {way.code for way in problem.ways[k]}
        for code in set(R[:, k].tolist()) - known - {0}:
            if code not in problem.beaten[k]:
                return None
            R[R[:, k] == code, k] = problem.beaten[k][code]
    return R


def retained_groups(problem: CondensedChoices, R: np.ndarray) -> np.ndarray:
    """S of the leanest schedule with these runs, bool of shape (T + 1, groups); the last row is after all stages."""
    ways = [{way.code: way for way in ways} for ways in problem.ways]
    S = np.zeros((len(R) + 1, problem.groups), dtype=bool)
    for t in range(len(R) - 1, -1, -1):
        S[t] = S[t + 1]
        for k in np.flatnonzero(R[t])[::-1].tolist():
            way = ways[k][int(R[t, k])]
            S[t, list(way.outputs)] = False
            S[t, list(way.inputs)] = True
    return S


def joint_point(joint: JointProblem, R: np.ndarray) -> np.ndarray | None:
    """One value for each column, where R, with codes of the problem's ways, can be expressed in its columns; else None.

    What has no column is a constant, which R must agree with. Columns that follow from others are set as low, or as
    high, as their rows allow.
    """
    S = retained_groups(joint.problem, R)
    if any((t, k) not in joint.delta for t, k in np.argwhere(R).tolist()):
        return None
    values = np.full(joint.milp.columns, np.nan)
    for (t, k), ways in joint.delta.items():
        for way, run in ways:
            if not _put(values, run, float(R[t, k] == way.code)):
                return None
    for (t, v), held in joint.S.items():
        if not _put(values, held, float(S[t, v])):
            return None
    for column, of, one, other in joint.derived:
        values[column] = of(one.at(values), other.at(values))
    return None if np.isnan(values).any() else values


def _put(values: np.ndarray, single: LinearExpression, wanted: float) -> bool:
    """Set the column of an expression so that its value is the wanted one; False where it is another already."""
    if not single.columns:
        return single.constant == wanted
    column, value = single.columns[0], (wanted - single.constant) / single.weights[0]
    if np.isnan(values[column]):
        values[column] = value
    return bool(values[column] == value)
