"""A lower bound with transfers from a few moments: a linear program in a second, an integer one in what time is left.

The few-moments relaxation (`remat_explorer.solvers.bounds.few_moments`) asks only what is in memory just before the
ends of a few first runs, and what happens between them. With transfers, of each group v and each interval q:

    s[q,v] <= s[q-1,v] + x[q,p(v)] + f[q,v]            it was there, is computed again, or is fetched
    1 <= that, if a first run of the interval reads v;  x[q,o] <= that of every input of o
    f[q,v] <= sum of g[q',v] for q' <= q               no more is fetched than was sent
    g[q,v] <= s[q-1,v] + x[q,p(v)] + f[q,v]            what is sent is there;  sum of g[q,v] <= 1, since it is sent once
    D_q >= first runs + sum C x;  >= sum of out g;  >= sum of back f      an engine has no more work than time
    sum M s[q,v] + what the moment itself needs <= B

Each group has one value here (`one_by_one`); s, f and g are fractions of its bytes: a copy may be under way then.
The sum of all D_q is least. Values below 1e-4 of the budget are there for nothing.

In the integer program a value is there as a whole at a moment (a), or its fetch is under way (u, a fraction): then all
of its bytes are allocated (b), and the engine works on no other. x is 0 or 1.

    s = a + u,  u <= b,  a + b <= 1,  sum of b[q,v] over v <= 1,  b[q,v] <= sum of g;  sum M (a + b) + ... <= B

Moments are where keeping everything exceeds the budget: as much of the excess lies in each part of the graph.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.search.renewals import Copies
from remat_explorer.solvers.solver_interface import Limits

SMALL = 1e-4  # share of the budget below which a group takes no memory
MOMENTS = (4, 6, 8)  # how many the linear programs have, one try after another
WHOLE_MOMENTS = (4, 6, 8)  # the same of integer programs
_LINEAR = 0.25  # share of the time for the linear programs, at most
_PATIENCE = 0.6  # share of what is left for one integer program


def transfer_moments_bound(
    condensed: CondensedGraph, budget: int, copies: Copies, may_run: bool, limits: Limits
) -> float:
    """What no plan within the budget takes less than, in the unit of costs."""
    best = condensed.graph.total_cost
    linear, kept = limits.share(_LINEAR), _kept(condensed)
    for moments in _different(kept, budget, MOMENTS):
        if linear.over:
            break
        limits.tell(f"bounding from {len(moments)} moments with transfers")
        problem = _MomentsProgram(condensed, budget, copies, may_run, moments, limits.solver).problem
        outcome = problem.solve(linear.left, cancelled=limits.cancelled)
        if outcome.status == "optimal" and math.isfinite(outcome.bound):
            best = max(best, outcome.bound * (1 - 1e-7))
    for moments in _different(kept, budget, WHOLE_MOMENTS):
        if limits.over:
            break
        limits.tell(f"bounding from {len(moments)} moments with transfers, each value as a whole")
        problem = _MomentsProgram(condensed, budget, copies, may_run, moments, limits.solver, whole=True).problem
        outcome = problem.solve(_PATIENCE * limits.left, cancelled=limits.cancelled)
        if outcome.status != "infeasible" and math.isfinite(outcome.bound):  # HiGHS has called feasible ones infeasible
            best = max(best, outcome.bound * (1 - 1e-7))
    return best


def _kept(condensed: CondensedGraph) -> np.ndarray:
    """Bytes during each first run of a plan that keeps everything."""
    kept, held = np.zeros(condensed.n), 0
    sizes, last = condensed.bytes.tolist(), condensed.last_reader.tolist()
    for k in range(condensed.n):
        held += sum(sizes[v] for v in condensed.outputs[k])
        kept[k] = held + condensed.base[k] + condensed.transient[k]
        held -= sum(sizes[v] for v in {*condensed.inputs[k], *condensed.outputs[k]} if last[v] == k)
    return kept


def _different(kept: np.ndarray, budget: int, counts: tuple[int, ...]) -> list[list[int]]:
    """The moments of each count, none twice."""
    return list(map(list, dict.fromkeys(tuple(_moments(kept, budget, count)) for count in counts)))


def _moments(kept: np.ndarray, budget: int, count: int) -> list[int]:
    """The heaviest operation of each of so many parts with as much excess over the budget, and the last one.

    >>> _moments(np.array([1.0, 3.0, 5.0, 4.0, 3.0, 1.0]), 2, 2)
    [1, 2, 5]
    """
    excess = np.maximum(kept - budget, 0.0)
    until = np.cumsum(excess) / (excess.sum() or 1.0)
    chosen = {len(kept) - 1}
    for low, high in pairwise(np.linspace(0.0, 1.0, count + 1)):
        part = np.flatnonzero((until > low) & (until <= high + 1e-12) & (excess > 0))
        if len(part):
            chosen.add(int(part[kept[part].argmax()]))
    return sorted(chosen)


class _MomentsProgram:
    def __init__(
        self,
        condensed: CondensedGraph,
        budget: int,
        copies: Copies,
        may_run: bool,
        moments: list[int],
        solver: str,
        whole: bool = False,
    ) -> None:
        self.c, self.budget, self.copies, self.may_run, self.whole = condensed, budget, copies, may_run, whole
        self.problem = Milp(solver, relaxed=not whole)
        self.producer = condensed.producer.tolist()
        self.large = [v for v in range(condensed.groups) if condensed.bytes[v] > SMALL * budget]
        self.s: list[dict[int, list[int]]] = []  # columns whose sum is what has arrived of a group
        self.g: list[dict[int, int]] = []
        low = -1
        for high in moments:
            self._interval(low, high)
            low = high
        if self.g:
            for v in self.large:
                self._at_most([part[v] for part in self.g if v in part], [], 1.0)

    def _at_most(self, left: list[int], right: list[int], most: float = 0.0) -> None:
        """The sum of some columns is at most that of others, and ``most``."""
        if left:
            self.problem.row([*left, *right], [1.0] * len(left) + [-1.0] * len(right), "<", most)

    def _held(self, high: int) -> dict[int, list[int]]:
        """What of each group is there at a moment, and the budget there."""
        column, inputs = self.problem.column, set(self.c.inputs[high])
        mine = [v for v in self.large if self.producer[v] < high]
        if not self.whole:
            arrived = {v: [column(lower=float(v in inputs))] for v in mine}
            taken = [there for v in mine for there in arrived[v]]
        else:
            a = {v: column(lower=float(v in inputs), integer=True) for v in mine}
            b = {v: column(upper=float(v not in inputs), integer=True) for v in mine}
            arrived = {v: [a[v], column()] for v in mine}
            for v in mine:
                self._at_most([arrived[v][1]], [b[v]])
                self._at_most([a[v], b[v]], [], 1.0)
                self._at_most([b[v]], [part[v] for part in self.g if v in part])
            self._at_most(list(b.values()), [], 1.0)
            taken = [*a.values(), *b.values()]
        fixed = int(self.c.base[high] + self.c.output_bytes[high] + self.c.transient[high] - self.c.credit[high])
        sizes = [self.c.bytes[v] / self.budget for v in mine] * (2 if self.whole else 1)
        self.problem.row(taken, sizes, "<", (self.budget - fixed) / self.budget)
        return arrived

    def _interval(self, low: int, high: int) -> None:
        c, problem, producer, at_most = self.c, self.problem, self.producer, self._at_most
        first = float(c.costs[low + 1 : high + 1].sum())
        lasts = problem.column(1.0, first, math.inf)  # D_q
        before = self.s[-1] if self.s else {}
        self.g.append({v: problem.column() for v in self.large if producer[v] <= high})
        self.s.append(self._held(high))
        old = [v for v in self.large if producer[v] < low]  # what an interval began with, or had to get
        f = {v: problem.column() for v in old}
        x = {o: problem.column(integer=self.whole) for o in range(low + 1)} if self.may_run else {}
        problem.row([*x.values(), lasts], [*(c.costs[o] for o in x), -1.0], "<", -first)
        read = c.read_from(low + 1, high)
        for v in old:
            got = [*before[v], f[v], *([x[producer[v]]] if self.may_run else [])]
            if read[v]:
                problem.row(got, [-1.0] * len(got), "<", -1.0)
            if v in self.s[-1]:
                at_most(self.s[-1][v], got)
            for o in c.readers[v] if self.may_run else ():
                if o <= low:
                    at_most([x[o]], got)
            at_most([f[v]], [part[v] for part in self.g if v in part])
            at_most([self.g[-1][v]], got)
        out = [*self.g[-1].values()], [self.copies.out[v] for v in self.g[-1]]
        back = [*f.values()], [self.copies.back[v] for v in f]
        for columns, times in (out, back) if self.copies.duplex else ((out[0] + back[0], out[1] + back[1]),):
            problem.row([*columns, lasts], [*times, -1.0], "<", 0.0)
