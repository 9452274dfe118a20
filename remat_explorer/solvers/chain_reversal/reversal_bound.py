"""A path through the forward pass as the backward pass meets it: in reverse, and with little memory beside.

*Positions* 0, 1, ... cut a path of forward operations, and what runs beside it, into sets P_i. Of the groups of values
that P_i writes, V_i are those that another operation of P_i reads, and the *end* of i, with which the next position
begins. Each operation of P_i reads a group of V_i or, for i > 0, the end of i-1. So where nothing of V_i is in memory,
an operation of P_i can only run while the end of i-1 is there; and whatever makes the end of i then runs all of P_i.

A *visit* of i is the first run of a backward operation that reads groups of V_i. One is chosen for each position, in
the order of the stages, so that positions are visited from the last one down; one operation may visit several.
Positions without a visit, or whose visit is out of order, join the next one above. Those above the highest visited one
are left out.

A visit needs memory of its own. Beside it there is a *bystander*: a gradient that was computed before and is read
later. Else that gradient is made again between the visit and its last reader, and with it, again and again, every
gradient that it is made from, if that is at least as large and the visit neither reads nor writes it. That costs what
their operations cost. Where these times overlap, one of several bystanders at least is made again. Only those count
that are at least half as dear as the dearest, and each gets an equal part of the cheapest of these. Costs of times
that do not overlap add up.

A bound where memory is tight: how often a path must run again so that it can be visited in reverse.

*Setting.* Positions 0, ..., K-1 of a path, as in `positions`, with costs w_i and sizes b_i. Position i is *stored*
while a whole group of V_i is in memory. A *life* of i begins when an operation of P_i runs while i is not stored, and
ends when it is stored no more; it is *full* if it makes the end of i. A full life costs w_i at least. For i > 0 a life
of i begins with a run that reads the end of i-1, which is in memory then: the life of i-1 that it belongs to is full.
The visit of i falls into a life that costs a_i at least, where a_i <= w_i. Beside the visit r_i bytes are left for
values of lower positions; what it reads itself of position j is counted there, with b_j bytes.

*Lemma.* Take a time at which no position from l to h-1 is stored, after which all of them are visited, the highest
first; one operation may visit several. Let values of positions below l be in memory meanwhile, at least s bytes at
each visit. What P_l, ..., P_{h-1} cost from then on is at least T(l,h,s), where T(l,l,s) = 0, and T(l,h,s) is the
least, over l <= i < h with s <= r_i, of

    w_l + ... + w_{h-2} + a_{h-1} + T(l,h-1,s)                                               (i = h-1)
    w_l + ... + w_i + T(l,i,s) + min(T(i+1,h,s+b_i), a_i + T(i+1,h,s+min(b_l, ..., b_i)))    (i < h-1)

and infinite where there is no such i. It does not fall as s grows.

*Proof*, by induction on the positions, and on the runs that follow. Before the visit of h-1 it has a life, and all
below have full lives. Let f_i be where the first full life of i begins, of h-1 where its first life does; f_i ascends
with i. Call i *covered* if from f_i to its visit a position from l to i is stored at all times. If h-1 is not covered,
nothing is stored at some time between f_{h-1} and its visit, and what follows is as before with fewer runs. Else let i
be the smallest covered position. If i > l, then i-1 is not covered: no position from l to i-1 is stored at some time
between f_{i-1} and its visit. Until then their first full lives have cost w_l + ... + w_{i-1}, and what follows visits
them all: T(l,i,s). The first full life of i costs w_i; for i = h-1 the life that its visit falls into costs a_{h-1}.
Lives of i+1, ..., h-1 begin after f_i, and their visits are not after that of i. In between a position from l to i is
always stored: there are as many bytes more as the smallest of these has. Either it is i itself, in a single life, with
b_i bytes; or the visit of i falls into another life, for a_i more.

*Bystanders.* If s exceeds r_i less the bytes of the visit's bystander, the bystander is not there, and its penalty is
paid: by backward operations, while P_i holds forward ones, so nothing is counted twice.

*Bound.* Every operation runs at least once. T(0,K,0) contains w_0 + ... + w_{K-2} + a_{K-1} of that; what it exceeds
this by is added to the cost of running everything once. Sizes and rooms are rounded down to slots, which lowers T, and
a room of the last slot or more counts as unlimited.

The recurrence for equal costs and sizes is that of Griewank, Achieving logarithmic growth of temporal and spatial
complexity in reverse automatic differentiation (Optimization Methods and Software 1, 1992).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from remat_explorer.solvers.condensed_graph import CondensedGraph


class Bystander(NamedTuple):
    """A gradient that is there beside a visit, or is made again."""

    bytes: int = 0  # its size, 0 where there is none
    penalty: float = 0.0  # what making it again costs, or the share of it
    until: int = 0  # its last reader


class Visit(NamedTuple):
    """The visiting operation, and what its first run says."""

    operation: int  # a backward operation
    again: float  # cost of the position's operations that make what it reads, where nothing of it is there
    room: int  # bytes that are left for values of lower positions without a bystander, what it reads of them included
    bystander: Bystander  # the largest one


@dataclass(frozen=True)
class Position:
    """One of the sets P_i."""

    operations: frozenset[int]  # P_i
    values: frozenset[int]  # V_i, as numbers of groups
    cost: float  # of P_i
    bytes: int  # of the smallest group of V_i


@dataclass(frozen=True)
class VisitedPosition(Position):
    """One that is visited."""

    visit: Visit


def visited_positions(condensed: CondensedGraph, budget: int, most: int) -> list[VisitedPosition]:
    """Positions of the costliest path, each with its visit; none where there are more than ``most``."""
    path = _costliest_path(condensed)
    ends = _passed_on(condensed, path)
    saved = {v for k in np.flatnonzero(condensed.graph.is_backward).tolist() for v in condensed.inputs[k]}
    read = [v in saved for v in ends]
    entry, leaving = _beside(condensed, path, ends)
    cuts = _cuts(condensed, path, read, entry, leaving)
    if len(cuts) > most:
        return []
    positions = list(_positions(condensed, path, ends, cuts, entry, leaving))
    return _sharing(_in_order(positions, _visits(condensed, budget, positions)))


def _costliest_path(condensed: CondensedGraph) -> list[int]:
    """Forward operations, each of which reads a group of the one before, with the largest cost together."""
    total, before = condensed.costs.copy(), np.full(condensed.n, -1)
    forward = ~condensed.graph.is_backward
    for k in np.flatnonzero(forward).tolist():
        producers = {int(condensed.producer[v]) for v in condensed.inputs[k]}
        best = max((j for j in producers if forward[j]), key=lambda j: total[j], default=-1)
        if best >= 0:
            before[k] = best
            total[k] += total[best]
    writing = forward & [bool(out) for out in condensed.outputs]
    path, k = [], int(np.where(writing, total, -1.0).argmax()) if writing.any() else -1
    while k >= 0:
        path.append(k)
        k = int(before[k])
    return path[::-1]


def _passed_on(condensed: CondensedGraph, path: Sequence[int]) -> list[int]:
    """For each operation of the path the group that the next one reads, the largest; of the last one any."""

    def passed(k: int, to: int | None) -> int:
        written = (v for v in condensed.outputs[k] if to is None or to in condensed.readers[v])
        return max(written, key=lambda v: condensed.bytes[v])

    return [passed(k, to) for k, to in zip_longest(path, path[1:])]


def _beside(
    condensed: CondensedGraph, path: Sequence[int], ends: Sequence[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Operations beside the path: the last place whose group leads to each, and the first place that each leads to."""
    place = {k: m for m, k in enumerate(path)}
    ended = {v: m for m, v in enumerate(ends)}
    aside = [k for k in np.flatnonzero(~condensed.graph.is_backward).tolist() if k not in place]
    entry: dict[int, int] = {}
    for k in aside:
        from_path = (ended[v] for v in condensed.inputs[k] if v in ended)
        from_aside = (entry[j] for v in condensed.inputs[k] if (j := int(condensed.producer[v])) in entry)
        if (last := max([*from_path, *from_aside], default=-1)) >= 0:
            entry[k] = last
    leaving: dict[int, int] = {}
    for k in reversed(aside):
        readers = [r for v in condensed.outputs[k] for r in condensed.readers[v]]
        leads = [place[r] if r in place else leaving[r] for r in readers if r in place or r in leaving]
        if k in entry and leads:
            leaving[k] = min(leads)
    return entry, leaving


def _cuts(
    condensed: CondensedGraph, path: Sequence[int], read: Sequence[bool], entry: dict[int, int], leaving: dict[int, int]
) -> list[int]:
    """Places that end positions: those whose group the backward pass reads.

    Those within a span are left out where what runs beside the span costs at least as much as the path within it.
    """
    beside: dict[tuple[int, int], float] = {}
    for k, last in leaving.items():
        span = entry[k], last
        beside[span] = beside.get(span, 0.0) + float(condensed.costs[k])
    chosen = np.array(read)
    for (first, last), cost in beside.items():
        if cost >= condensed.costs[list(path[first + 1 : last])].sum():
            chosen[first + 1 : last] = False
    return np.flatnonzero(chosen).tolist()


def _positions(
    condensed: CondensedGraph,
    path: Sequence[int],
    ends: Sequence[int],
    cuts: Sequence[int],
    entry: dict[int, int],
    leaving: dict[int, int],
) -> Iterable[Position]:
    """The sets P_i that end at the cuts, with what runs between two of them beside the path."""
    begin = -1
    for cut in cuts:
        aside = [k for k, last in leaving.items() if last <= cut and entry[k] >= begin]
        operations = frozenset([*path[begin + 1 : cut + 1], *aside])
        passed = {v for k in operations for v in condensed.outputs[k] if operations.intersection(condensed.readers[v])}
        values = frozenset(passed | {ends[cut]})
        yield Position(operations, values, _cost(condensed, operations), min(int(condensed.bytes[v]) for v in values))
        begin = cut


def _cost(condensed: CondensedGraph, operations: Iterable[int]) -> float:
    return float(condensed.costs[sorted(operations)].sum())


def _visits(condensed: CondensedGraph, budget: int, positions: Sequence[Position]) -> list[Visit | None]:
    """For each position the visit that leaves the least room, if there is one."""
    of = {v: i for i, position in enumerate(positions) for v in position.values}
    visits: list[list[Visit]] = [[] for _ in positions]
    for k in np.flatnonzero(condensed.graph.is_backward).tolist():
        visited = {of[v] for v in condensed.inputs[k] if v in of}
        bystander = _bystander(condensed, k) if visited else Bystander()
        for i in visited:
            lower = sum(positions[j].bytes for j in visited if j < i)  # counted with the operation already
            room = budget - int(condensed.operation_bytes[k]) + lower
            again = _cost(condensed, _makers(condensed, condensed.inputs[k], positions[i].values))
            visits[i].append(Visit(k, again, room, bystander))
    return [min(choices, key=lambda visit: visit.room - visit.bystander.bytes, default=None) for choices in visits]


def _makers(condensed: CondensedGraph, wanted: Iterable[int], missing: Set[int]) -> set[int]:
    """Operations that make what is wanted of the groups that are missing, and what of these they read."""
    waiting = [int(condensed.producer[v]) for v in wanted if v in missing]
    makers: set[int] = set()
    while waiting:
        k = waiting.pop()
        if k not in makers:
            makers.add(k)
            waiting += [int(condensed.producer[v]) for v in condensed.inputs[k] if v in missing]
    return makers


def _bystander(condensed: CondensedGraph, k: int) -> Bystander:
    """The largest gradient computed before k and read after it; of several that are as large, the dearest."""
    own = {*condensed.inputs[k], *condensed.outputs[k]}
    gradient = condensed.graph.is_backward[condensed.producer]
    there = gradient & (condensed.producer < k) & (condensed.last_reader > k)
    there[list(own)] = False
    size = int(condensed.bytes[there].max(initial=0))
    if not size:
        return Bystander()
    missing = set(np.flatnonzero(gradient & (condensed.bytes >= size)).tolist()) - own
    largest = np.flatnonzero(there & (condensed.bytes == size)).tolist()
    costs = {v: _cost(condensed, _makers(condensed, [v], missing)) for v in largest}
    dearest = max(costs, key=lambda v: costs[v])
    return Bystander(size, costs[dearest], int(condensed.last_reader[dearest]))


def _in_order(positions: Sequence[Position], visits: Sequence[Visit | None]) -> list[VisitedPosition]:
    """Positions whose visits come in order, with the largest sum of their own costs; others join the next one above."""
    visited = {i: visit for i, visit in enumerate(visits) if visit is not None}
    most: dict[int, float] = {}  # cost of the dearest sequence that begins with a position
    above: dict[int, int | None] = {}
    for i in sorted(visited, reverse=True):
        before = [j for j in most if visited[j].operation <= visited[i].operation]
        above[i] = max(before, key=lambda j: most[j], default=None)
        most[i] = positions[i].cost + max((most[j] for j in before), default=0.0)
    chosen: list[VisitedPosition] = []
    begin, i = 0, max(most, key=lambda j: most[j], default=None)
    while i is not None:
        chosen.append(_joined(positions[begin : i + 1], visited[i]))
        begin, i = i + 1, above[i]
    return chosen


def _joined(positions: Sequence[Position], visit: Visit) -> VisitedPosition:
    """Positions as one, visited where the last of them is."""
    below = sum(position.cost for position in positions[:-1])
    return VisitedPosition(
        frozenset().union(*(position.operations for position in positions)),
        frozenset().union(*(position.values for position in positions)),
        below + positions[-1].cost,
        min(position.bytes for position in positions),
        visit._replace(again=below + visit.again),
    )


def _sharing(positions: Sequence[VisitedPosition]) -> list[VisitedPosition]:
    """With bystanders whose times overlap sharing a penalty; those of less than half of the dearest do not count."""
    shared: list[VisitedPosition] = []
    overlapping: list[VisitedPosition] = []

    def share() -> None:
        bystanders = [position.visit.bystander for position in overlapping]
        least = max((bystander.penalty for bystander in bystanders), default=0.0) / 2
        counting = [bystander.penalty for bystander in bystanders if bystander.bytes and bystander.penalty >= least]
        for position, bystander in zip(overlapping, bystanders, strict=True):
            counts = bystander.bytes and bystander.penalty >= least
            its = bystander._replace(penalty=min(counting) / len(counting)) if counts else Bystander()
            shared.append(replace(position, visit=position.visit._replace(bystander=its)))
        overlapping.clear()

    for position in reversed(positions):  # in the order of the visits
        if position.visit.operation >= max((other.visit.bystander.until for other in overlapping), default=0):
            share()
        overlapping.append(position)
    share()
    return shared[::-1]


MOST_POSITIONS = 400  # the work grows by the cube
WORK = 2e9  # positions by the cube times slots, at most: a second
ENTRIES = 2e7  # of the table, about, at most: 160 MB
PARTS = 4, 3, 2, 1  # slots of the median size, as many as the work allows


def reversal_bound(condensed: CondensedGraph, budget: int, over: Callable[[], bool] = lambda: False) -> float:
    """A cost that no frontier-advancing schedule within the budget is below.

    Once ``over`` is True, it is what every operation costs once; infinity where no order of runs lets all visits fit.
    """
    from remat_explorer.solvers.chain_reversal.reversal_table import fill_from  # compiled on its first use

    once = condensed.graph.total_cost
    positions = visited_positions(condensed, budget, MOST_POSITIONS)
    if not positions:
        return once
    count, visits = len(positions), [position.visit for position in positions]
    unit, slots = _slots(positions)

    def in_slots(sizes: list[int]) -> np.ndarray:
        return np.clip(np.array(sizes, dtype=np.int64) // unit, -1, slots)

    costs = np.array([position.cost for position in positions])
    again = np.array([visit.again for visit in visits])
    penalties = np.array([visit.bystander.penalty for visit in visits])
    sizes = in_slots([position.bytes for position in positions])
    without = in_slots([visit.room for visit in visits])
    beside = in_slots([visit.room - visit.bystander.bytes for visit in visits])
    least, below = np.empty((count + 1, slots + 1, count + 1)), np.empty((slots + 1, count + 1))
    for lowest in range(count - 1, -1, -1):
        if over():
            return once
        fill_from(least, below, lowest, costs, again, sizes, beside, without, penalties)
    return max(once, once + float(least[count, 0, 0] - costs[:-1].sum() - again[-1]))


def _slots(positions: Sequence[VisitedPosition]) -> tuple[int, int]:
    """Bytes of a slot, and how many there are: as many as sizes and rooms ask for, and the work allows.

    The bytes are whole: with fractions, sizes that fit together might not do so in slots.
    """
    count, sizes = len(positions), np.array([position.bytes for position in positions], dtype=np.int64)
    rooms = np.array([position.visit.room for position in positions])
    needed = max(0, int(np.minimum(rooms, sizes.cumsum() - sizes).max())) + 1
    most = max(2, int(min(WORK / count**3, ENTRIES / (count + 1) ** 2)))
    units = (max(1, int(np.median(sizes)) // parts) for parts in PARTS)
    unit = next((unit for unit in units if unit * most >= needed), -(-needed // most))
    return unit, needed // unit + 1
