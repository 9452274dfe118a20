"""A lower bound with transfers from a few moments: a linear program, in a second for hundreds of operations.

The few-moments relaxation (`remat_explorer.solvers.bounds.few_moments`) asks only what is in memory just before the
ends of a few first runs, and what happens between them. With transfers, of each group v and each interval q:

    s[q,v] <= s[q-1,v] + x[q,p(v)] + f[q,v]            it was there, is computed again, or is fetched
    1 <= that, if a first run of the interval reads v;  x[q,o] <= that of every input of o
    f[q,v] <= sum of g[q',v] for q' <= q               no more is fetched than was sent
    D_q >= first runs + sum C x;  >= sum of out g;  >= sum of back f      an engine has no more work than time
    sum M s[q,v] + what the moment itself needs <= B

s, f and g are fractions of the group's bytes: a copy may be under way at a moment, and of several values a part may be
sent. So a whole group has one latency only: any part of it has at least that share of one.
The sum of all D_q is least. Values below 1e-4 of the budget are there for nothing.
"""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.search.renewals import Copies

SMALL = 1e-4  # share of the budget below which a group takes no memory
MOMENTS = (8, 24)  # how many there are, one try after another


def transfer_moments_bound(condensed: Condensed, budget: int, copies: Copies, may_run: bool, limits: Limits) -> float:
    """What no plan within the budget takes less than, in the unit of costs."""
    best = condensed.graph.total_cost
    for count in MOMENTS:
        if limits.over:
            break
        limits.tell(f"bounding from {count} moments with transfers")
        problem = _moments_program(condensed, budget, copies, may_run, _moments(condensed, count), limits.solver)
        outcome = problem.solve(limits.left, cancelled=limits.cancelled)
        if outcome.status == "optimal" and math.isfinite(outcome.bound):
            best = max(best, outcome.bound * (1 - 1e-7))
    return best


def _moments(condensed: Condensed, count: int) -> list[int]:
    """The heaviest operation of each of so many parts of a run that keeps everything, and the last one."""
    kept, held = np.zeros(condensed.n), 0
    sizes, last = condensed.bytes.tolist(), condensed.last_reader.tolist()
    for k in range(condensed.n):
        held += sum(sizes[v] for v in condensed.outputs[k])
        kept[k] = held + condensed.base[k] + condensed.transient[k]
        held -= sum(sizes[v] for v in {*condensed.inputs[k], *condensed.outputs[k]} if last[v] == k)
    parts = [part for part in np.array_split(np.arange(condensed.n), count) if len(part)]
    return sorted({int(part[kept[part].argmax()]) for part in parts} | {condensed.n - 1})


def _moments_program(
    condensed: Condensed, budget: int, copies: Copies, may_run: bool, moments: list[int], solver: str
) -> Milp:
    problem = Milp(solver, relaxed=True)
    costs, sizes, producer = condensed.costs, condensed.bytes, condensed.producer.tolist()
    large = [v for v in range(condensed.groups) if sizes[v] > SMALL * budget]
    s: list[dict[int, int]] = []
    g: list[dict[int, int]] = []
    low = -1
    for q, high in enumerate(moments):
        first = float(costs[low + 1 : high + 1].sum())
        lasts = problem.column(1.0, first, math.inf)  # D_q
        inputs = set(condensed.inputs[high])
        s.append({v: problem.column(lower=float(v in inputs)) for v in large if producer[v] < high})
        g.append({v: problem.column() for v in large if producer[v] <= high})
        old = [v for v in large if producer[v] < low]  # what an interval began with, or had to get
        f = {v: problem.column() for v in old}
        x = {o: problem.column() for o in range(low + 1)} if may_run else {}
        fixed = int(condensed.base[high] + condensed.output_bytes[high] + condensed.transient[high])
        fixed -= int(condensed.credit[high])
        room = (budget - fixed) / budget
        problem.row(list(s[q].values()), [sizes[v] / budget for v in s[q]], "<", room)
        problem.row([*x.values(), lasts], [*(costs[o] for o in x), -1.0], "<", -first)
        read = condensed.read_from(low + 1, high)
        for v in old:
            got = [s[q - 1][v], f[v], *([x[producer[v]]] if may_run else [])]
            minus = [-1.0] * len(got)
            if read[v]:
                problem.row(got, minus, "<", -1.0)
            if v in s[q]:
                problem.row([s[q][v], *got], [1.0, *minus], "<", 0.0)
            if may_run:
                for o in condensed.readers[v]:
                    if o <= low:
                        problem.row([x[o], *got], [1.0, *minus], "<", 0.0)
            sent = [part[v] for part in g if v in part]
            problem.row([f[v], *sent], [1.0, *([-1.0] * len(sent))], "<", 0.0)
        out = ([*g[q].values()], [copies.least_out[v] for v in g[q]])
        back = ([*f.values()], [copies.least_back[v] for v in f])
        for columns, times in (out, back) if copies.duplex else ((out[0] + back[0], out[1] + back[1]),):
            problem.row([*columns, lasts], [*times, -1.0], "<", 0.0)
        low = high
    return problem
