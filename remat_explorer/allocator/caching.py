"""A simulation of PyTorch's CUDA caching allocator, on one stream of one device.

The rules are those of PyTorch's ``c10/cuda/CUDACachingAllocator.cpp`` in the versions that take sizes from
``c10/core/AllocatorConfig.h`` (``large_segment_size``), as 2.13 does; older ones differ in nothing that is modelled,
where they were read. A request is rounded up to 512 bytes. Up to 1 MiB it belongs to the small pool, else
to the large one. The smallest free block of its pool that is large enough serves it, of several the one with the lowest
address. Where none is, a segment comes from the driver: of 2 MiB in the small pool; in the large one of 20 MiB for less
than 10 MiB, and else of the request rounded up to 2 MiB. What is left of a block is split off where it has at least
512 bytes (small pool, and expandable segments) or more than 1 MiB (large pool). A block that is freed joins its free
neighbours, and its segment is kept. Where the driver has no more, segments that are free as a whole go back, and it is
asked again.

Not modelled: several streams, and blocks that wait for another one; private pools, such as those of CUDA graphs;
``roundup_power2_divisions``, ``garbage_collection_threshold``, ``large_segment_size_mb`` and
``max_non_split_rounding_mb``; where the driver puts a segment, which decides between free blocks of equal size.

Expandable segments are one range of addresses for each pool, which gets memory where it is needed. Where several places
would do, the lowest address gets the memory. Memory is taken and given back by granules of 2 MiB in the small pool and
of 20 MiB in the large one, so an address has memory with its whole granule or not at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from remat_explorer.allocator.blocks import Block, Driver, Pool, Segment
from remat_explorer.allocator.settings import (
    LARGE_SEGMENT,
    LARGEST_SMALL,
    LEAST_BLOCK,
    SMALL_SEGMENT,
    AllocatorSettings,
    block_bytes,
    segment_bytes,
)
from remat_explorer.errors import OutOfMemoryError, RematError
from remat_explorer.quantities import MOST_BYTES, exact_bytes


def grow_block(pool: Pool, size: int, driver: Driver, segments: dict[int, Segment]) -> Block | None:
    """A block of at least ``size`` bytes that is in no list, with new memory at its end; None where there is none.

    What the driver gave before it ran out stays, as a free block.
    """
    block = _lowest_room(pool, size) or _new_segment(pool, driver, segments)
    if not block.mapped and not _map(block, min(block.size, size), pool, driver):
        return None
    while block.size < size:
        following = block.next
        assert following is not None  # there is room for `size` bytes
        if not _map(following, min(size - block.size, following.size), pool, driver):
            return None
        block = following  # joined with the block before it
    pool.remove(block)
    return block


def unmap(block: Block, pool: Pool, driver: Driver) -> int:
    """Give back the granules that lie within a free block; the bytes that were given back."""
    segment = block.segment
    begin, end = block.address - segment.address, block.address + block.size - segment.address
    first, last = -(-begin // segment.granule) * segment.granule, end // segment.granule * segment.granule
    if first >= last:
        return 0
    pool.remove(block)
    if last < end:
        pool.add(block.cut(last - begin))
    if begin < first:
        middle = block.cut(first - begin)
        pool.add(block)
        block = middle
    block.mapped = False
    pool.merge(block, block.previous)
    pool.merge(block, block.next)
    pool.add(block)
    driver.give_back(last - first)
    return last - first


def _lowest_room(pool: Pool, size: int) -> Block | None:
    """The block with the lowest address at which ``size`` bytes are free or without memory."""
    for _, unmapped in pool.unmapped:
        before = unmapped.previous
        start = unmapped if before is None or before.allocated else before
        room, block = 0, start
        while room < size and block is not None and not block.allocated:
            room += block.size
            block = block.next
        if room >= size:
            return start
    return None


def _new_segment(pool: Pool, driver: Driver, segments: dict[int, Segment]) -> Block:
    granule = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
    size = -(-MOST_BYTES // granule) * granule  # PyTorch: 9/8 of the memory of the device
    segment = Segment(driver.address(size), size, granule, pool)
    segments[segment.address] = segment
    segment.first.mapped = False
    pool.add(segment.first)
    return segment.first


def _map(block: Block, size: int, pool: Pool, driver: Driver) -> bool:
    """Give the first ``size`` bytes of a block memory, rounded up to granules, and join it with its neighbours."""
    granule = block.segment.granule
    size = -(-size // granule) * granule
    if not driver.take(size):
        return False
    pool.remove(block)
    if size < block.size:
        pool.add(block.cut(size))
    block.mapped = True
    pool.merge(block, block.previous)
    pool.merge(block, block.next)
    pool.add(block)
    return True


class CachingAllocator:
    """The allocator, with nothing allocated.

    Args:
        settings: those of PyTorch's defaults, unless others are given.
        place: the address of the next segment, given its bytes; without, each lies behind the one before it.

    Attributes:
        requested: bytes that are asked for and not freed.
        allocated: bytes of the blocks that are handed out, which are rounded up.
        segments: what was taken from the driver, by address.
        retries: how often cached segments had to go back, so that a request could be served.

    >>> allocator = CachingAllocator()
    >>> block = allocator.allocate(1000)
    >>> allocator.requested, allocator.allocated, allocator.reserved
    (1000, 1024, 2097152)
    >>> allocator.free(block)
    >>> allocator.requested, allocator.allocated, allocator.reserved
    (0, 0, 2097152)
    """

    def __init__(self, settings: AllocatorSettings | None = None, place: Callable[[int], int] | None = None) -> None:
        self.settings = settings or AllocatorSettings()
        self.requested = self.allocated = self.retries = 0
        self.segments: dict[int, Segment] = {}
        self._small, self._large = Pool(small=True), Pool(small=False)
        self._driver = Driver(self.settings.capacity, place)
        self._expandable = self.settings.expandable_segments
        self._most = self.settings.max_split_size

    @property
    def reserved(self) -> int:
        """Bytes that are taken from the driver."""
        return self._driver.reserved

    def highest_reserved(self) -> int:
        """The most bytes that were taken from the driver since this was asked last."""
        found, self._driver.highest = self._driver.highest, self._driver.reserved
        return found

    def allocate(self, requested: int) -> Block:
        """A block for ``requested`` bytes.

        Raises:
            RematError: if that is not at least 1 byte; PyTorch asks for nothing where a tensor is empty.
            OutOfMemoryError: if the driver has too little, after cached segments have gone back.
        """
        if requested <= 0:
            raise RematError(f"{requested} bytes cannot be allocated; ask for at least 1")
        size = block_bytes(requested)
        pool = self._small if size <= LARGEST_SMALL else self._large
        block = self._cached(pool, size) or self._taken(pool, size)
        rest = block.size - size
        if rest >= LEAST_BLOCK if pool.small or self._expandable else rest > LARGEST_SMALL and self._split(size):
            pool.add(block.cut(size))
        block.allocated, block.requested = True, requested
        self.requested += requested
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        """Take a block back, and join it with its free neighbours.

        Raises:
            RematError: if it is not handed out.
        """
        if not block.allocated:
            raise RematError(f"the block at address {block.address} is free already")
        self.requested -= block.requested
        self.allocated -= block.size
        block.allocated, block.requested = False, 0
        pool = block.segment.pool
        pool.merge(block, block.previous)
        pool.merge(block, block.next)
        pool.add(block)

    def release_cached(self) -> None:
        """Give all segments that are free as a whole, and all granules that are, back to the driver."""
        for pool in (self._large, self._small):
            for _, _, block in list(pool.free):
                if block.segment.granule or block.whole:
                    self.release(block)

    def release(self, block: Block) -> None:
        """Give back the segment of a free block, or of an expandable one the granules within the block.

        Raises:
            RematError: if the block is handed out, or not all of its segment.
        """
        segment = block.segment
        if block.allocated or not (segment.granule or block.whole):
            raise RematError(f"the segment at address {segment.address} is in use and cannot go back")
        if segment.granule:
            if unmap(block, segment.pool, self._driver) and segment.first.whole:
                segment.pool.remove(segment.first)
                del self.segments[segment.address]
            return
        segment.pool.remove(block)
        del self.segments[segment.address]
        self._driver.give_back(block.size)

    def _split(self, size: int) -> bool:
        """Whether a block of the large pool may be split for a request of ``size`` bytes."""
        return self._most is None or size < self._most

    def _cached(self, pool: Pool, size: int) -> Block | None:
        """The free block that serves a request, taken out of its pool; None where none does."""
        free = pool.free
        at = bisect_left(free, (size,))
        if at == len(free):
            return None
        if self._expandable:  # a block counts with what it can grow to
            while at + 1 < len(free) and _room(free[at + 1][2]) < _room(free[at][2]):
                at += 1
        found = free[at][0]
        if self._most is not None:
            if size < self._most <= found:
                return None  # an oversize block is for oversize requests
            if size >= self._most and found >= size + LARGE_SEGMENT:
                return None  # and for those that waste less than 20 MiB of it
        return free.pop(at)[2]

    def _taken(self, pool: Pool, size: int) -> Block:
        """A block with new memory, in no list; cached segments go back where the driver has none."""
        block = self._new(pool, size)
        if block is None and self._release_oversize(pool, size):
            block = self._new(pool, size)
        if block is None:
            self.release_cached()
            self.retries += 1
            block = self._new(pool, size)
        if block is None:
            raise OutOfMemoryError(
                f"{exact_bytes(size)} cannot be allocated: {exact_bytes(self.allocated)} are allocated and "
                f"{exact_bytes(self.reserved)} reserved, of {exact_bytes(self.settings.capacity or 0)} in all"
            )
        return block

    def _new(self, pool: Pool, size: int) -> Block | None:
        if self._expandable:
            return grow_block(pool, size, self._driver, self.segments)
        whole = segment_bytes(size)
        if not self._driver.take(whole):
            return None
        segment = Segment(self._driver.address(whole), whole, 0, pool)
        self.segments[segment.address] = segment
        return segment.first

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """Give back the smallest oversize segment that is large enough, or several, largest first; whether it did."""
        if self._most is None or self._expandable:
            return False
        wanted = max(size, self._most)
        at = bisect_left(pool.free, (wanted,))
        if at < len(pool.free):
            self.release(pool.free[at][2])
            return True
        released = 0
        while released < wanted and pool.free and pool.free[-1][0] >= self._most:
            released += pool.free[-1][0]
            self.release(pool.free[-1][2])
        return released >= wanted


def _room(block: Block) -> int:
    """Bytes that a free block has, and those behind it that could get memory."""
    following = block.next
    return block.size + (0 if following is None or following.mapped else following.size)
