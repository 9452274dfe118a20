"""What the blocks of a chain cost and need: the numbers of the dynamic program."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.persistent.chain import Chain


@dataclass(frozen=True, eq=False)
class Passes:
    """What it costs and takes to run the forward pass of each block, once (the first time) or again.

    Costs are in the unit of the graph's costs, bytes are int64; all are arrays of shape (L,). Peaks are without the
    block's input, unless they say otherwise.

    Attributes:
        through: cost of computing the boundary, the paper's F without saving.
        saving: cost of computing the boundary and what the backward pass reads, F_all.
        peak_through: bytes of the former, with the input held by others.
        peak_from_input: bytes of the former, with the input, which is freed after its last use.
        peak_saving: bytes of the latter.
    """

    through: np.ndarray
    saving: np.ndarray
    peak_through: np.ndarray
    peak_from_input: np.ndarray
    peak_saving: np.ndarray


@dataclass(frozen=True, eq=False)
class Needs:
    """All numbers of a chain of L blocks; arrays of blocks 0 to L where it is not said otherwise.

    Attributes:
        first: the forward passes of the first sweep, in which every operation runs.
        again: the forward passes of later sweeps, which run what they need.
        restoring: cost of computing from the input what the backward pass reads, the boundary only if it does.
        peak_restoring: bytes of that.
        backward: cost of the part of the backward pass.
        peak_backward: bytes of it, with the gradients that it begins with and what it reads, without the input.
        gradients: bytes of those gradients.
        lasting: bytes of the persistent values that the part of the backward pass leaves.
        boundary_bytes: of the boundary, shape (L,).
        saved_bytes: of the boundary and what the backward pass reads of the block, shape (L,).
        base: bytes that are there all the time: resident, persistent values of the forward pass, and what is shared.
    """

    first: Passes
    again: Passes
    restoring: np.ndarray
    peak_restoring: np.ndarray
    backward: np.ndarray
    peak_backward: np.ndarray
    gradients: np.ndarray
    lasting: np.ndarray
    boundary_bytes: np.ndarray
    saved_bytes: np.ndarray
    base: int


def needs_of(chain: Chain) -> Needs:
    """Work the numbers out, each peak by running the operations in question.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.persistent.chain import chain_of
    >>> needs_of(chain_of(Condensed.of(linear(3)))).peak_backward.tolist()
    [0, 2, 2, 2]
    """
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


def eased(chain: Chain, needs: Needs, share: float) -> Needs:
    """A guess at the needs of blocks that compute some of their values again within them: less memory, the same costs.

    Args:
        chain: L blocks.
        needs: those of its blocks, run as a whole.
        share: what is left of each peak above the largest operation's bytes.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.persistent.chain import chain_of
    >>> chain = chain_of(Condensed.of(linear(3)))
    >>> eased(chain, needs_of(chain), 0.0).peak_backward.tolist()
    [0, 2, 2, 2]
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


def peak(condensed: Condensed, operations: Iterable[int], held: Collection[int], keep: Collection[int]) -> int:
    """Most bytes in memory while ``operations`` run, each value freed after its last use.

    Args:
        condensed: n operations and their groups of values.
        operations: in the order in which they run.
        held: groups in memory at the start.
        keep: groups that stay in memory to the end.
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


def _cost(condensed: Condensed, operations: Iterable[int]) -> float:
    return float(condensed.costs[list(operations)].sum())


def _bytes(condensed: Condensed, groups: Collection[int]) -> int:
    return int(condensed.bytes[list(groups)].sum())


def _lasting(condensed: Condensed, operations: Iterable[int]) -> int:
    base, last = condensed.base, condensed.n - 1
    return int(sum(base[min(k + 1, last)] - base[k] for k in operations))
