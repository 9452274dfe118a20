"""A lower bound on the cost of all joint schedules, and the implementations that it would choose.

Rounds of the few-moments relaxation with choices: moments are added where memory seems to be short, first for its
linear program, then with s and d binary. The best bound of all rounds stands.

*The program* for chosen moments (`ChoiceMoments`). In: a problem, a budget, and a few *moments* t_1 < ... < t_K, first
runs of mandatory operations. Out: a program whose optimum is a lower bound on the cost of every schedule. With the
letters of `bounds.few_moments`:

1. Variables: s, what is in memory at a moment; x, the ways that run again between two moments; and d, the way of each
   first run: sum over l of d[o,l] = 1.
2. A group v is available in an interval from t_a to t_b, A(v), if it is in memory at the start, or a first run or a run
   again writes it (what several ways have in common is asked for as in `condensed_choices.Availability`):

       A(v) = s[a,v] + sum over l that write v of d[p(v),l] + sum over l that write v of x[p(v),l]

3. What is read is available, and so is what is in memory at the end:

       first runs:   sum over l that read v of d[o,l] <= A(v)     for o in (t_a, t_b]
       runs again:   x[o,l] <= A(v)  for v read by l              at the end:  s[b,v] <= A(v)

4. Memory is limited at the moments alone; elsewhere ways that read more, write less and cost more are left out.

So no schedule is cut off: a later first run asks for v only if its way reads v. Optional operations only run again.
That some ways may run in place only is not asked for, so the bound holds with that rule, and without it.

*Memory as the objective* (`LeastMemory`), for a limit on the cost: with s, x and d and the rows between moments as
before, and for each moment t

    sum over v of M_v s[t,v] + sum over l of (outputs + transient - overwritten) d[t,l] + base_t <= z,
    sum of C d + sum of C x <= limit,

minimize z. Every schedule whose cost keeps to the limit, with whatever implementations, has a peak of at least that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.bounds.few_moments import ALWAYS_KEPT, solve_in_rounds
from remat_explorer.solvers.linear_expression import ONE, ZERO, LinearExpression, require, total
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.monet.condensed_choices import Availability, CondensedImplementation, Tables
from remat_explorer.solvers.solver_interface import Limits


class ChoiceMoments:
    """The relaxation for chosen moments.

    ``d`` has by operation the column of each way of the first run, by code, -1 where there is no choice; ``during`` and
    ``after`` by moment q "in memory while t_q runs" and "once it has run", by group; ``x`` by interval, which begins
    with moment q - 1, the column by (operation, code).
    """

    def __init__(self, tables: Tables, budget: int, moments: list[int], milp: Milp) -> None:
        self.tables, self.budget, self.moments, self.milp = tables, budget, moments, milp
        self.problem = tables.problem
        graph = self.problem.graph
        self.stage = graph.first_stage
        self.cost_scale = graph.n / graph.total_cost if graph.total_cost else 1.0
        self.tiny = (self.problem.bytes < ALWAYS_KEPT * budget) & tables.always  # a mask, too, must be made
        self.sizes = np.where(self.tiny, 0, self.problem.bytes)
        self.unit = float(max(self.problem.bytes.max(initial=0), 1))
        self.d: list[dict[int, int]] = [{} for _ in range(graph.n)]
        self.during: list[dict[int, LinearExpression]] = []
        self.after: list[dict[int, LinearExpression]] = []
        self.x: list[dict[tuple[int, int], int]] = []
        self.constant = 0.0

    def build(self, limits: Limits) -> bool:
        """Add everything; False if the time ran out before the end."""
        self._add_first_runs()
        last = len(self.moments)
        for q in range(-1, last):
            self._add_moment(q)
        for q in range(-1, last):
            self._add_interval(q, q + 1, self.x[q + 1])
            if 0 <= q < last - 1:  # the rest of the run as one interval: what is read in it is paid for once
                self._add_interval(q, last, self._ever_after(q))
            if limits.over:
                return False
        for q in range(last):
            self._limit_memory(q)
        return True

    def _add_first_runs(self) -> None:
        moments = set(self.moments)
        for k in self.problem.graph.mandatory.tolist():
            ways = self.tables.first[k] if k in moments else self.tables.plain[k]
            if len(ways) == 1:
                self.d[k] = {ways[0].code: -1}
                self.constant += ways[0].cost
            else:
                self.d[k] = {way.code: self._column(way.cost, True) for way in ways}
                self.milp.row(list(self.d[k].values()), [1.0] * len(ways), "=", 1.0)

    def _column(self, cost: float = 0.0, integer: bool = False) -> int:
        return self.milp.column(cost=cost * self.cost_scale, integer=integer)

    def chosen(self, k: int, v: int, reading: bool) -> LinearExpression:
        """Whether the first run of k reads v, or writes it."""
        parts = []
        for way in self.tables.first[k]:
            column = self.d[k].get(way.code)
            if column is not None and v in (way.inputs if reading else way.outputs):
                parts.append(ONE if column < 0 else LinearExpression.of(column))
        return total(parts)

    def _add_moment(self, q: int) -> None:
        """Columns of moment q, and of the interval that begins with it; q = -1 is the beginning."""
        tables, problem, n = self.tables, self.problem, self.problem.graph.n
        t = self.moments[q] if q >= 0 else -1
        end = self.moments[q + 1] if q + 1 < len(self.moments) else n - 1
        needed = np.zeros(problem.groups, dtype=bool)
        again: list[int] = []
        for k in range(n - 1, -1, -1):
            useful = bool(needed[tables.writes[k]].any())
            late = k > t and tables.mandatory[k]
            if useful and (k <= t or (k < end and (not tables.mandatory[k] or tables.differ[k]))):
                again.append(k)
            if late or useful:
                needed[tables.reads[k]] = True
        during: dict[int, LinearExpression] = {}
        after: dict[int, LinearExpression] = {}
        if q >= 0:
            taken = {way.overwritten for way in tables.first[t] if way.credit}
            for v in np.flatnonzero(needed & (problem.producer < t)).tolist():
                after[v] = ONE if self.tiny[v] else LinearExpression.of(self._column(integer=True))
            during = dict(after)
            for v in tables.reads[t]:
                read = self.chosen(t, v, reading=True)
                if read.constant or self.tiny[v]:
                    during[v] = ONE
                    if v not in taken and v in after:
                        after[v] = ONE
                    continue
                if v not in during or v in taken:
                    during[v] = LinearExpression.of(self._column(integer=True))
                    if v in after:
                        self._at_most(after[v], during[v])
                self._at_most(read, during[v])
        self.during.append(during)
        self.after.append(after)
        self.x.append({})
        for k in sorted(again):
            if k == t and not tables.differ[k]:
                continue
            if q < 0 and tables.mandatory[k] and not tables.differ[k]:
                continue
            for way in tables.again[k]:
                self.x[-1][k, way.code] = self._column(way.cost)

    def _ever_after(self, q: int) -> dict[tuple[int, int], int]:
        """Columns for "runs again at any time after moment q": at most the sum over the intervals, and at most 1."""
        ever: dict[tuple[int, int], int] = {}
        for key in sorted({key for columns in self.x[q + 1 :] for key in columns}):
            ever[key] = self._column()
            later = [LinearExpression.of(columns[key]) for columns in self.x[q + 1 :] if key in columns]
            self._at_most(LinearExpression.of(ever[key]), total(later))
        return ever

    def _add_interval(self, a: int, b: int, again: dict[tuple[int, int], int]) -> None:
        """What must hold from moment a to moment b, where ``again`` are the columns of what runs again."""
        tables, problem = self.tables, self.problem
        t = self.moments[a] if a >= 0 else -1
        end = self.moments[b] if b < len(self.moments) else problem.graph.n - 1

        def present(v: int) -> LinearExpression | None:
            k = int(problem.producer[v])
            if self.tiny[v] or (tables.always[v] and k >= t):
                return None
            held = self.after[a + 1].get(v, ZERO) if k < t and a >= 0 else ZERO
            return held + self.chosen(k, v, reading=False) if tables.mandatory[k] and t <= k <= end else held

        ways = {column: self._way(*key) for key, column in again.items()}
        available = Availability(ways, present, self.sizes)
        available.add_columns(self.milp, self._column)
        seen: set[int] = set()
        for k in range(t + 1, end + 1):
            if not tables.mandatory[k]:
                continue
            for v in tables.reads[k]:
                terms = available.of(v)
                if terms is None or v in seen:
                    continue
                asked = self.chosen(k, v, reading=True)
                if asked.constant:
                    seen.add(v)
                self._at_most(asked, terms)
            for groups in available.common([way for way in tables.first[k] if way.code in self.d[k]]):
                if len(groups) > 1 and (terms := available.of_any(groups)) is not None:
                    self._at_most(ONE, terms)
        for column, way in ways.items():
            for v in way.inputs:
                if (terms := available.of(v)) is not None:
                    self._at_most(LinearExpression.of(column), terms)
        if b < len(self.moments):
            for v, held in self.during[b + 1].items():
                if v not in seen and problem.producer[v] < end and (terms := available.of(v)) is not None:
                    self._at_most(held, terms)

    def _way(self, k: int, code: int) -> CondensedImplementation:
        return next(way for way in self.problem.ways[k] if way.code == code)

    def _limit_memory(self, q: int) -> None:
        """What is in memory while t_q runs, and what it adds, less what it overwrites, is within the budget."""
        problem, t = self.problem, self.moments[q]
        room = float(self.budget - int(problem.base[self.stage[t]]))
        parts = [held * float(problem.bytes[v]) for v, held in self.during[q + 1].items() if not self.tiny[v]]
        for way in self.tables.first[t]:
            if way.code not in self.d[t]:
                continue
            column, need = self.d[t][way.code], float(problem.during(way))
            if way.credit and not self.tiny[way.overwritten]:
                after = self.after[q + 1].get(way.overwritten, ZERO)
                if after.constant < 1:
                    saved = LinearExpression.of(self._column())
                    self._at_most(saved + after, ONE)
                    if column >= 0:
                        self._at_most(saved, LinearExpression.of(column))
                    parts.append(saved * -float(way.credit))
            parts.append((ONE if column < 0 else LinearExpression.of(column)) * need)
        held = total(parts)
        in_units = LinearExpression(0.0, held.columns, tuple([size / self.unit for size in held.weights]))
        self._limit(in_units, (room - held.constant) / self.unit)

    def _limit(self, held: LinearExpression, room: float) -> None:
        """What is held, less what is overwritten, is at most ``room``, all in units."""
        require(self.milp, [(1.0, held)], "<", room)

    def _at_most(self, less: LinearExpression, more: LinearExpression) -> None:
        require(self.milp, [(1.0, less), (-1.0, more)], "<")

    def cost(self, objective: float) -> float:
        """The cost, in the graph's unit, that a value of the objective stands for."""
        return float(self.constant + objective / self.cost_scale)


FIRST_MOMENTS = 6  # moments at first
_MOST_MOMENTS = 16  # no round follows the linear program with more moments than this
_MORE_INTEGRAL = 4  # by how many more the integral relaxation may have
_ADDED_MOMENTS = 2  # moments that a round adds, at most
INTEGRAL_GAP = 1e-3  # relative gap of the integral relaxation: its bound counts, not its optimum


@dataclass(frozen=True)
class ChoiceBound:
    """What a round says."""

    bound: float  # cost below which no schedule is; infinity if the budget is proven infeasible
    moments: tuple[int, ...] = ()
    d: dict[int, dict[int, float]] = field(default_factory=dict)  # by operation and code, shares of first runs
    held: np.ndarray | None = None  # what is in memory at each moment, between 0 and 1, of shape (moments, groups)

    def choice(self) -> dict[int, int]:
        """The way of each first run that has the largest share."""
        return {k: max(shares, key=lambda code: shares[code]) for k, shares in self.d.items()}


class RelaxationWithChoices:
    """The relaxation of one problem at one budget, round after round.

    ``best`` has the highest bound so far, and the last round that has a point.
    """

    def __init__(self, tables: Tables, budget: int) -> None:
        self.tables, self.budget = tables, budget
        self.moments: Sequence[int] = first_moments(tables, budget)
        self.best = ChoiceBound(tables.problem.least_cost)

    def improve(
        self, limits: Limits, integral: bool, incumbent: Schedule | None = None, columns: float = math.inf
    ) -> ChoiceBound:
        """Rounds until no moment is added, the bound meets the incumbent's cost, or the work or the time is used up.

        ``columns`` limits those of the programs of all rounds together; the round that reaches it is the last one.
        """
        most = _MOST_MOMENTS + _MORE_INTEGRAL * integral
        for problem, outcome, following in solve_in_rounds(
            self.moments,
            lambda moments: self._problem(moments, Milp(limits.solver, limits.threads, relaxed=not integral)),
            limits,
            lambda problem, outcome, values: estimated_memory(problem, values) - self._memory(problem, outcome),
            self.budget,
            _ADDED_MOMENTS,
            gap=self._gap,
        ):
            columns -= problem.milp.columns
            self.moments = following
            relaxed = self._relaxed(problem, outcome)
            last = relaxed if relaxed.held is not None else self.best
            self.best = replace(last, bound=max(self.best.bound, relaxed.bound))
            limits.tell("bounding from a few moments, with choices", incumbent, self.best.bound)
            if math.isinf(relaxed.bound) or len(following) > most or columns <= 0:
                break
            if incumbent is not None and self.best.bound >= incumbent.cost * (1 - 1e-7):
                break
        return self.best

    def _relaxed(self, problem: ChoiceMoments, outcome: MilpOutcome) -> ChoiceBound:
        """What a round says."""
        moments = tuple(problem.moments)
        if outcome.status == "infeasible":
            return ChoiceBound(math.inf, moments)
        bound = self._bound(problem, outcome)
        if outcome.values is None:
            return ChoiceBound(bound, moments)
        return ChoiceBound(bound, moments, *presence(problem, outcome.values))

    def _problem(self, moments: list[int], milp: Milp) -> ChoiceMoments:
        return ChoiceMoments(self.tables, self.budget, moments, milp)

    def _gap(self, problem: ChoiceMoments) -> float:
        """How far a round's objective may be from its bound."""
        return INTEGRAL_GAP * self.tables.problem.graph.total_cost * problem.cost_scale

    def _bound(self, problem: ChoiceMoments, outcome: MilpOutcome) -> float:
        return max(problem.cost(outcome.bound), self.tables.problem.least_cost)

    def _memory(self, problem: ChoiceMoments, outcome: MilpOutcome) -> float:
        """Bytes above which memory is short at a round's point."""
        return float(self.budget)


def presence(problem: ChoiceMoments, values: np.ndarray) -> tuple[dict[int, dict[int, float]], np.ndarray]:
    """The shares of first runs' ways, and what is held at each moment, at a point."""
    extended = np.append(values, 1.0)  # so that column -1 reads 1
    d = {
        k: {code: float(extended[column]) for code, column in problem.d[k].items()}
        for k in problem.problem.graph.mandatory.tolist()
    }
    held = np.zeros((len(problem.moments), problem.problem.groups))
    for q in range(len(problem.moments)):
        for v, present in problem.during[q + 1].items():
            held[q, v] = min(1.0, present.at(values))
    return d, held


def first_moments(tables: Tables, budget: int, count: int = FIRST_MOMENTS) -> list[int]:
    """Up to ``count`` operations with the largest own needs, spread over where default execution exceeds the budget."""
    problem, graph = tables.problem, tables.problem.graph
    change = np.zeros(graph.n + 1)
    need = np.zeros(graph.n)
    last: dict[int, int] = {}
    for t, k in enumerate(graph.mandatory.tolist()):
        way = tables.first[k][0]
        last |= dict.fromkeys((*way.inputs, *way.outputs), k)
        change[k] += problem.bytes[list(way.outputs)].sum()
        need[k] = problem.base[t] + way.transient - way.credit
    for v, k in last.items():
        change[k + 1] -= problem.bytes[v]
    profile = np.cumsum(change)[:-1] + need
    over = graph.mandatory[profile[graph.mandatory] > budget]
    if not len(over):
        return [int(graph.mandatory[profile[graph.mandatory].argmax()])]
    own = np.zeros(graph.n)
    own[graph.mandatory] = problem.least_memory
    return sorted({int(part[own[part].argmax()]) for part in np.array_split(over, min(count, len(over)))})


def estimated_memory(problem: ChoiceMoments, values: np.ndarray) -> np.ndarray:
    """A guess of the memory at every mandatory operation, from the moments around it; it only steers the search."""
    d, held = presence(problem, values)
    tables, condensed, moments = problem.tables, problem.problem, problem.moments
    graph, groups, producer = condensed.graph, condensed.groups, condensed.producer
    estimate = np.zeros(graph.n)
    ways = {k: [(way, d[k][way.code]) for way in tables.first[k] if way.code in d[k]] for k in d}
    for q in range(-1, len(moments)):
        start = moments[q] if q >= 0 else -1
        end = moments[q + 1] if q + 1 < len(moments) else graph.n
        at_end = held[q + 1] if q + 1 < len(moments) else np.zeros(groups)
        again, made = np.zeros(groups), np.zeros(groups)  # by runs again of what is old, by anything else
        for (k, code), column in problem.x[q + 1].items():
            outputs = list(problem._way(k, code).outputs)
            if k < start:
                again[outputs] = np.maximum(again[outputs], values[column])
            else:
                made[outputs] += values[column]
        for k in range(max(start, 0), min(end, graph.n)):
            for way, share in ways.get(k, ()):
                made[list(way.outputs)] += share
        needed = np.zeros(groups)
        for k in range(min(end, graph.n - 1), start, -1):
            if k not in ways:
                continue
            here = np.zeros(groups)
            for way, share in ways[k]:
                here[list(way.inputs)] += share
            if k < end:
                later = np.maximum(needed, at_end)
                old = producer <= start
                young = np.where(producer < k, np.minimum(later, np.clip(made, 0, 1)), 0.0)
                present = np.maximum(np.where(old, np.clip(np.maximum(later, here) - again, 0, 1), young), here)
                estimate[k] = condensed.base[graph.first_stage[k]] + present @ condensed.bytes
                for way, share in ways[k]:
                    after = later[way.overwritten] if way.credit else 1.0
                    estimate[k] += share * condensed.during(way) - way.credit * min(share, 1 - after)
            needed = np.maximum(needed, here)
    return estimate


FIRST_BUDGET = 0.4  # of what keeping everything takes: first moments are where memory is short of that
TOLERANCE = 1e-6  # relative, of a back end: a bound is lowered by that


class LeastMemoryMoments(ChoiceMoments):
    """The relaxation for chosen moments; column ``z`` is the memory, in units, and the objective.

    More than ``most`` bytes are of no interest.
    """

    def __init__(
        self, tables: Tables, most_cost: float, moments: list[int], milp: Milp, most: float = math.inf
    ) -> None:
        least = int(tables.problem.least_memory.max())
        super().__init__(tables, least, moments, milp)
        self.most_cost = most_cost
        self.prices: list[tuple[int, float]] = []
        self.z = milp.column(cost=1.0, lower=least / self.unit, upper=max(least, most) / self.unit)

    def build(self, limits: Limits) -> bool:
        """Add everything; False if the time ran out before the end."""
        if not super().build(limits):
            return False
        columns, costs = [column for column, _ in self.prices], [cost for _, cost in self.prices]
        self.milp.row(columns, costs, "<", (self.most_cost - self.constant) * self.cost_scale)
        return True

    def memory(self, objective: float) -> float:
        """The bytes that a value of the objective stands for."""
        return objective * self.unit

    def _column(self, cost: float = 0.0, integer: bool = False) -> int:
        column = self.milp.column(integer=integer)
        if cost:
            self.prices.append((column, cost * self.cost_scale))
        return column

    def _limit(self, held: LinearExpression, room: float) -> None:
        """What is held is at most z, where ``room`` is counted from a budget of its own."""
        parts = [(1.0, held), (-1.0, LinearExpression.of(self.z))]
        require(self.milp, parts, "<", room - self.budget / self.unit)


class LeastMemory(RelaxationWithChoices):
    """Rounds of the relaxation for one limit on the cost; its bounds are bytes.

    Only less memory than ``most`` is of interest, that of the best schedule that is known. An infinite bound says that
    no schedule does with less.
    """

    def __init__(self, tables: Tables, most_cost: float, keep_everything: int, moments: Sequence[int] = ()) -> None:
        least = int(tables.problem.least_memory.max())
        self.tables, self.budget, self.most_cost = tables, least, most_cost
        self.most = float(keep_everything)
        short = max(least, int(FIRST_BUDGET * keep_everything))
        self.moments = moments or first_moments(tables, short)
        self.best = ChoiceBound(float(least))

    def _problem(self, moments: list[int], milp: Milp) -> LeastMemoryMoments:
        return LeastMemoryMoments(self.tables, self.most_cost, moments, milp, self.most)

    def _gap(self, problem: ChoiceMoments) -> float:
        return INTEGRAL_GAP * self.best.bound / problem.unit

    def _bound(self, problem: ChoiceMoments, outcome: MilpOutcome) -> float:
        return max(float(self.budget), outcome.bound * problem.unit * (1 - TOLERANCE))

    def _memory(self, problem: ChoiceMoments, outcome: MilpOutcome) -> float:
        assert outcome.objective is not None
        return outcome.objective * problem.unit
