"""A bound for chains at small budgets, in closed form: how often layers must run again so that a step can be reversed.

*The chain in a graph.* Forward operations f_0, f_1, ..., where each reads a value of the one before it, and a thread of
backward operations, where each reads a value of the one before it, too. Some of the thread's operations *visit* the
chain: they read values of f_m, each visit of a smaller m than the visit before. Whatever computes the thread's last
operation has, traced back, one run of each of its operations, in order; so the chain is visited in order, however often
gradients are computed again. Only values of f_m that f_{m+1} or a visit reads are looked at: m is *stored* while one of
them is in memory, and f_m is *placed* when it runs while m is not stored, for which m - 1 must be stored.

*Lemma.* Let K positions be visited, at most c >= 1 positions up to m be stored at each visit of m, and let no position
be placed more than r times. Then K <= beta(c, r) - 1, with beta(c, r) = C(c + r, c).

*Proof*, by induction on c and r. A position without a visit is left out first: merged with the one below it, which is
then stored while either is, placed no more often than that was, and visited where that was; position 0 can be left out
without more, since what is above it then needs nothing. For r = 0 nothing is visited. For c = 1, a visit of m finds
nothing stored below m, so position 0 is placed again for each visit: K <= r. Else call i *covered* if, from its first
placing until its visit, a position up to i is stored at all times.

Where no position is covered, the last one is not: at some time before all visits every position was placed and none is
stored. What follows visits all of them, and places each at most r - 1 times: K <= beta(c, r - 1) - 1. Else let i be the
smallest covered position. Positions above i are placed after i was, and visited before i is, so that one of the c is
taken up to i: there are at most beta(c - 1, r) - 1 of them. Position i - 1 is not covered: at some time after its first
placing and before its visit no position below i is stored, though each was placed. What follows visits all of them, and
places each at most r - 1 times: there are at most beta(c, r - 1) - 1. Together with i,
K <= beta(c - 1, r) + beta(c, r - 1) - 1 = beta(c, r) - 1.

*Bound.* Positions that are placed more often than r times can be left out in the same way, so at most beta(c, r) - 1 of
the K positions run r times or fewer. At least K + 1 - beta(c, r) run more often than r times, for every r >= 1, and the
smallest costs of so many are added to what every operation costs once. For unit costs and sizes that is t(l, c) of
REVOLVE with l = K + 1, which its schedules attain.

Source: the recurrence is that of Griewank, Achieving logarithmic growth of temporal and spatial complexity in reverse
automatic differentiation (Optimization Methods and Software 1, 1992), where steps are not stored in between and
gradients never run again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.once import once
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.heuristics.binomial import beta
from remat_explorer.solvers.heuristics.chain import require_chain


def binomial_bound(condensed: Condensed, budget: int) -> float:
    """A cost that no schedule of a chain is below; of other graphs, what every operation costs once.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.

    Returns:
        Of everything that computes the graph, gradients computed again and orders of any kind included; infinity where
        a visit exceeds the budget by itself.

    >>> from remat_explorer.instances import linear
    >>> [binomial_bound(Condensed.of(linear(32)), budget) for budget in (6, 12, 35)]
    [111.0, 87.0, 65.0]
    """
    once = condensed.graph.total_cost
    path, visiting = _visited_chain(condensed)
    if not visiting:
        return once
    stored = _most_stored(condensed, path, visiting, budget)
    if stored < 1:
        return float("inf")
    costs = np.sort(condensed.costs[[path[m] for m in visiting]]).cumsum()
    bound, r = once, 1
    while (again := len(visiting) + 1 - beta(stored, r)) > 0:
        bound += float(costs[again - 1])
        r += 1
    return bound


@once
def _visited_chain(condensed: Condensed) -> tuple[list[int], dict[int, list[int]]]:
    """The chain, and what visits its positions; the same at every budget."""
    path = _path(condensed)
    return path, _visits(condensed, path)


def _path(condensed: Condensed) -> list[int]:
    """f_0, f_1, ... of a chain whose operations pass on what has to be stored; of other graphs nothing."""
    try:
        path = require_chain(condensed.graph, "")
    except SolverError:  # no chain
        return []
    passed = all(path[m - 1] in condensed.producer[list(condensed.inputs[k])] for m, k in enumerate(path) if m)
    return path if passed else []


@dataclass(frozen=True)
class _Thread:
    """A thread of backward operations up to one of them: its visits so far, and which operation came before.

    Attributes:
        visited: number of positions that it visits.
        lowest: the last one of them; of none, the length of the path.
        visits: the position that this operation visits, or None.
        before: the operation before it, or None.
    """

    visited: int
    lowest: int
    visits: int | None = None
    before: int | None = None


def _visits(condensed: Condensed, path: list[int]) -> dict[int, list[int]]:
    """Visited positions, and the operations that visit each, of a thread with the most positions."""
    position = {k: m for m, k in enumerate(path)}
    threads: dict[int | None, _Thread] = {None: _Thread(0, len(path))}
    for k in range(len(path), condensed.n):
        producers = [int(condensed.producer[v]) for v in condensed.inputs[k]]
        before = max((j for j in producers if j in threads), key=lambda j: threads[j].visited, default=None)
        visited, lowest = threads[before].visited, threads[before].lowest
        visits = max((m for j in producers if (m := position.get(j, lowest + 1)) <= lowest), default=None)
        if visits is None:
            threads[k] = _Thread(visited, lowest, None, before)
        else:
            threads[k] = _Thread(visited + (visits < lowest), visits, visits, before)
    visiting: dict[int, list[int]] = {}
    last = max(threads, key=lambda k: threads[k].visited)
    while last is not None:
        if (m := threads[last].visits) is not None:
            visiting.setdefault(m, []).append(last)
        last = threads[last].before
    return visiting


def _most_stored(condensed: Condensed, path: list[int], visiting: dict[int, list[int]], budget: int) -> int:
    """c: the most positions up to m that can be stored at a visit of m; 0 where a visit exceeds the budget.

    Where several operations visit m, the one that leaves the least room counts.
    """
    used = {*path, *(k for operations in visiting.values() for k in operations)}
    position = {k: m for m, k in enumerate(path)}
    smallest_first = np.sort([_smallest(condensed, k, used) for k in path]).cumsum()

    def stored(m: int, k: int) -> int:
        room = budget - int(condensed.operation_bytes[k])
        read = {i for v in condensed.inputs[k] if (i := position.get(int(condensed.producer[v]), m)) < m}
        others = int(np.searchsorted(smallest_first, room, side="right"))
        return 1 + len(read) + min(others, m - len(read)) if room >= 0 else 0

    least = [min(stored(m, k) for k in operations) for m, operations in visiting.items()]
    return max(least) if all(least) else 0


def _smallest(condensed: Condensed, k: int, used: set[int]) -> int:
    """Bytes of the smallest group of operation k that the path or a visit reads."""
    looked_at = [v for v in condensed.outputs[k] if used.intersection(condensed.readers[v])]
    return min((int(condensed.bytes[v]) for v in looked_at), default=0)
