"""The liveness formulation, and a relaxation that adds memory rows and cuts only where a point violates them.

*Formulation* (`LivenessModel`): the optimum of Checkmate's problem (9) with a fraction of its size. Only R and S are
binary. Without loss of generality nothing is computed or retained that nobody reads; then a value i is alive when k
runs in stage t exactly if it is retained into stage t + 1 or some reader j >= k of it runs in stage t. That is a
maximum, so it needs neither FREE nor U, and none of (2) to (7c): continuous variables L, bounded from below, stand for
it. The memory at a point (t, k), while operation k runs in stage t, is one row over R, S and L: Checkmate's (2) and
(3), where L is what (5) has not freed. An input that k overwrites where it dies counts at (t, k) only if it is alive
after k, which is the same maximum over fewer readers. Runs of stages may be merged (`Stages`): the problem is then a
relaxation, much smaller, whose bound is valid.

*Lazy rows* (`LivenessRelaxation`):

1. `build`: columns, rules, the memory row of each single stage's own operation, and rows and cuts that are known.
2. `solve`: solve the linear program; add the memory rows, cover cuts and path cuts that its point violates most; repeat
   until none is violated, the bound hardly rises, or it reaches the incumbent. Every round's optimum is a lower bound.
3. `refuse`: for an integral point, add rows that cut it off if it exceeds the budget by a byte. Where every stage is
   single, a point for which there are none is a schedule within the budget.

*Interval-path cuts*: what is there now was held before, or made from what was. For groups v_0, v_1, ..., v_m, each an
input of the producer of the one before, and stages t1 <= t2:

    R[t2,p(v_0)] + S[t2,v_0] <= sum over i of S[t1,v_i] + sum over t1 <= t <= t2 of R[t,p(v_m)]

Proof: if v_0 is there in t2 and was not held at t1, its producer ran in some stage between, so v_1 was there in that
stage; and so on down to v_m, whose producer ran. With m = 0 and t1 = t2 nothing is said; with one more input it is
(1b). The most violated path is a shortest one: with f(v) = S[t1,v] + g(p(v)) and g(k) = min(sum of R[t,k], min over
inputs u of k of f(u)), the right-hand side for v_0 is f(v_0). Merged runs of stages are entries like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.bounds.merged_stages import (
    ROWS,
    MemoryRow,
    RowSettings,
    Stages,
    divisors,
    live_memory,
    possibilities,
    violated_cover,
)
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.linear_expression import ONE, ZERO, LinearExpression, require, single_columns
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.search.compiled_state import FlatGraph
from remat_explorer.solvers.solver_interface import Limits


class LivenessModel:
    """The whole problem for one graph and one budget: columns for R, S and L, rules, and memory rows as needed.

    R[q][k] and S[q][v] are of entry q of the stages; an operation that the entry runs first is 1. L has the columns
    that stand for "alive", by entry, group and first reader. Costs are scaled so that their mean is 1, and
    ``objective_constant`` is what the substitution of R adds to the objective.
    """

    def __init__(
        self,
        condensed: CondensedGraph,
        budget: int,
        milp: Milp,
        stages: Stages | None = None,
        allowed: np.ndarray | None = None,
        settings: RowSettings = ROWS,
    ) -> None:
        self.condensed, self.milp, self.budget, self.settings = condensed, milp, budget, settings
        self.stages = stages or Stages.of(condensed)
        n, total = condensed.n, condensed.graph.total_cost
        self.cost_scale = n / total if total else 1.0
        self.objective_constant = 0.0
        self.R = [[ZERO] * n for _ in range(len(self.stages))]
        self.S = [[ZERO] * condensed.groups for _ in range(len(self.stages) + 1)]
        self.reruns, self.holds, self.must_hold = possibilities(self.stages, allowed)
        self.unit = float(max(condensed.bytes.max(initial=0), 1))
        self.divisors = divisors(condensed, budget, settings.divisors)
        self.L: dict[tuple[int, int, int], LinearExpression] = {}
        self.points: set[tuple[int, int]] = set()
        self._memory_rows: list[MemoryRow] = []
        self._covers: list[set[tuple[int, ...]]] = []

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

        By the reduced costs of the bound's linear program; bool of shape (entries, n), only where there is a variable.
        """
        R = self.terms[0]
        column, falls = R[..., 1].astype(int), R[..., 2] < 0
        rise = np.append(reduced_costs, 0.0)[column] * np.where(falls, -1.0, 1.0) / self.cost_scale
        return (column >= 0) & (rise > room)

    def build(self, limits: Limits) -> bool:
        """Add columns, rules (1b) and (1c), and the memory rows (t, t); False if the time ran out before the end."""
        for step in (self.add_columns, self.add_rules, self._add_own_memory):
            for q in range(len(self.stages)):
                if limits.over:
                    return False
                step(q)
        return True

    def _add_own_memory(self, q: int) -> None:
        if self.stages.single[q]:
            self.add_memory_row(int(self.stages.first[q]), int(self.stages.first[q]))

    def add_memory_row(self, t: int, k: int) -> bool:
        """Limit the memory while operation k runs in stage t; False if that row is already there.

        With the row come rounded ones: what is present takes at least as many whole blocks of d bytes as its sizes
        hold, and no more than the budget holds (a Chvatal-Gomory cut for each divisor d).
        """
        if (t, k) in self.points:
            return False
        self.points.add((t, k))
        terms = self._memory(t, k)
        room = self.budget - int(self.condensed.base[t])
        scaled = [(size / self.unit, term) for size, term in terms]
        require(self.milp, scaled, "<", room / self.unit)
        left = room - sum(size for size, term in terms if term == ONE)
        self._memory_rows.append(MemoryRow.of(left, [(size, term) for size, term in terms if term.columns]))
        self._covers.append(set())
        for d in self.divisors:
            rounded = [(size // d, term) for size, term in terms if size >= d and term != ONE]
            if sum(count for count, _ in rounded) > left // d:
                require(self.milp, rounded, "<", left // d)
        return True

    def add_covers(self, values: np.ndarray) -> int:
        """Add the cover cut of each memory row that a point violates, and return how many."""
        added = 0
        for row, covers in zip(self._memory_rows, self._covers, strict=True):
            cover = violated_cover(row, values) if len(row.sizes) else None
            if cover is not None and cover.terms not in covers:
                covers.add(cover.terms)
                of = list(cover.terms)
                weights = np.array(cover.coefficients, dtype=float)
                right = cover.right - float(weights @ row.constants[of])
                self.milp.row(row.columns[of].tolist(), (weights * row.factors[of]).tolist(), "<", right)
                added += 1
        return added

    def _memory(self, t: int, k: int) -> list[tuple[int, LinearExpression]]:
        """Bytes beyond the stage's base, as sizes and how present each is."""
        problem, q = self.condensed, self.stages.position[t]
        terms = [(int(problem.output_bytes[k] + problem.transient[k]), self.R[q][k])]
        for v in range(problem.groups):
            if problem.producer[v] >= t:
                break
            credit = int(problem.credit[k]) if v == problem.overwritten[k] else 0
            present = self._alive(q, v, k) if problem.producer[v] < k else self.S[q][v]
            terms.append((int(problem.bytes[v]) - credit, present))
            if credit:
                terms.append((credit, self._alive_after(q, v, k)))
        return [(size, term) for size, term in terms if size and not term.is_zero]

    def _alive(self, q: int, v: int, k: int) -> LinearExpression:
        """Whether v, computed before k, is in memory when k runs in entry q, a single stage."""
        t = int(self.stages.first[q])
        if self.stages.reads[q, v]:
            return ONE
        readers = [j for j in self.condensed.readers[v] if k <= j < t and not self.R[q][j].is_zero]
        return self._largest(q, v, readers)

    def _alive_after(self, q: int, v: int, k: int) -> LinearExpression:
        """Whether v, read by k, is still in memory once k has run in entry q."""
        return self._alive(q, v, k + 1) if k < self.stages.first[q] else self.S[q + 1][v]

    def _largest(self, q: int, v: int, readers: list[int]) -> LinearExpression:
        """At least S[t+1,v] and R[t,j] of every reader: L[t,v,j] chains them, so that points share columns."""
        kept = self.S[q + 1][v]
        if not readers:
            return kept
        key = (q, v, readers[0])
        if key not in self.L:
            rest = self._largest(q, v, readers[1:])
            if rest.is_zero:
                self.L[key] = self.R[q][readers[0]]
            else:
                self.L[key] = largest = LinearExpression.of(self.milp.column())
                require(self.milp, [(1.0, self.R[q][readers[0]]), (-1.0, largest)], "<")
                require(self.milp, [(1.0, rest), (-1.0, largest)], "<")
        return self.L[key]

    def add_path_cut(self, begin: int, end: int, path: Sequence[int]) -> None:
        """A value at the end of a path that is there in entry ``end`` was held, or made from what was.

        R[t2,p(v0)] + S[t2,v0] <= sum over the path of S[t1,v] + sum over t1 <= t <= t2 of R[t,p(last)], where v0, v1,
        ... are groups, each an input of the one before (`path_cuts`).
        """
        producer = self.condensed.producer
        terms = [(1.0, self.R[end][producer[path[0]]]), (1.0, self.S[end][path[0]])]
        terms += [(-1.0, self.S[begin][v]) for v in path]
        terms += [(-1.0, self.R[q][producer[path[-1]]]) for q in range(begin, end + 1)]
        require(self.milp, terms, "<")

    def add_cover_row(self, t: int, k: int, R: np.ndarray, S: np.ndarray) -> None:
        """Forbid an integral point that exceeds the budget at (t, k) by less than the solver's tolerance.

        The present terms alone exceed the budget, so they cannot all be present: a cover inequality.
        """
        room = self.budget - int(self.condensed.base[t])
        terms = sorted(self._memory(t, k), key=lambda pair: -pair[0])
        values = self.point(R, S)
        cover: list[LinearExpression] = []
        for size, term in terms:
            if room >= 0 and term.at(values) > 0.5:
                cover.append(term)
                room -= size
        require(self.milp, [(1.0, term) for term in cover], "<", len(cover) - 1)

    def point(self, R: np.ndarray, S: np.ndarray) -> np.ndarray:
        """The value of every column at integral R (entries, n) and S (entries, groups)."""
        values = np.zeros(self.milp.columns)
        for terms, matrix in zip(self.terms, (R, S), strict=True):
            free = terms[..., 1] >= 0
            values[terms[free][:, 1].astype(int)] = np.abs((matrix[free] > 0) - terms[free][:, 0])
        for (q, v, j), term in self.L.items():
            if term is not self.R[q][j]:
                readers = [i for i in self.condensed.readers[v] if j <= i < self.stages.first[q]]
                kept = q + 1 < len(S) and S[q + 1, v] > 0
                values[term.columns[0]] = float(kept or (R[q, readers] > 0).any())
        return values

    def start(self, R: np.ndarray, S: np.ndarray) -> np.ndarray:
        """The point of a schedule's R (n, n) and S (n, groups), to begin a solve with."""
        return self.point(*self.stages.merge(R, S))


_BLOCK_VIOLATION = 0.02  # share of a block by which a rounded memory row must be exceeded to be added
_MOST_PATHS = 500  # path cuts that one round adds, at most
_LEAST_PROGRESS = 3e-5  # rise of the bound below which rounds end, as a share of the cost of computing everything once
_PATIENCE = 4  # in how many rounds together it must rise so much


class PathCut(NamedTuple):
    """Entries t1 and t2 of the stages, and the groups v_0, v_1, ... of the path."""

    begin: int
    end: int
    path: tuple[int, ...]

    def slack(self, condensed: CondensedGraph, R: np.ndarray, S: np.ndarray) -> float:
        """Right-hand side minus left-hand side at R (entries, n) and S (entries, groups); negative where violated."""
        made, remade = int(condensed.producer[self.path[0]]), int(condensed.producer[self.path[-1]])
        there = R[self.end, made] + S[self.end, self.path[0]]
        return float(S[self.begin, list(self.path)].sum() + R[self.begin : self.end + 1, remade].sum() - there)


def violated_cuts(stages: Stages, R: np.ndarray, S: np.ndarray, violated: float = ROWS.paths) -> list[PathCut]:
    """The most violated cuts at a point, at most one for each group and first stage, the worst first."""
    from remat_explorer.solvers.search.relaxed_points import shortest_paths  # compiled on its first use

    cuts: list[tuple[float, PathCut]] = []
    ever = R.copy()
    ever[np.arange(stages.condensed.n) >= stages.first[:, None]] = 0.0
    active = np.flatnonzero(ever.max(axis=0) > violated / 4)  # what is not computed again is in no violated cut's end
    sums = np.vstack([np.zeros((1, R.shape[1])), np.cumsum(R, axis=0)])
    cost, through = np.zeros((R.shape[1], len(R))), np.full((R.shape[1], len(R)), -1, dtype=np.int32)
    violation, ends = np.empty(S.shape[1]), np.zeros(S.shape[1], dtype=np.int64)
    producer, flat = stages.condensed.producer, FlatGraph.of(stages.condensed)
    R, S = np.ascontiguousarray(R), np.ascontiguousarray(S)
    for begin in range(len(stages) - 1):
        first = int(stages.first[begin])
        shortest_paths(flat, R, S, sums, active, begin, first, cost, through, violation, ends)
        for v in np.flatnonzero(violation > violated).tolist():
            end, path = int(ends[v]), [v]
            while through[producer[path[-1]], end] >= 0:
                path.append(int(through[producer[path[-1]], end]))
            cuts.append((float(violation[v]), PathCut(begin, end, tuple(path))))
    cuts.sort(key=lambda pair: -pair[0])
    return [cut for _, cut in cuts[:_MOST_PATHS]]


TOLERANCE = 1e-6  # of the budget: below it a fractional point counts as within the budget


@dataclass(frozen=True)
class RelaxedSolution:
    """The linear program's answer: a valid lower bound on the cost, and a point that attains it."""

    bound: float  # cost below which no schedule can be; infinity if the budget is proven infeasible
    optimum: float = 0.0  # of the last round's linear program; it may be below a bound that was known before
    R: np.ndarray | None = None  # (entries, n), between 0 and 1, of the last round; None without one
    S: np.ndarray | None = None  # (entries, groups), likewise


class LivenessRelaxation:
    """The liveness formulation solved by rounds of violated memory rows and path cuts, first without integrality."""

    def __init__(
        self,
        condensed: CondensedGraph,
        budget: int,
        limits: Limits,
        stages: Stages | None = None,
        allowed: np.ndarray | None = None,
        doing: str = "relaxing the liveness formulation",
        cutting: bool = False,
        settings: RowSettings = ROWS,
    ) -> None:
        milp = Milp(limits.solver, limits.threads, relaxed=True)
        self.model = LivenessModel(condensed, budget, milp, stages, allowed, settings)
        self.limits, self.doing, self.cutting, self.settings = limits, doing, cutting, settings
        self.allowed = None if allowed is None else allowed.copy()
        self.cuts: set[PathCut] = set()
        self.effort = 0

    def build(self, points: Iterable[tuple[int, int]] = (), cuts: Iterable[PathCut] = ()) -> bool:
        """Build the problem with some memory rows and cuts from the start; False if the time ran out before the end."""
        if not self.model.build(self.limits):
            return False
        for t, k in points:
            if self.limits.over:
                return False
            if t in self.model.stages.position:
                self.model.add_memory_row(t, k)
        self.add_cuts(cuts)
        return not self.limits.over

    def add_cuts(self, cuts: Iterable[PathCut]) -> int:
        """Add the cuts that are not there yet, and return how many."""
        new = [cut for cut in cuts if cut not in self.cuts]
        for cut in new:
            self.model.add_path_cut(*cut)
        self.cuts.update(new)
        return len(new)

    def exclude(self, cost: float) -> None:
        """Note which operations run again in which stages in no schedule cheaper than ``cost``."""
        model = self.model
        room = cost * (1 + 1e-6) - model.cost(model.milp.objective)
        if room > 0:
            excluded = model.reruns_excluded(model.milp.reduced_costs(), room)
            if not excluded.any():
                return
            if self.allowed is None:
                self.allowed = np.ones((model.condensed.n, model.condensed.n), dtype=bool)
            for q in np.flatnonzero(excluded.any(axis=1)):
                self.allowed[int(model.stages.first[q]) : int(model.stages.last[q]) + 1] &= ~excluded[q]

    def solve(self, incumbent: Schedule | None = None, bound: float = 0.0) -> RelaxedSolution:
        """Rounds of the linear program, until nothing is violated, cuts help no more, or the time is up."""
        model, limits, settings = self.model, self.limits, self.settings
        total = model.condensed.graph.total_cost
        relaxed = RelaxedSolution(max(bound, total))
        history: list[float] = []
        while not limits.over:
            self.effort += model.milp.columns
            outcome = model.milp.solve(limits.left, cancelled=limits.cancelled)
            if outcome.status == "infeasible":
                return RelaxedSolution(math.inf)
            if outcome.values is None:
                break
            R, S = model.matrices(outcome.values)
            relaxed = RelaxedSolution(max(relaxed.bound, model.cost(outcome.bound)), model.cost(outcome.bound), R, S)
            limits.tell(self.doing, incumbent, relaxed.bound)
            if limits.over:
                break
            if incumbent is not None:
                self.exclude(incumbent.cost)
            history.append(model.cost(outcome.bound))
            added = model.add_covers(outcome.values) if self.cutting else 0
            added += sum([model.add_memory_row(t, k) for t, k in violated_points(model, R, S)])
            if self.cutting:
                added += self.add_cuts(violated_cuts(model.stages, R, S, settings.paths))
            if not added:
                return relaxed
            if incumbent is not None and relaxed.bound >= incumbent.cost * (1 - TOLERANCE):
                break
            least, before = _LEAST_PROGRESS * total, _PATIENCE
            if len(history) > before and history[-1] - history[-before] < least:
                break
        return relaxed


def violated_points(model: LivenessModel, R: np.ndarray, S: np.ndarray) -> list[tuple[int, int]]:
    """Points of each single stage that exceed the budget, in bytes or in whole blocks, among those without a row."""
    stages, condensed = model.stages, model.condensed
    runs = (R > 1e-9) & stages.single[:, None]
    for t, k in model.points:
        runs[stages.position[t], k] = False
    U = live_memory(condensed, R, S, stages)
    excess = np.where(runs, U / model.budget - 1, -math.inf)
    excess[excess <= TOLERANCE] = -math.inf
    for d in model.divisors:
        blocks = live_memory(condensed, R, S, stages, divisor=d)
        over = (blocks - ((model.budget - stages.base) // d)[:, None]) * runs
        excess = np.maximum(excess, np.where(over > _BLOCK_VIOLATION, over * d / model.budget, -math.inf))
    points = []
    for q in np.flatnonzero(excess.max(axis=1) > -math.inf):
        worst = np.argsort(-excess[q])[: model.settings.points]
        points += [(int(stages.first[q]), int(k)) for k in worst if excess[q, k] > -math.inf]
    return points


def refuse(model: LivenessModel, values: np.ndarray) -> bool:
    """Add rows that cut off an integral point, exactly; False if the point is within the budget to the byte."""
    R, S = (matrix.round() for matrix in model.matrices(values))
    stages = model.stages
    U = live_memory(model.condensed, R, S, stages)
    exceeded = np.argwhere((model.budget < U) & (R > 0) & stages.single[:, None])
    for q, k in exceeded.tolist():
        t = int(stages.first[q])
        if not model.add_memory_row(t, k):
            model.add_cover_row(t, k, R, S)
    return bool(len(exceeded))
