"""Blocks, the segments that they divide, the pools of free ones, and the driver that segments come from."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from remat_explorer.allocator.settings import SEGMENT_ROUNDING


class Segment:
    """A range of addresses, divided into blocks.

    An expandable one has ``size`` addresses, of which only some have memory, and gets memory by ``granule`` bytes; that
    is 0 for a segment that the driver gave as a whole.
    """

    __slots__ = ("address", "first", "granule", "pool", "size")

    def __init__(self, address: int, size: int, granule: int, pool: Pool) -> None:
        self.address, self.size, self.granule, self.pool = address, size, granule, pool
        self.first = Block(address, size, self)

    def blocks(self) -> Iterator[Block]:
        """Its blocks in the order of their addresses."""
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.next


class Block:
    """A part of a segment: handed out, free, or without memory.

    ``requested`` bytes were asked for, where it is handed out.
    """

    __slots__ = ("address", "allocated", "mapped", "next", "previous", "requested", "segment", "size")

    def __init__(self, address: int, size: int, segment: Segment) -> None:
        self.address, self.size, self.segment = address, size, segment
        self.requested = 0
        self.allocated = False
        self.mapped = True
        self.previous: Block | None = None
        self.next: Block | None = None

    @property
    def whole(self) -> bool:
        """Whether it is all of its segment."""
        return self.previous is None and self.next is None

    def cut(self, size: int) -> Block:
        """Keep the first ``size`` bytes; the rest is a new block, which is returned."""
        rest = Block(self.address + size, self.size - size, self.segment)
        rest.mapped = self.mapped
        rest.previous, rest.next = self, self.next
        if rest.next is not None:
            rest.next.previous = rest
        self.next, self.size = rest, size
        return rest


class Pool:
    """The blocks of one pool that are not handed out, and its rule for small requests or large ones."""

    __slots__ = ("free", "small", "unmapped")

    def __init__(self, small: bool) -> None:
        self.small = small
        self.free: list[tuple[int, int, Block]] = []  # by size, then by address
        self.unmapped: list[tuple[int, Block]] = []  # by address

    def add(self, block: Block) -> None:
        """Take in a block that is not handed out."""
        if block.mapped:
            insort(self.free, (block.size, block.address, block))
        else:
            insort(self.unmapped, (block.address, block))

    def remove(self, block: Block) -> None:
        """Give up a block that was taken in."""
        if block.mapped:
            del self.free[bisect_left(self.free, (block.size, block.address))]
        else:
            del self.unmapped[bisect_left(self.unmapped, (block.address,))]

    def merge(self, block: Block, neighbour: Block | None) -> None:
        """Join ``block``, which is in no list, with a neighbour that is: with memory both, or without both."""
        if neighbour is None or neighbour.allocated or neighbour.mapped != block.mapped:
            return
        self.remove(neighbour)
        if neighbour is block.previous:
            block.address = neighbour.address
            block.previous = neighbour.previous
            if block.previous is None:
                block.segment.first = block
            else:
                block.previous.next = block
        else:
            block.next = neighbour.next
            if block.next is not None:
                block.next.previous = block
        block.size += neighbour.size


class Driver:
    """Where segments come from.

    ``place`` gives the address of the next segment, given its bytes; without it, each lies behind the one before.
    ``highest`` is the most bytes that were taken since this was set last.
    """

    def __init__(self, capacity: int | None = None, place: Callable[[int], int] | None = None) -> None:
        self.reserved = self.highest = 0
        self._capacity, self._place, self._next = capacity, place, 0

    def take(self, size: int) -> bool:
        """Take ``size`` bytes, if it has them."""
        if self._capacity is not None and self.reserved + size > self._capacity:
            return False
        self.reserved += size
        self.highest = max(self.highest, self.reserved)
        return True

    def give_back(self, size: int) -> None:
        """Return ``size`` bytes."""
        self.reserved -= size

    def address(self, size: int) -> int:
        """Where a segment of ``size`` bytes lies."""
        if self._place is not None:
            return self._place(size)
        found = self._next
        self._next += -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING
        return found
