"""What holds for every sequence of requests, drawn at random."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from remat_explorer.allocator import AllocatorSettings, CachingAllocator
from remat_explorer.allocator.blocks import Block
from remat_explorer.errors import OutOfMemoryError

MIB = 1 << 20
KINDS = {
    "plain": AllocatorSettings(),
    "expandable": AllocatorSettings(expandable_segments=True),
    "max-split-size": AllocatorSettings(max_split_size=32 * MIB),
    "little-memory": AllocatorSettings(capacity=200 * MIB),
    "little-memory-expandable": AllocatorSettings(expandable_segments=True, capacity=200 * MIB),
    "little-memory-max-split-size": AllocatorSettings(max_split_size=32 * MIB, capacity=200 * MIB),
}


def drawn(rng: np.random.Generator) -> int:
    """A size from one byte to 64 MiB, of every order of magnitude; half of them multiples of 512."""
    size = int(2 ** rng.uniform(0, 26))
    return size if rng.random() < 0.5 else max(512, size // 512 * 512)


def checked(allocator: CachingAllocator, blocks: list[Block]) -> None:
    """Blocks tile their segments, sums are what the allocator says, and every order is kept."""
    allocated = requested = reserved = 0
    handed_out = set()
    for address, segment in allocator.segments.items():
        end, before = address, None
        for block in segment.blocks():
            assert block.address == end
            assert block.size > 0
            assert block.size % 512 == 0
            assert block.previous is before
            assert block.segment is segment
            if before is not None and not block.allocated and not before.allocated:
                assert block.mapped != before.mapped  # free neighbours have joined
            if block.allocated:
                assert block.mapped
                assert block.requested <= block.size
                handed_out.add(id(block))
                allocated, requested = allocated + block.size, requested + block.requested
            reserved += block.size * block.mapped
            end, before = end + block.size, block
        assert end == address + segment.size
    assert handed_out == {id(block) for block in blocks}
    assert (allocator.requested, allocator.allocated, allocator.reserved) == (requested, allocated, reserved)
    assert requested <= allocated <= reserved
    ranges = sorted((block.address, block.address + block.size) for block in blocks)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_never_overlap_and_requested_allocated_reserved_are_in_this_order(kind: str, seed: int) -> None:
    rng, allocator = np.random.default_rng(seed), CachingAllocator(KINDS[kind])
    blocks: list[Block] = []
    for _ in range(300):
        if blocks and rng.random() < 0.5:
            allocator.free(blocks.pop(int(rng.integers(len(blocks)))))
        elif rng.random() < 0.02:
            allocator.release_cached()
        else:
            try:
                blocks.append(allocator.allocate(drawn(rng)))
            except OutOfMemoryError:
                allocator.free(blocks.pop(0))
        checked(allocator, blocks)
        assert allocator.reserved <= (allocator.settings.capacity or allocator.reserved)


@pytest.mark.parametrize("kind", KINDS)
def test_when_all_is_freed_each_segment_is_one_block_and_can_go_back(kind: str) -> None:
    rng, allocator = np.random.default_rng(7), CachingAllocator(KINDS[kind])
    blocks = [allocator.allocate(drawn(rng)) for _ in range(40)]
    for k in rng.permutation(len(blocks)):
        allocator.free(blocks[k])
    for segment in allocator.segments.values():
        assert len([block for block in segment.blocks() if block.mapped]) == 1
    assert allocator.reserved > 0
    allocator.release_cached()
    assert (allocator.reserved, allocator.segments) == (0, {})


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_requests_take_the_same_memory(kind: str) -> None:
    def addresses() -> list[int]:
        rng, allocator = np.random.default_rng(3), CachingAllocator(KINDS[kind])
        return [allocator.allocate(drawn(rng)).address for _ in range(30)]

    assert addresses() == addresses()
