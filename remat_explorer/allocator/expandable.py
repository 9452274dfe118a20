"""Expandable segments: one range of addresses for each pool, which gets memory where it is needed.

Where several places would do, the lowest address gets the memory. Memory is taken and given back by granules of 2 MiB
in the small pool and of 20 MiB in the large one, so an address has memory with its whole granule or not at all.
"""

from __future__ import annotations

from remat_explorer.allocator.blocks import Block, Driver, Pool, Segment
from remat_explorer.allocator.settings import LARGE_SEGMENT, SMALL_SEGMENT
from remat_explorer.quantities import MOST_BYTES


def grown(pool: Pool, size: int, driver: Driver, segments: dict[int, Segment]) -> Block | None:
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
