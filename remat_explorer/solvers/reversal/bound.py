"""A bound where memory is tight: how often a path must run again so that it can be visited in reverse.

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

from collections.abc import Callable, Sequence

import numpy as np

from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.reversal.positions import VisitedPosition, visited_positions

MOST_POSITIONS = 400  # the work grows by the cube
WORK = 2e9  # positions by the cube times slots, at most: a second
ENTRIES = 2e7  # of the table, about, at most: 160 MB
PARTS = 4, 3, 2, 1  # slots of the median size, as many as the work allows


def reversal_bound(condensed: Condensed, budget: int, over: Callable[[], bool] = lambda: False) -> float:
    """A cost that no frontier-advancing schedule within the budget is below.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        over: asked often; once True the answer is what every operation costs once.

    Returns:
        In the graph's unit; infinity where no order of runs lets all visits fit.

    >>> from remat_explorer.instances import linear
    >>> [reversal_bound(Condensed.of(linear(32)), budget) for budget in (6, 12, 35)]
    [111.0, 87.0, 65.0]
    """
    from remat_explorer.solvers.reversal.reversal_table import fill_from  # compiled on its first use

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
