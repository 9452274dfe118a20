"""A training graph as a chain of blocks: the forward pass cut where one operation's outputs are all that crosses.

Such an operation is an articulation point of the forward graph (or its first or last operation). Each block has a part
of the backward pass: operations that read nothing of the forward pass but the block's values and its input. Where no
such division is possible, cuts are left out until it is. Cuts at values that the backward pass never reads are left
out, too: nothing is gained by keeping those, since what follows them is as good a checkpoint.

Small values may be allowed to cross any cut, such as the modulation of a diffusion transformer, which every block
reads. They are *shared*: in memory from their first computation on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.solvers.condensed_graph import CondensedGraph


@dataclass(frozen=True, eq=False)
class Chain:
    """L blocks, and a block L without forward operations: where the backward pass begins."""

    condensed: CondensedGraph
    forward: tuple[tuple[int, ...], ...]  # for each of the L + 1 blocks the operations of the forward pass, ascending
    backward: tuple[tuple[int, ...], ...]  # for each of them its operations of the backward pass, ascending
    boundary: tuple[frozenset[int], ...]  # for each of the first L blocks the groups that the next one may read
    shared: frozenset[int] = frozenset()  # groups that every block may read, which stay in memory

    @property
    def blocks(self) -> int:
        """L."""
        return len(self.boundary)

    def input(self, j: int) -> frozenset[int]:
        """Groups that block j may read of those before it."""
        return self.boundary[j - 1] | self.shared if j else self.shared

    @cached_property
    def saved(self) -> tuple[frozenset[int], ...]:
        """For each block the groups that it computes and that its own part of the backward pass reads; none shared."""
        inputs, producer = self.condensed.inputs, self.condensed.producer
        return tuple(
            frozenset(v for b in after for v in inputs[b] if producer[v] in before) - self.shared
            for before, after in zip(map(frozenset, self.forward), self.backward, strict=True)
        )

    @cached_property
    def gradients(self) -> tuple[frozenset[int], ...]:
        """For each block the groups of the backward pass that are there before its part begins, and read from then."""
        condensed, start = self.condensed, sum(map(len, self.forward))
        lengths = np.array([len(after) for after in self.backward])
        begins = start + lengths[::-1].cumsum()[::-1] - lengths  # the last block's part comes first
        return tuple(
            frozenset(
                v
                for v in range(condensed.groups)
                if start <= condensed.producer[v] < begin and condensed.readers[v][-1] >= begin
            )
            for begin in begins
        )

    def needed(self, j: int, groups: frozenset[int]) -> tuple[int, ...]:
        """Operations of block j's forward pass that compute ``groups`` from the block's input, ascending."""
        condensed, given = self.condensed, self.input(j)
        needed: set[int] = set()
        waiting = [int(condensed.producer[v]) for v in groups - given]
        while waiting:
            k = waiting.pop()
            if k not in needed:
                needed.add(k)
                waiting += [int(condensed.producer[v]) for v in condensed.inputs[k] if v not in given]
        return tuple(sorted(needed))


def chain_of(condensed: CondensedGraph, small: int = 0) -> Chain:
    """Cut a training graph into as many blocks as possible.

    Args:
        small: bytes of a group from which on it may not cross a cut.

    Raises:
        SolverError: if there are not at least two.

    >>> from remat_explorer.instances import linear
    >>> chain_of(CondensedGraph.of(linear(3))).forward
    ((0,), (1,), (2,), ())
    >>> chain_of(CondensedGraph.of(linear(3))).backward
    ((), (6,), (5,), (3, 4))
    """
    graph = condensed.graph
    start = int(np.argmax(graph.is_backward)) if graph.is_backward.any() else condensed.n
    may_cross = condensed.bytes < small
    cuts = _cuts(condensed, start, may_cross)
    while len(cuts) > 1:
        chain = _divided(condensed, start, cuts, _crossing(condensed, start, cuts, may_cross))
        if isinstance(chain, Chain):
            return chain
        cuts = [c for j, c in enumerate(cuts) if j not in chain]
    raise SolverError(
        f"graph {graph.name!r} is no chain of blocks: no operation of its forward pass, of {start} operations, "
        "separates what is before it from what follows in both passes; use 'optimal', which takes any graph"
    )


def _cuts(condensed: CondensedGraph, start: int, may_cross: np.ndarray) -> list[int]:
    """The last operations of blocks, ascending; the last one ends the forward pass, which is before ``start``."""
    reach = np.zeros(start + 1, dtype=np.int64)  # of operations before k: the last forward reader of their outputs
    for v, readers in enumerate(condensed.readers):
        k = int(condensed.producer[v])
        if k < start and not may_cross[v]:
            reach[k + 1] = max(reach[k + 1], max((r for r in readers if r < start), default=0))
    reach = np.maximum.accumulate(reach)
    cuts = []
    for k in range(start):
        crossing = [v for v in condensed.outputs[k] if condensed.readers[v][-1] > k and not may_cross[v]]
        saved = any(condensed.readers[v][-1] >= start and _goes_on(condensed, v, start) for v in crossing)
        if k == start - 1 or (reach[k] <= k and saved):
            cuts.append(k)
    return cuts


def _goes_on(condensed: CondensedGraph, v: int, start: int) -> bool:
    """Whether the forward pass reads group v."""
    return condensed.readers[v][0] < start


def _crossing(condensed: CondensedGraph, start: int, cuts: list[int], may_cross: np.ndarray) -> frozenset[int]:
    """Groups that cross one of the cuts and may."""
    block = np.searchsorted(cuts, np.arange(start))
    candidates = [v for v in np.flatnonzero(may_cross).tolist() if condensed.producer[v] < start]
    return frozenset(
        v for v in candidates if any(block[r] > block[condensed.producer[v]] for r in condensed.readers[v] if r < start)
    )


def _divided(condensed: CondensedGraph, start: int, cuts: list[int], shared: frozenset[int]) -> Chain | set[int]:
    """The chain with these cuts, or those of the cuts that its backward pass does not respect."""
    last = len(cuts)
    block = np.searchsorted(cuts, np.arange(start))
    boundary = []
    for c in cuts:
        final = c == start - 1
        groups = frozenset(v for v in condensed.outputs[c] if final or _goes_on(condensed, v, start))
        boundary.append(groups - shared)
    backward: list[list[int]] = [[] for _ in range(last + 1)]
    now = last
    for b in range(start, condensed.n):
        low, high = 0, last  # the blocks whose part of the backward pass may have this operation
        for v in condensed.inputs[b]:
            if condensed.producer[v] < start and v not in shared:
                j = int(block[condensed.producer[v]])
                low, high = max(low, j), min(high, j + (v in boundary[j]))
        if low > high or low > now:
            return set(range(min(high, now), min(low, last)))
        now = min(now, high)
        backward[now].append(b)
    forward = [tuple(np.flatnonzero(block == j).tolist()) for j in range(last)]
    return Chain(condensed, (*forward, ()), tuple(map(tuple, backward)), tuple(boundary), shared)
