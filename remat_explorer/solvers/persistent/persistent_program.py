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
from typing import NamedTuple

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
        return -(-int(size) // self.size)

    def all_needed(self, sizes: np.ndarray) -> np.ndarray:
        """Slots that each of so many bytes takes, int64."""
        return -(-sizes.astype(np.int64) // self.size)


class Column(NamedTuple):
    """Costs and slots of blocks s before t, where the backward pass of block t comes next; arrays of shape (t,).

    Attributes:
        saving: cost of block s where it is saved, forward and backward.
        saved: slots of what is saved.
        saving_slots: slots that running it takes.
        through: cost of running it and keeping nothing.
        peak_through: bytes of that, with its input held by others, and
        peak_from_input: with its input, which is freed.
        kept: slots of the input of block s, which is kept, of shape (t + 1,).
        left: slots of the persistent values that blocks s to t leave, of shape (t + 1,).
        begins: bytes of the gradients that the part of block t begins with.
        slot: bytes of a slot.
        restoring: cost of block t where its input alone is there, and
        restoring_slots: slots of that.
    """

    saving: np.ndarray
    saved: np.ndarray
    saving_slots: np.ndarray
    through: np.ndarray
    peak_through: np.ndarray
    peak_from_input: np.ndarray
    kept: np.ndarray
    left: np.ndarray
    begins: int
    slot: int
    restoring: float
    restoring_slots: int


class PersistentProgram:
    """The dynamic program of one chain and one budget.

    Args:
        chain: L blocks.
        budget: bytes, resident bytes included.
        most_slots: the budget is told apart in at most so many steps.
        beyond: by what share of the budget the table goes on, to look for schedules that need less than it says.
        needs: of the blocks, where they are not those of `needs_of`.

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

    def __init__(
        self, chain: Chain, budget: int, most_slots: int, beyond: float = 0.0, needs: Needs | None = None
    ) -> None:
        self.chain, self.needs = chain, needs or needs_of(chain)
        self.slots = Slots.of(self.needs, budget, most_slots)
        self.length = self.slots.count + int(beyond * self.slots.count)
        blocks = chain.blocks + 1
        self._best = np.full((blocks, blocks, self.length + 1), math.inf)
        self._lasting = np.append(0, self.needs.lasting.cumsum())  # of blocks before j

    def run(self, over: Callable[[], bool]) -> bool:
        """Fill the table; False if the time ran out before the end."""
        from remat_explorer.solvers.persistent.table import fill_column  # compiled on its first use

        for t in range(self.chain.blocks + 1):
            if over():
                return False
            fill_column(self._best, t, self._column(t))
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

    def _column(self, t: int) -> Column:
        """What `_ways` says of every first block s, in arrays."""
        needs, slots, sweep = self.needs, self.slots, self._sweep(t)
        start, before = int(needs.gradients[t]), slice(0, t)
        left = self._lasting[t + 1] - self._lasting[: t + 1]
        using = needs.peak_backward[before] + left[1:]
        kept = np.append(0, needs.boundary_bytes[before])
        return Column(
            sweep.saving[before] + needs.backward[before],
            slots.all_needed(needs.saved_bytes[before]),
            slots.all_needed(np.maximum(start + sweep.peak_saving[before], using)),
            sweep.through[before].astype(np.float64),
            sweep.peak_through[before],
            sweep.peak_from_input[before],
            slots.all_needed(kept),
            slots.all_needed(left),
            start,
            slots.size,
            float(needs.restoring[t] + needs.backward[t]),
            self._slots_to_restore(t),
        )

    def _slots_to_restore(self, t: int) -> int:
        """Slots of block t where its input alone is there."""
        needs = self.needs
        restoring = int(needs.gradients[t] + needs.peak_restoring[t]) if self.chain.saved[t] else 0
        return self.slots.needed(max(restoring, int(needs.peak_backward[t])))

    def _ways(self, s: int, t: int) -> list[tuple[int, float, list[tuple[tuple[int, int], int]], int]]:
        """The ways to run blocks s to t: which, its own cost, the rest with the slots it leaves out, and slots needed.

        Sweeps that end at block L are the first ones of their blocks, since the backward pass begins there.
        """
        needs, slots = self.needs, self.slots
        start = int(needs.gradients[t])
        if s == t:
            return [(RESTORE, float(needs.restoring[t] + needs.backward[t]), [], self._slots_to_restore(t))]
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

    def held(self) -> list[frozenset[int]]:
        """What the cheapest persistent schedule keeps while the part of each block runs, and all of it at the end.

        Returns:
            For each of blocks 0 to L the groups of other blocks, and of its own those that were saved before; after
            them those that the first sweep leaves.
        """
        chain, last = self.chain, self.chain.blocks
        during = [frozenset[int]()] * (last + 1)
        first: frozenset[int] = frozenset()
        todo = [(0, last, self.slots.count, chain.shared)]
        while todo:
            s, t, m, held = todo.pop()
            way, rest = self._best_way(s, t, m)
            if way == RESTORE:
                during[t] = held
            elif way == SAVE:
                during[s] = held | chain.saved[s]
                todo += [(*rest[0], during[s] | chain.boundary[s])]
            else:
                todo += [(*rest[0], held | chain.boundary[way - 1]), (*rest[1], held)]
            if t == last:
                first |= held
        return [*during, first]

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
