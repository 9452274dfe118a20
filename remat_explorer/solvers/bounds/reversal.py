"""A bound where memory is tight: how often a path must run again so that it can be visited in reverse.

*Setting.* Positions 0, ..., K-1 of a path, as in `reversal_positions`, with costs w_i and sizes b_i. Position i is
*stored* while a value of V_i is in memory. A *life* of i begins when an operation of P_i runs while i is not stored,
and ends when it is stored no more; it is *full* if it makes the value that position i+1 begins with. A full life costs
w_i at least. A life of i begins, for i > 0, in a full life of i-1. The visit of i falls into a life that costs a_i at
least, at most w_i. Beside the visit there are r_i bytes for values of lower positions.

*Lemma.* Take a time at which no position from l to h-1 is stored, after which all of them are visited, the highest
first. Let values of positions below l be in memory meanwhile, s bytes at each visit. What P_l, ..., P_{h-1} cost from
then on is at least T(l,h,s), where T(l,l,s) = 0, and T(l,h,s) is the least, over l <= i < h with s <= r_i, of

    w_l + ... + w_{h-2} + a_{h-1} + T(l,h-1,s)                                               (i = h-1)
    w_l + ... + w_i + T(l,i,s) + min(T(i+1,h,s+b_i), a_i + T(i+1,h,s+min(b_l, ..., b_i)))    (i < h-1)

*Proof*, by induction on the positions, and on the runs that follow. Before the visit of h-1 it has a life, and all
below have full lives. Let f_i be where the first full life of i begins, of h-1 where its first life does; f_i ascends
with i. Call i *covered* if from f_i to its visit a position from l to i is stored at all times. If h-1 is not covered,
nothing is stored at some time between f_{h-1} and its visit, and what follows is as before with fewer runs. Else let i
be the smallest covered position. If i > l, then i-1 is not covered: no position from l to i-1 is stored at some time
between f_{i-1} and its visit. Until then their first full lives have cost w_l + ... + w_{i-1}, and what follows visits
them all: T(l,i,s). P_i costs w_i, or a_i if i = h-1. All that P_{i+1}, ..., P_{h-1} do before their visits falls
between f_i and the visit of i, where a position from l to i is stored: there are as many bytes more as the smallest of
these has. Either it is i itself, in a single life, with b_i bytes; or the visit of i falls into another life, for a_i
more.

*Bystanders.* r_i is less by the bystander of the visit if it is there. Let p be the lowest position whose bystander is
not there: then r_i is not less from p on, and making that bystander again costs what it costs, in the backward pass,
of which T counts nothing. The bound is the least over all p, and over none. For a range of p, its lowest one gives the
least T, and the cheapest bystander is taken.

Everything costs once what it costs, and that is what T counts of w_0 + ... + w_{K-2} + a_{K-1}; the rest of T(0,K,0) is
added. The recurrence for equal costs and sizes is that of Griewank, Achieving logarithmic growth of temporal and
spatial complexity in reverse automatic differentiation (Optimization Methods and Software 1, 1992).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.solvers.bounds.reversal_positions import VisitedPosition, visited_positions
from remat_explorer.solvers.condensed import Condensed

MOST_POSITIONS = 400  # the work grows by the cube
WORK = 2e9  # positions by the cube times slots, at most: one table takes less than a second
PARTS = 4, 3, 2, 1  # slots of the median size, as many as the work allows
SHARES = 7 / 8, 5 / 8, 0.0  # of the positions are below the lowest one without a bystander


def reversal_bound(
    condensed: Condensed, budget: int, known: float = 0.0, over: Callable[[], bool] = lambda: False
) -> float:
    """A cost that no frontier-advancing schedule within the budget is below.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        known: a lower bound; one that is not above it is left unfinished.
        over: asked often; once True the answer is what every operation costs once.

    Returns:
        In the graph's unit; infinity where a visit exceeds the budget by itself.

    >>> from remat_explorer.instances import linear
    >>> [reversal_bound(Condensed.of(linear(32)), budget) for budget in (6, 12, 35)]
    [111.0, 87.0, 65.0]
    """
    once = condensed.graph.total_cost
    positions = visited_positions(condensed, budget, MOST_POSITIONS)
    if not positions:
        return once
    problem = _Reversal.of(positions)
    counted = float(problem.costs[:-1].sum() + problem.again[-1])
    least, end = problem.fill(len(positions), 0, over), len(positions)
    for share in SHARES:
        if over() or once + least - counted <= known:
            break
        begin = int(share * len(positions))
        cheapest = float(problem.remake[begin:end].min(initial=np.inf))
        if np.isfinite(cheapest):
            least = min(least, problem.fill(begin, begin, over) + cheapest)
        end = begin
    return once if over() else max(once, once + least - counted)


@dataclass(frozen=True, eq=False)
class _Reversal:
    """K positions, their bytes in slots, and T.

    Attributes:
        positions: with visits.
        unit: bytes of a slot.
        least: T, by end, slots and beginning, float64 of shape (K + 1, slots, K + 1).
    """

    positions: Sequence[VisitedPosition]
    unit: float
    least: np.ndarray

    @staticmethod
    def of(positions: Sequence[VisitedPosition]) -> _Reversal:
        """With as many slots as the sizes ask for and the work allows."""
        sizes = np.array([position.bytes for position in positions])
        rooms = np.array([position.visit.room for position in positions])
        needed = float(np.minimum(rooms, sizes.cumsum() - sizes).max()) + 1.0
        most = max(2, int(WORK / len(positions) ** 3))
        units = (float(np.median(sizes)) / parts for parts in PARTS)
        unit = max(1.0, next((unit for unit in units if unit * most >= needed), needed / most))
        return _Reversal(positions, unit, np.full((len(sizes) + 1, int(needed / unit) + 2, len(sizes) + 1), np.inf))

    @cached_property
    def costs(self) -> np.ndarray:
        """w, float of shape (K,)."""
        return np.array([position.cost for position in self.positions])

    @cached_property
    def again(self) -> np.ndarray:
        """a, float of shape (K,)."""
        return np.array([position.visit.again for position in self.positions])

    @cached_property
    def bystanders(self) -> np.ndarray:
        """Bytes beside each visit, 0 where they are less than a slot, int64 of shape (K,)."""
        sizes = np.array([position.visit.bystander for position in self.positions], dtype=np.int64)
        return np.where(sizes >= self.unit, sizes, 0)

    @cached_property
    def remake(self) -> np.ndarray:
        """What making these again costs, infinity where there are none, float of shape (K,)."""
        return np.where(self.bystanders > 0, [position.visit.remake for position in self.positions], np.inf)

    def fill(self, begin: int, kept: int, over: Callable[[], bool]) -> float:
        """T(0,K,0) where the bystanders of the positions from ``begin`` on are not there.

        Ranges of positions below ``kept`` stay as the call before has left them.
        """
        from remat_explorer.solvers.search.reversal_table import fill_from  # compiled on its first use

        count, most = len(self.positions), self.least.shape[1] - 1
        sizes = np.array([position.bytes for position in self.positions]) / self.unit
        rooms = np.array([position.visit.room for position in self.positions])
        rooms[:begin] -= self.bystanders[:begin]
        slots = np.minimum(np.floor(sizes), most).astype(np.int64)
        left = np.clip(np.floor(rooms / self.unit), -1, most).astype(np.int64)
        below = np.zeros((most + 1, count + 1))
        for lowest in range(count, -1, -1):
            if over():
                return 0.0
            self.least[lowest, :, lowest] = 0.0
            fill_from(self.least, below, lowest, max(lowest, kept) + 1, self.costs, self.again, slots, left)
        return float(self.least[count, 0, 0])
