"""The dynamic program of persistent checkpointing, and the schedule that its optimum describes.

C[s,t,m] is the least cost of running blocks s to t forward and backward, with the input of block s in memory already,
the gradients that block t's part begins with, and m bytes for all but that input. There are three ways:

    C[t,t,m] = restoring[t] + backward[t]
    C[s,t,m] = saving[s] + C[s+1,t,m - saved bytes of s] + backward[s]                       (F_all: save block s)
    C[s,t,m] = sum of through[s..r-1] + C[r,t,m - boundary bytes of r-1] + C[s,r-1,m]        (keep the input of r)

each where m is enough. A checkpoint stays until the backward pass has used it: the schedule is *persistent*.

Source: Beaumont, Eyraud-Dubois, Hermann, Joly and Shilova, Optimal checkpointing for heterogeneous chains (arXiv
1911.13214), section 4, Theorem 1. Extended to parts of the backward pass that leave persistent values, which take
memory from all that follows, and to values that the backward pass does not need again.

The cheapest persistent schedule whose plan fits (`cheapest_persistent`): the dynamic program rounds sizes up and keeps
the input of a block to the end, so its schedules need less than it says: those for somewhat more memory are looked at,
too, whose plans may fit nevertheless.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.chain_checkpointing.block_chain import Chain
from remat_explorer.solvers.condensed_graph import CondensedGraph


@dataclass(frozen=True, eq=False)
class Passes:
    """What it costs and takes to run the forward pass of each block, once (the first time) or again.

    Costs are in the unit of the graph's costs, bytes are int64; all are arrays of shape (L,). Peaks are without the
    block's input, unless they say otherwise.
    """

    through: np.ndarray  # cost of computing the boundary, the paper's F without saving
    saving: np.ndarray  # cost of computing the boundary and what the backward pass reads, F_all
    peak_through: np.ndarray  # bytes of the former, with the input held by others
    peak_from_input: np.ndarray  # bytes of the former, with the input, which is freed after its last use
    peak_saving: np.ndarray  # bytes of the latter


@dataclass(frozen=True, eq=False)
class Needs:
    """All numbers of a chain of L blocks; arrays of blocks 0 to L where it is not said otherwise."""

    first: Passes  # the forward passes of the first sweep, in which every operation runs
    again: Passes  # the forward passes of later sweeps, which run what they need
    restoring: np.ndarray  # cost of computing from the input what the backward pass reads, the boundary only if it does
    peak_restoring: np.ndarray  # bytes of that
    backward: np.ndarray  # cost of the part of the backward pass
    peak_backward: np.ndarray  # bytes of it, with the gradients that it begins with and what it reads, not the input
    gradients: np.ndarray  # bytes of those gradients
    lasting: np.ndarray  # bytes of the persistent values that the part of the backward pass leaves
    boundary_bytes: np.ndarray  # of the boundary, shape (L,)
    saved_bytes: np.ndarray  # of the boundary and what the backward pass reads of the block, shape (L,)
    base: int  # bytes that are there all the time: resident, persistent values of the forward pass, and what is shared


def needs_of(chain: Chain) -> Needs:
    """Work the numbers out, each peak by running the operations in question."""
    condensed = chain.condensed
    everything = range(chain.blocks + 1)
    restored = [chain.needed(j, chain.saved[j]) for j in everything]
    start = sum(map(len, chain.forward))
    base = int(condensed.base[start] if start < condensed.n else condensed.base[-1]) + _bytes(condensed, chain.shared)
    return Needs(
        _passes(chain, again=False),
        _passes(chain, again=True),
        np.array([_cost(condensed, ops) for ops in restored]),
        np.array([_peak(chain, j, restored[j], chain.saved[j]) for j in everything], dtype=np.int64),
        np.array([_cost(condensed, ops) for ops in chain.backward]),
        np.array([_peak_backward(chain, j) for j in everything], dtype=np.int64),
        np.array([_bytes(condensed, groups) for groups in chain.gradients], dtype=np.int64),
        np.array([_lasting(condensed, ops) for ops in chain.backward], dtype=np.int64),
        np.array([_bytes(condensed, groups) for groups in chain.boundary], dtype=np.int64),
        np.array([_bytes(condensed, chain.boundary[j] | chain.saved[j]) for j in range(chain.blocks)], dtype=np.int64),
        base,
    )


def with_less_memory(chain: Chain, needs: Needs, share: float) -> Needs:
    """A guess at the needs of blocks that compute some of their values again within: less memory, the same costs.

    ``share`` is what is left of each peak above the largest operation's bytes.
    """
    blocks = range(chain.blocks)
    restored = [chain.needed(j, chain.saved[j]) for j in (*blocks, chain.blocks)]
    again = [chain.needed(j, chain.boundary[j]) for j in blocks]

    def lowered(peaks: np.ndarray, operations: Sequence[Sequence[int]], with_input: bool = False) -> np.ndarray:
        least = np.array([_largest(chain, j, each, with_input) for j, each in enumerate(operations)], dtype=np.int64)
        return np.minimum(peaks, least + (share * np.maximum(peaks - least, 0)).astype(np.int64))

    def passes(each: Passes, operations: Sequence[Sequence[int]]) -> Passes:
        through, from_input = each.peak_through, each.peak_from_input
        return replace(
            each, peak_through=lowered(through, operations), peak_from_input=lowered(from_input, operations, True)
        )

    return replace(
        needs,
        first=passes(needs.first, chain.forward[:-1]),
        again=passes(needs.again, again),
        peak_restoring=lowered(needs.peak_restoring, restored),
        peak_backward=lowered(needs.peak_backward, chain.backward),
    )


def _largest(chain: Chain, j: int, operations: Iterable[int], with_input: bool) -> int:
    """Bytes of the largest of these operations of block j alone, with or without the block's input."""
    condensed = chain.condensed
    most = max((int(condensed.operation_bytes[k] - condensed.base[k]) for k in operations), default=0)
    return most if with_input else max(0, most - _bytes(condensed, chain.input(j)))


def _passes(chain: Chain, again: bool) -> Passes:
    condensed, blocks = chain.condensed, range(chain.blocks)
    kept = [chain.boundary[j] | chain.saved[j] for j in blocks]
    through = [chain.needed(j, chain.boundary[j]) if again else chain.forward[j] for j in blocks]
    saving = [chain.needed(j, kept[j]) if again else chain.forward[j] for j in blocks]
    return Passes(
        np.array([_cost(condensed, ops) for ops in through]),
        np.array([_cost(condensed, ops) for ops in saving]),
        np.array([_peak(chain, j, through[j], chain.boundary[j]) for j in blocks], dtype=np.int64),
        np.array([peak(condensed, through[j], chain.input(j), chain.boundary[j]) for j in blocks], dtype=np.int64),
        np.array([_peak(chain, j, saving[j], kept[j]) for j in blocks], dtype=np.int64),
    )


def _peak(chain: Chain, j: int, operations: Iterable[int], keep: frozenset[int]) -> int:
    """Bytes of running forward operations of block j, less its input, which stays."""
    given = chain.input(j)
    return peak(chain.condensed, operations, given, keep | given) - _bytes(chain.condensed, given)


def _peak_backward(chain: Chain, j: int) -> int:
    """Bytes of block j's part of the backward pass, less its input, which counts where it was kept."""
    given, gradients = chain.input(j), chain.gradients[j]
    held = gradients | chain.saved[j] | given
    later = frozenset(v for v in gradients if _read_after(chain, j, v))
    made = (v for k in chain.backward[j] for v in chain.condensed.outputs[k])
    keep = given | later | frozenset(v for v in made if _read_after(chain, j, v))
    return peak(chain.condensed, chain.backward[j], held, keep) - _bytes(chain.condensed, given)


def _read_after(chain: Chain, j: int, v: int) -> bool:
    """Whether group v of the backward pass is read after block j's part of it."""
    last = chain.condensed.readers[v][-1]
    return any(last in operations for operations in chain.backward[:j])


def peak(condensed: CondensedGraph, operations: Iterable[int], held: Collection[int], keep: Collection[int]) -> int:
    """Most bytes in memory while ``operations`` run, each value freed after its last use.

    Groups that are ``held`` are in memory at the start; those to ``keep`` stay to the end.
    """
    operations, now = list(operations), set(held)
    last = {v: k for k in operations for v in condensed.inputs[k]}
    total = most = _bytes(condensed, now)
    for k in operations:
        over = int(condensed.overwritten[k])
        dies = over >= 0 and last[over] == k and over not in keep
        needed = int(condensed.output_bytes[k] + condensed.transient[k])
        most = max(most, total + needed - (int(condensed.credit[k]) if dies else 0))
        made = set(condensed.outputs[k]) - now
        now |= made
        touched = (*condensed.inputs[k], *condensed.outputs[k])
        dead = {v for v in touched if last.get(v, k) == k and v not in keep} & now
        now -= dead
        total += _bytes(condensed, made) - _bytes(condensed, dead)
        if condensed.graph.is_backward[k]:  # what lasts of the forward pass is there from the first sweep on
            total += _lasting(condensed, [k])
    return most


def _cost(condensed: CondensedGraph, operations: Iterable[int]) -> float:
    return float(condensed.costs[list(operations)].sum())


def _bytes(condensed: CondensedGraph, groups: Collection[int]) -> int:
    return int(condensed.bytes[list(groups)].sum())


def _lasting(condensed: CondensedGraph, operations: Iterable[int]) -> int:
    base, last = condensed.base, condensed.n - 1
    return int(sum(base[min(k + 1, last)] - base[k] for k in operations))


RESTORE, SAVE = -1, -2  # ways to run a block; a number of a block r means to keep the input of r
Way = tuple[int, float]  # which, and its cost


@dataclass(frozen=True)
class Slots:
    """Memory in whole slots. Bytes are rounded up and the budget down, so no rounding exceeds the budget."""

    size: int  # bytes of one slot
    count: int  # how many the budget has

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
    """Costs and slots of blocks s before t, where the backward pass of block t comes next; arrays of shape (t,)."""

    saving: np.ndarray  # cost of block s where it is saved, forward and backward
    saved: np.ndarray  # slots of what is saved
    saving_slots: np.ndarray  # slots that running it takes
    through: np.ndarray  # cost of running it and keeping nothing
    peak_through: np.ndarray  # bytes of that, with its input held by others
    peak_from_input: np.ndarray  # bytes of that, with its input, which is freed
    kept: np.ndarray  # slots of the input of block s, which is kept, of shape (t + 1,)
    left: np.ndarray  # slots of the persistent values that blocks s to t leave, of shape (t + 1,)
    begins: int  # bytes of the gradients that the part of block t begins with
    slot: int  # bytes of a slot
    restoring: float  # cost of block t where its input alone is there
    restoring_slots: int  # slots of that


class ChainProgram:
    """The dynamic program of one chain and one budget.

    The table goes ``beyond`` the budget by that share, to look for schedules that need less than it says.
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
        from remat_explorer.solvers.chain_checkpointing.chain_table import fill_column  # compiled on its first use

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

        For each of blocks 0 to L these are groups of other blocks, and of its own those that were saved before; after
        them come those that the first sweep leaves.
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


SLOTS = 500  # the default of the tool rotor
BEYOND = 0.25  # share of the budget by which schedules may seem to exceed it


def cheapest_persistent(
    chain: Chain, budget: int, slots: int = SLOTS, over: Callable[[], bool] = lambda: False
) -> Schedule | None:
    """The schedule for the budget, or a cheaper one for more memory whose plan fits, by bisection."""
    program = ChainProgram(chain, budget, slots, BEYOND)
    if not program.run(over):
        return None
    best: Schedule | None = None
    steps = program.steps()
    fits, exceeds = -1, len(steps)  # places in steps
    middle = 0  # the one for the budget comes first, where there is one
    while fits < middle < exceeds:
        schedule = chain.condensed.schedule(program.computed(steps[middle]))
        if Plan.of(schedule).peak <= budget:
            fits = middle
            if best is None or schedule.cost < best.cost:
                best = schedule
        else:
            exceeds = middle
        if over():
            break
        middle = (fits + exceeds) // 2
    return best
