"""The simulated allocator does what PyTorch's rules say, step by step, and what holds for every sequence."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from remat_explorer.allocator import AllocatorSettings, CachingAllocator
from remat_explorer.allocator import settings as sizes
from remat_explorer.allocator.blocks import Block
from remat_explorer.errors import OutOfMemoryError, RematError
from tests.allocator.sequences import EXPANDABLE, SEQUENCES, M, Sequence


def amount(text: str) -> int:
    """Bytes of "1 - 512 B": MiB and bytes."""
    parts = re.findall(r"(-?) ?([\d.]+)( B)?", text)
    return sum(int((-1 if sign else 1) * float(number) * (1 if unit else M)) for sign, number, unit in parts)


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence.name.replace(" ", "-"))
def test_a_sequence_takes_what_was_derived_by_hand(sequence: Sequence) -> None:
    allocator, blocks = CachingAllocator(sequence.settings), {}
    for line in sequence.steps.split("; "):
        step, _, counts = line.partition(": ")
        if step == "empty":
            allocator.release_cached()
        elif step.startswith("free "):
            allocator.free(blocks.pop(step.removeprefix("free ")))
        else:
            name, _, size = step.partition(" = ")
            blocks[name] = allocator.allocate(amount(size))
        assert [allocator.allocated, allocator.reserved] == [amount(count) for count in counts.split(", ")], line
    for name, offset in sequence.places.items():
        assert blocks[name].address - min(allocator.segments) == amount(offset), name
    assert allocator.retries == sequence.retries


def test_a_request_that_the_driver_cannot_serve_says_what_is_allocated_and_what_is_reserved() -> None:
    allocator = CachingAllocator(AllocatorSettings(capacity=30 * M))
    allocator.allocate(11 * M)
    message = r"20.0 MiB .* cannot be allocated: 12.0 MiB .* are allocated and 12.0 MiB .* reserved, of 30.0 MiB"
    with pytest.raises(OutOfMemoryError, match=message):
        allocator.allocate(20 * M)
    assert (allocator.allocated, allocator.reserved) == (12 * M, 12 * M)


def test_an_expandable_segment_that_cannot_grow_far_enough_gives_back_what_it_got() -> None:
    # Granules of a, b, c and d; those of a and c go back, and b is freed. With 2 MiB of the small pool, 42 of 80 MiB
    # are reserved. 60 MiB begin where a was: they get its granule (62 MiB), and not that of c. What is free goes back
    # then, which leaves d and the small granule, 22 MiB; 60 more are above 80.
    allocator = CachingAllocator(AllocatorSettings(expandable_segments=True, capacity=80 * M))
    a, b, c, d = (allocator.allocate(20 * M) for _ in range(4))
    for block in (a, c):
        allocator.free(block)
    allocator.release_cached()
    allocator.free(b)
    assert (allocator.allocated, allocator.reserved) == (20 * M, 40 * M)
    allocator.allocate(M)  # a granule of 2 MiB of the small pool
    allocator.highest_reserved()
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(60 * M)
    assert allocator.highest_reserved() == 62 * M
    assert (allocator.allocated, allocator.reserved) == (21 * M, 22 * M)
    assert d.allocated


def test_nothing_cannot_be_allocated_and_a_block_is_freed_once() -> None:
    allocator = CachingAllocator()
    for size in (0, -1):
        with pytest.raises(RematError, match=f"{size} bytes cannot be allocated"):
            allocator.allocate(size)
    block = allocator.allocate(1)
    allocator.free(block)
    with pytest.raises(RematError, match="is free already"):
        allocator.free(block)


@pytest.mark.parametrize("free_first", [False, True])
def test_a_segment_in_use_does_not_go_back(free_first: bool) -> None:
    allocator = CachingAllocator()
    first, second = allocator.allocate(M), allocator.allocate(M)
    if free_first:
        allocator.free(first)
    with pytest.raises(RematError, match="is in use"):
        allocator.release(first if free_first else second)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", AllocatorSettings()),
        ("expandable_segments:True", EXPANDABLE),
        (" max_split_size_mb:64 , expandable_segments:False,backend:native", AllocatorSettings(max_split_size=64 * M)),
    ],
)
def test_settings_are_read_as_pytorch_writes_them(text: str, settings: AllocatorSettings) -> None:
    assert AllocatorSettings.from_text(text) == settings
    both = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:99", "PYTORCH_ALLOC_CONF": text}
    assert AllocatorSettings.of_process(both) == settings  # the newer variable counts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_split_size_mb:20", "PyTorch wants more than 20 MiB"),
        ("max_split_size_mb:many", "max_split_size_mb is 'many'"),
        ("expandable_segments:yes", "expandable_segments is 'yes'"),
    ],
)
def test_settings_that_cannot_be_are_quoted(text: str, message: str) -> None:
    with pytest.raises(RematError, match=message):
        AllocatorSettings.from_text(text)


def test_the_sizes_are_those_of_the_pytorch_that_is_installed() -> None:
    torch = pytest.importorskip("torch")
    header = Path(torch.__file__).parent / "include" / "c10" / "core" / "AllocatorConfig.h"
    if not header.exists():
        pytest.skip("this PyTorch has no c10/core/AllocatorConfig.h")
    text = header.read_text()
    found = dict(re.findall(r"constexpr size_t (k\w+) = (\d+);", text)) | dict(
        re.findall(r"(large_segment_size_)\{(\d+)\}", text)
    )
    if len(found) < 6:
        pytest.skip("the sizes are in another file of this PyTorch")
    assert {name: int(size) for name, size in found.items()} == {
        "kMinBlockSize": sizes.LEAST_BLOCK,
        "kSmallSize": sizes.LARGEST_SMALL,
        "kSmallBuffer": sizes.SMALL_SEGMENT,
        "kMinLargeAlloc": sizes.LEAST_OWN,
        "kRoundLarge": sizes.SEGMENT_ROUNDING,
        "large_segment_size_": sizes.LARGE_SEGMENT,
    }


KINDS = {
    "plain": AllocatorSettings(),
    "expandable": AllocatorSettings(expandable_segments=True),
    "max-split-size": AllocatorSettings(max_split_size=32 * M),
    "little-memory": AllocatorSettings(capacity=200 * M),
    "little-memory-expandable": AllocatorSettings(expandable_segments=True, capacity=200 * M),
    "little-memory-max-split-size": AllocatorSettings(max_split_size=32 * M, capacity=200 * M),
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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_never_overlap_sums_are_in_order_and_what_is_freed_goes_back(kind: str, seed: int) -> None:
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
    for k in rng.permutation(len(blocks)):
        allocator.free(blocks[k])
    checked(allocator, [])  # free neighbours have joined
    assert allocator.reserved > 0
    allocator.release_cached()
    assert (allocator.reserved, allocator.segments) == (0, {})
