"""The integer program of half stages: a lower bound of every plan with transfers; exact on many small graphs.

Stage t ends with the first run of operation t, from sigma_t to e_t. The time line is cut into the halves (t, 0), from
e_{t-1} to sigma_t, of length w_t, and (t, 1), from sigma_t to e_t, of length C_t. The makespan is their sum.

    R[t,i]        operation i runs again in stage t
    X, Y[t,v]     group v is allocated at sigma_t, just after t's own allocation, and just before e_t
    P[t,h,v]      fetches of v that begin in half h;  p[t,h,v] the work of fetches done there, in whole fetches
    o[t,h,v]      the part of v's one send that is done there

Every row follows from the clock of any plan that sends a value once and runs operations in a stage in ascending order,
each at most once: what is there was there before, is computed, or begins to be fetched; an engine makes one copy at a
time, and has no more work than time; the bytes at sigma_t, at e_t, and between the runs of a stage keep the budget.
Without P, p and o it is the liveness formulation of Checkmate's problem. Each group has one value here (`one_by_one`):
of several, a part may be sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.search.renewals import Copies
from remat_explorer.solvers.solver_interface import Limits

MOST_OPERATIONS = 14  # of a graph for which the program is made: n ** 3 columns

Terms = list[tuple[int, float]]


def half_stage_bound(condensed: CondensedGraph, budget: int, copies: Copies, may_run: bool, limits: Limits) -> float:
    """What no plan within the budget takes less than; infinite where it is proven that there is none."""
    program = _HalfStages(condensed, budget, copies, may_run, limits.solver)
    outcome = program.problem.solve(limits.left, cancelled=limits.cancelled)
    once = condensed.graph.total_cost
    if outcome.status == "infeasible":
        again = _HalfStages(condensed, budget, copies, may_run, limits.solver)
        again.problem.without_presolve()  # HiGHS's has called feasible programs infeasible
        outcome = again.problem.solve(limits.left, cancelled=limits.cancelled)
        return math.inf if outcome.status == "infeasible" else once + max(0.0, outcome.bound)
    return once + max(0.0, outcome.bound)


class _HalfStages:
    def __init__(self, condensed: CondensedGraph, budget: int, copies: Copies, may_run: bool, solver: str) -> None:
        self.c, self.budget, self.copies, self.may_run = condensed, budget, copies, may_run
        self.problem = Milp(solver)
        self.producer = condensed.producer.tolist()
        self.sizes = condensed.bytes.tolist()
        self.sends = copies.possible
        n = condensed.n
        self.w = [self.problem.column(1.0, 0.0, math.inf) for _ in range(n)]
        self.R: dict[tuple[int, int], int] = {}
        self.X: dict[tuple[int, int], int] = {}
        self.Y: dict[tuple[int, int], int] = {}
        self.P: dict[tuple[int, int, int], int] = {}
        self.p: dict[tuple[int, int, int], int] = {}
        self.o: dict[tuple[int, int, int], int] = {}
        self.most: dict[tuple[int, int, int], int] = {}
        for t in range(n):
            self._columns(t)
        for t in range(n):
            self._stage(t)
            self._bytes(t)

    def _columns(self, t: int) -> None:
        column, c = self.problem.column, self.c
        for k in range(t):
            self.R[t, k] = column(0.0, 0.0, 1.0 if self.may_run else 0.0, integer=True)
        for v in range(c.groups):
            if self.producer[v] > t:
                continue
            fixed = float(self.producer[v] == t or v in c.inputs[t])
            self.X[t, v] = column(0.0, fixed, 1.0, integer=True)
            self.Y[t, v] = column(0.0, fixed, 1.0, integer=True)
            if self.producer[v] == t or not self.sends:
                continue
            for h in (0, 1):
                most = 1 if h else max(1, sum(j <= t for j in c.readers[v]))
                self.most[t, h, v] = most
                self.P[t, h, v] = column(0.0, 0.0, most, integer=True)
                self.p[t, h, v] = column(0.0, 0.0, most)
                self.o[t, h, v] = column()

    def _at_least(self, terms: Iterable[tuple[int, float]], right: float) -> None:
        columns, coefficients = zip(*terms, strict=True)
        self.problem.row(columns, coefficients, ">", right)

    def _until(self, t: int, h: int, v: int) -> Iterable[tuple[int, int, int]]:
        """The halves up to (t, h) in which group v may be copied."""
        for tau in range(self.producer[v] + 1, t + 1):
            for half in (0, 1):
                if (tau, half) <= (t, h):
                    yield tau, half, v

    def _under_way(self, t: int, h: int, v: int) -> Terms:
        """Fetches of v that have begun by the end of a half, less those that are done."""
        halves = list(self._until(t, h, v)) if self.sends else []
        return [(self.P[key], 1.0) for key in halves] + [(self.p[key], -1.0) for key in halves]

    def _stage(self, t: int) -> None:
        c, at_least = self.c, self._at_least
        old = [v for v in range(c.groups) if self.producer[v] < t]
        at_least([(self.w[t], 1.0), *((self.R[t, i], -float(c.costs[i])) for i in range(t))], 0.0)
        for v in old:
            X, Y = (self.X[t, v], 1.0), (self.Y[t, v], 1.0)
            before: Terms = [(self.Y[t - 1, v], 1.0), (self.R[t, self.producer[v]], 1.0)]
            got = before + ([(self.P[t, 0, v], 1.0)] if self.sends else [])
            at_least([*got, _minus(X)], 0.0)
            at_least([X, _minus(Y), *([(self.P[t, 1, v], 1.0)] if self.sends else [])], 0.0)
            q0, q1 = self._under_way(t, 0, v), self._under_way(t, 1, v)
            for j in c.readers[v]:
                if j < t:
                    at_least([*got, (self.R[t, j], -1.0), *map(_minus, q0)], 0.0)
            if not self.sends:
                continue
            at_least(q0, 0.0)
            at_least(q1, 0.0)
            at_least(map(_minus, q0), 0.0 if v in c.inputs[t] else -1.0)
            at_least(map(_minus, q1), -1.0)
            at_least([X, *map(_minus, q0)], 0.0)
            at_least([Y, *map(_minus, q1)], 0.0)
            at_least([*before, (self.o[t, 0, v], -1.0)], 0.0)
            at_least([X, (self.o[t, 1, v], -1.0)], 0.0)
            for h in (0, 1):
                sent = [(self.o[key], float(self.most[t, h, v])) for key in self._until(t, h, v)]
                at_least([*sent, (self.P[t, h, v], -1.0)], 0.0)
                at_least([*sent, (self.p[t, h, v], -1.0)], 0.0)
            if t == c.n - 1:
                at_least([(self.o[key], -1.0) for key in self._until(t, 1, v)], -1.0)
        if self.sends and old:
            self._engines(t, old)

    def _engines(self, t: int, old: list[int]) -> None:
        copies = self.copies
        for h in (0, 1):
            length: Terms = [] if h else [(self.w[t], 1.0)]
            least = -float(self.c.costs[t]) if h else 0.0
            out: Terms = [(self.o[t, h, v], -float(copies.out[v])) for v in old]
            back: Terms = [(self.p[t, h, v], -float(copies.back[v])) for v in old]
            for work in (out, back) if copies.duplex else (out + back,):
                self._at_least([*length, *work], least)
            one = [_minus(term) for v in old for term in self._under_way(t, h, v)]
            self._at_least(one, -1.0)

    def _bytes(self, t: int) -> None:
        c, room = self.c, self.budget - int(self.c.base[t])
        needed = c.transient - c.credit
        for at in (self.X, self.Y):
            there = [v for v in range(c.groups) if self.producer[v] <= t]
            if there:
                self._at_least([(at[t, v], -float(self.sizes[v])) for v in there], float(needed[t] - room))
            elif needed[t] > room:
                self._at_least([(self.w[t], 0.0)], 1.0)
        for k in range(t if self.may_run else 0):
            terms: Terms = [(self.R[t, k], -float(needed[k]))]
            for v in range(c.groups):
                p = self.producer[v]
                if p >= t:
                    continue
                A = self.problem.column()
                terms.append((A, -float(self.sizes[v])))
                late: Terms = [(self.P[t, 0, v], 1.0)] if self.sends else []
                late += [(self.R[t, p], 1.0)] if p > k else []
                self._at_least([(A, 1.0), (self.X[t, v], -1.0), *late], 0.0)
                for j in c.readers[v]:
                    if max(k, p) < j < t:
                        self._at_least([(A, 1.0), (self.R[t, j], -1.0), *late], 0.0)
                if p == k or v in c.inputs[k]:
                    self._at_least([(A, 1.0), (self.R[t, k], -1.0)], 0.0)
            self._at_least(terms, -float(room))


def _minus(term: tuple[int, float]) -> tuple[int, float]:
    return term[0], -term[1]
