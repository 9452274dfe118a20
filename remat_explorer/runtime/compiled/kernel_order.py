"""Which operations of a compiler may share a kernel, so that the order of a plan and its memory stay."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Buffer:
    """Memory that operations write and read.

    Attributes:
        size: bytes.
        maker: the operation that writes it; None for what is there before the first one.
        readers: operations that read it.
        followers: operations that have to come after its maker; those that read it are among them.
        held: whether it stays to the end.
        over: readers that may put a result of theirs in its place.
    """

    size: int
    maker: int | None
    readers: tuple[int, ...]
    followers: tuple[int, ...] = ()
    held: bool = False
    over: frozenset[int] = frozenset()


class Order:
    """Operations in the order of a plan, some of them joined to kernels, and the memory that this takes.

    A kernel needs all that it reads and all that it writes at one time; what only its own operations read is never in
    memory. A result takes the place of an input of the same size that the same operation reads last.

    Args:
        operations: how many there are; they begin in the order of their numbers.
        buffers: what they read and write.

    >>> made = [Buffer(4, k, (k + 1,), (k + 1,)) for k in range(2)]
    >>> order = Order(3, [*made, Buffer(4, 2, (), held=True)])
    >>> order.peak, order.joined(0, 1).peak, order.joined(0, 1).joined(1, 2).peak
    (8, 8, 4)
    """

    def __init__(self, operations: int, buffers: Sequence[Buffer]) -> None:
        self._links = _Links(operations, buffers)
        self._state = _State(np.arange(operations), np.arange(operations), *np.zeros((3, len(buffers)), np.int64))
        self._measure(range(len(buffers)))

    @property
    def peak(self) -> int:
        """The most bytes of buffers at a time."""
        return int(self._live.max(initial=0))

    def place_of(self, operation: int) -> int:
        """Where the kernel of an operation runs; kernels run in the order of their places."""
        return int(self._state.place[self._state.kernel[operation]])

    def joined(self, one: int, other: int) -> Order | None:
        """The order in which two operations, and what is joined to them, run in one kernel where that takes least.

        The kernel runs where the later one of the two ran, or where the earlier one did. None if something in between
        stands against both, since it reads what the first makes, or makes what the second reads.
        """
        early, late = sorted((int(self._state.kernel[k]) for k in (one, other)), key=lambda k: self._state.place[k])
        if early == late:
            return self
        places = []
        if not self._between(early, late, self._links.after, early):
            places.append(int(self._state.place[late]))
        if not self._between(early, late, self._links.before, late):
            places.append(int(self._state.place[early]))
        return min((self._with(early, late, place) for place in places), key=lambda order: order.peak, default=None)

    def _between(self, early: int, late: int, related: Sequence[set[int]], moved: int) -> bool:
        """Whether a kernel between the two is related to the one that would move past it."""
        state = self._state
        found = {int(state.kernel[k]) for member in state.members(moved) for k in related[member]}
        return any(state.place[early] < state.place[kernel] < state.place[late] for kernel in found)

    def _with(self, early: int, late: int, place: int) -> Order:
        state = self._state.copy()
        members = [*state.members(early), *state.members(late)]
        state.kernel[members] = early
        state.place[early] = place
        order = copy(self)
        order._state = state
        order._measure(sorted({k for member in members for k in self._links.near[member]}))
        return order

    def _measure(self, changed: Sequence[int]) -> None:
        """Give these buffers their first and last place and their bytes, and sum up all."""
        state = self._state
        for k in changed:
            state.first[k], state.last[k], state.bytes[k] = self._lifetime(k)
        steps = np.zeros(len(state.kernel) + 1, np.int64)
        np.add.at(steps, state.first, state.bytes)
        np.subtract.at(steps, state.last + 1, state.bytes)
        self._live = np.cumsum(steps[:-1])

    def _lifetime(self, k: int) -> tuple[int, int, int]:
        buffer = self._links.buffers[k]
        if self._is_inside(k):
            return 0, 0, 0
        first = 0 if buffer.maker is None else self.place_of(buffer.maker)
        if buffer.held:
            return first, len(self._state.kernel) - 1, buffer.size
        last = max((self.place_of(reader) for reader in buffer.readers), default=first)
        return first, last - self._is_taken(k), buffer.size

    def _is_inside(self, k: int) -> bool:
        """Whether a buffer is read by the operations of its own kernel alone."""
        buffer = self._links.buffers[k]
        if buffer.maker is None or buffer.held or not buffer.readers:
            return False
        return len({int(self._state.kernel[x]) for x in (buffer.maker, *buffer.readers)}) == 1

    def _is_taken(self, k: int) -> bool:
        """Whether a result takes the place of a buffer; of several inputs that could go, the first does."""
        links, reader = self._links, self._last_alone(k)
        if reader is None:
            return False
        size = links.buffers[k].size
        if not any(links.buffers[made].size == size and not self._is_inside(made) for made in links.made[reader]):
            return False
        others = (j for j in links.read[reader] if j < k and links.buffers[j].size == size)
        return all(self._last_alone(j) != reader for j in others)

    def _last_alone(self, k: int) -> int | None:
        """The one operation that reads a buffer in the last kernel that does, if it may write over it."""
        buffer = self._links.buffers[k]
        if buffer.held or not buffer.over or self._is_inside(k):
            return None
        last = max(self.place_of(reader) for reader in buffer.readers)
        readers = [reader for reader in buffer.readers if self.place_of(reader) == last]
        made_there = buffer.maker is not None and self.place_of(buffer.maker) == last
        return readers[0] if len(readers) == 1 and readers[0] in buffer.over and not made_there else None


@dataclass(frozen=True)
class _State:
    """Kernels and lifetimes.

    Attributes:
        kernel: of each operation, called by one of its operations.
        place: of each kernel.
        first, last, bytes: of each buffer: the places between which it is in memory, and what it takes there.
    """

    kernel: Array
    place: Array
    first: Array
    last: Array
    bytes: Array

    def copy(self) -> _State:
        return replace(self, **{name: array.copy() for name, array in vars(self).items()})

    def members(self, kernel: int) -> list[int]:
        return np.flatnonzero(self.kernel == kernel).tolist()


class _Links:
    """How operations and buffers are connected, which fusion does not change."""

    def __init__(self, operations: int, buffers: Sequence[Buffer]) -> None:
        self.buffers = tuple(buffers)
        self.made: list[list[int]] = [[] for _ in range(operations)]
        self.read: list[list[int]] = [[] for _ in range(operations)]
        self.after: list[set[int]] = [set() for _ in range(operations)]
        self.before: list[set[int]] = [set() for _ in range(operations)]
        for k, buffer in enumerate(self.buffers):
            for reader in buffer.readers:
                self.read[reader].append(k)
            if buffer.maker is not None:
                self.made[buffer.maker].append(k)
                for follower in {*buffer.followers, *buffer.readers} - {buffer.maker}:
                    self.after[buffer.maker].add(follower)
                    self.before[follower].add(buffer.maker)

    @cached_property
    def near(self) -> list[set[int]]:
        """The buffers whose lifetime may change with the kernel of an operation."""
        touched = [{*made, *read} for made, read in zip(self.made, self.read, strict=True)]
        return [{j for k in ks for x in self.buffers[k].readers for j in touched[x]} | ks for ks in touched]
