"""The few-moments relaxation with choices: the linear or integer program for chosen moments.

In: a problem, a budget, and a few *moments* t_1 < ... < t_K, first runs of mandatory operations. Out: a program whose
optimum is a lower bound on the cost of every schedule. With the letters of `bounds.few_moments`:

1. Variables: s, what is in memory at a moment; x, the ways that run again between two moments; and d, the way of each
   first run: sum over l of d[o,l] = 1.
2. A group v is available in an interval from t_a to t_b, A(v), if it is in memory at the start, or a first run or a run
   again writes it (what several ways have in common is asked for as in `monet.availability`):

       A(v) = s[a,v] + sum over l that write v of d[p(v),l] + sum over l that write v of x[p(v),l]

3. What is read is available, and so is what is in memory at the end:

       first runs:   sum over l that read v of d[o,l] <= A(v)     for o in (t_a, t_b]
       runs again:   x[o,l] <= A(v)  for v read by l              at the end:  s[b,v] <= A(v)

4. Memory is limited at the moments alone; elsewhere ways that read more, write less and cost more are left out.

So no schedule is cut off: a later first run asks for v only if its way reads v. Optional operations only run again.
That some ways may run in place only is not asked for, so the bound holds with that rule, and without it.
"""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.few_moments import ALWAYS_KEPT
from remat_explorer.solvers.linear_expression import ONE, ZERO, LinearExpression, require, total
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import Availability, CondensedImplementation, Tables


class ChoiceMoments:
    """The relaxation for chosen moments.

    Args:
        tables: of the problem.
        budget: bytes, resident bytes included.
        moments: mandatory operations, ascending.
        milp: an empty problem to build into.

    Attributes:
        d: by operation, column of each way of the first run, by code; -1 where there is no choice.
        during, after: by moment q, "in memory while t_q runs", and "once it has run", by group.
        x: by interval, which begins with moment q - 1, column by (operation, code).
        constant: the objective's part without columns.
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
