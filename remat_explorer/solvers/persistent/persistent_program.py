"""The dynamic program of persistent checkpointing, and the schedule that its optimum describes.

C[s,t,m] is the least cost of running blocks s to t forward and backward, with the input of block s in memory already,
the gradients that block t's part begins with, and m bytes for all but that input. There are three ways:

    C[t,t,m] = restoring[t] + backward[t]
    C[s,t,m] = saving[s] + C[s+1,t,m - saved bytes of s] + backward[s]                       (F_all: save block s)
    C[s,t,m] = sum of through[s..r-1] + C[r,t,m - boundary bytes of r-1] + C[s,r-1,m]        (keep the input of r)

each where m is enough. A checkpoint stays until the backward pass has used it: the schedule is *persistent*.

Source: Beaumont, Eyraud-Dubois, Hermann, Joly and Shilova, Optimal checkpointing for heterogeneous chains
(arXiv 1911.13214), section 4, Theorem 1. Extended to parts of the backward pass that leave persistent values, which
take memory from all that follows, and to values that the backward pass does not need again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remat_explorer.solvers.persistent.chain import Chain
from remat_explorer.solvers.persistent.needs import Needs, Passes, needs_of

RESTORE, SAVE = -1, -2  # ways to run a block; a number of a block r means to keep the input of r
Way = tuple[int, float]  # which, and its cost


@dataclass(frozen=True)
class Slots:
    """Memory in whole slots. Bytes are rounded up and the budget down, so no rounding exceeds the budget.

    Attributes:
        size: bytes of one slot.
        count: how many the budget has.
    """

    size: int
    count: int

    @staticmethod
    def of(needs: Needs, budget: int, most: int) -> Slots:
        """At most ``most`` slots; exact where all bytes have a common divisor that is large enough."""
        room = max(0, budget - needs.base)
        passes = [a for way in (needs.first, needs.again) for a in (way.peak_through, way.peak_from_input)]
        passes += [needs.first.peak_saving, needs.again.peak_saving]
        rest = [needs.peak_restoring, needs.peak_backward, needs.gradients, needs.lasting]
        numbers = np.concatenate([*passes, *rest, needs.boundary_bytes, needs.saved_bytes])
        common = int(np.gcd.reduce(numbers))
        size = common if common and room // common <= most else max(1, -(-room // most))
        return Slots(size, room // size)

    def needed(self, size: float) -> int:
        """Slots that so many bytes take."""
        return math.ceil(size / self.size)


class PersistentProgram:
    """The dynamic program of one chain and one budget.

    Args:
        chain: L blocks.
        budget: bytes, resident bytes included.
        most_slots: the budget is told apart in at most so many steps.
        beyond: by what share of the budget the table goes on, to look for schedules that need less than it says.

    Attributes:
        slots: of the budget.
        length: slots that the table has, at least those of the budget.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.condensed import Condensed
    >>> from remat_explorer.solvers.persistent.chain import chain_of
    >>> program = PersistentProgram(chain_of(Condensed.of(linear(8))), 6, 500)
    >>> program.run(lambda: False), program.cost
    (True, 21.0)
    """

    def __init__(self, chain: Chain, budget: int, most_slots: int, beyond: float = 0.0) -> None:
        self.chain, self.needs = chain, needs_of(chain)
        self.slots = Slots.of(self.needs, budget, most_slots)
        self.length = self.slots.count + int(beyond * self.slots.count)
        blocks = chain.blocks + 1
        self._best: list[list[np.ndarray]] = [[np.empty(0)] * blocks for _ in range(blocks)]
        self._lasting = np.append(0, self.needs.lasting.cumsum())  # of blocks before j

    def run(self, over: Callable[[], bool]) -> bool:
        """Fill the table; False if the time ran out before the end."""
        for t in range(self.chain.blocks + 1):
            for s in range(t, -1, -1):
                if over():
                    return False
                self._best[s][t] = self._least(s, t)
        return True

    @property
    def cost(self) -> float:
        """Least cost of a persistent schedule within the budget, infinity if none fits."""
        return float(self._best[0][-1][self.slots.count])

    def steps(self) -> list[int]:
        """The slots, ascending, at which a schedule is cheaper than with one less: the budget's first, then beyond."""
        costs = self._best[0][-1]
        beyond = [m for m in range(self.slots.count + 1, self.length + 1) if costs[m] < costs[m - 1]]
        return ([self.slots.count] if math.isfinite(self.cost) else []) + beyond

    def _least(self, s: int, t: int) -> np.ndarray:
        """C[s,t,m] for m from 0 to all slots, float of shape (length + 1,)."""
        best = np.full(self.length + 1, math.inf)
        for way, cost, terms, enough in self._ways(s, t):
            del way
            if enough < len(best):
                total = np.full(len(best) - enough, cost)
                for (a, b), taken in terms:
                    total += self._at(a, b, taken, enough)
                np.minimum(best[enough:], total, out=best[enough:])
        return best

    def _at(self, s: int, t: int, taken: int, enough: int) -> np.ndarray:
        """C[s,t,m - taken] for m from ``enough`` on."""
        shifted = np.full(self.length + 1, math.inf)
        if taken <= self.length:
            shifted[taken:] = self._best[s][t][: self.length + 1 - taken]
        return shifted[enough:]

    def _ways(self, s: int, t: int) -> list[tuple[int, float, list[tuple[tuple[int, int], int]], int]]:
        """The ways to run blocks s to t: which, its own cost, the rest with the slots it leaves out, and slots needed.

        Sweeps that end at block L are the first ones of their blocks, since the backward pass begins there.
        """
        needs, slots = self.needs, self.slots
        start = int(needs.gradients[t])
        if s == t:
            restoring = start + int(needs.peak_restoring[t]) if self.chain.saved[t] else 0
            enough = slots.needed(max(restoring, int(needs.peak_backward[t])))
            return [(RESTORE, float(needs.restoring[t] + needs.backward[t]), [], enough)]
        sweep = self._sweep(t)
        saving = start + int(sweep.peak_saving[s])
        using = int(needs.peak_backward[s]) + self._left(s + 1, t)
        rest = [((s + 1, t), slots.needed(needs.saved_bytes[s]))]
        enough = slots.needed(max(saving, using))
        ways = [(SAVE, float(sweep.saving[s] + needs.backward[s]), rest, enough)]
        cost, most = 0.0, 0
        for r in range(s + 1, t + 1):  # keep the input of block r
            cost += float(sweep.through[r - 1])
            most = max(most, int((sweep.peak_through if r == s + 1 else sweep.peak_from_input)[r - 1]))
            after, before = slots.needed(needs.boundary_bytes[r - 1]), slots.needed(self._left(r, t))
            ways.append((r, cost, [((r, t), after), ((s, r - 1), before)], slots.needed(start + most)))
        return ways

    def _sweep(self, t: int) -> Passes:
        return self.needs.first if t == self.chain.blocks else self.needs.again

    def _left(self, s: int, t: int) -> int:
        """Bytes of persistent values that blocks s to t leave."""
        return int(self._lasting[t + 1] - self._lasting[s])

    def computed(self, slots: int) -> np.ndarray:
        """R of the cheapest persistent schedule with so many slots, one of `steps`, bool of shape (n, n)."""
        chain = self.chain
        R = np.eye(chain.condensed.n, dtype=bool)
        todo = [(0, chain.blocks, slots)]
        while todo:
            s, t, m = todo.pop()
            way, rest = self._best_way(s, t, m)
            todo += rest
            if t == chain.blocks:
                continue  # the first runs, on the diagonal
            stage = next((operations[0] for operations in chain.backward[t::-1] if operations), None)
            if stage is not None:
                R[stage, list(self._run_again(s, way))] = True
        return R

    def _best_way(self, s: int, t: int, m: int) -> tuple[int, list[tuple[int, int, int]]]:
        """The cheapest way with m slots, and what it leaves to do, with how many slots."""
        best, least = RESTORE, math.inf
        left: list[tuple[int, int, int]] = []
        for way, cost, terms, enough in self._ways(s, t):
            if enough <= m and all(taken <= m for _, taken in terms):
                total = cost + sum(float(self._best[a][b][m - taken]) for (a, b), taken in terms)
                if total < least:
                    best, least = way, total
                    left = [(a, b, m - taken) for (a, b), taken in terms]
        return best, left

    def _run_again(self, s: int, way: int) -> list[int]:
        """Operations that a later sweep runs from block s on."""
        chain = self.chain
        if way == RESTORE:
            return list(chain.needed(s, chain.saved[s]))
        if way == SAVE:
            return list(chain.needed(s, chain.saved[s] | chain.boundary[s]))
        return [k for j in range(s, way) for k in chain.needed(j, chain.boundary[j])]
