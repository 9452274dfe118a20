"""The simulated allocator does what PyTorch's rules say, step by step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remat_explorer.allocator import AllocatorSettings, CachingAllocator
from remat_explorer.allocator import settings as sizes
from remat_explorer.allocator.blocks import Block
from remat_explorer.errors import OutOfMemoryError, RematError
from tests.allocator.sequences import EXPANDABLE, SEQUENCES, K, M, Sequence

UNITS = {"": 1, "KiB": K, "MiB": M}


def amount(text: str) -> int:
    """Bytes of "1 MiB - 512"."""
    total = 0
    for sign, number, unit in re.findall(r"([+-]?) ?(\d+) ?(KiB|MiB|)", text):
        total += (-1 if sign == "-" else 1) * int(number) * UNITS[unit]
    return total


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence.name.replace(" ", "-"))
def test_a_sequence_takes_what_was_derived_by_hand(sequence: Sequence) -> None:
    allocator, blocks = CachingAllocator(sequence.settings), {}
    for step, allocated, reserved in sequence.steps:
        if step == "empty":
            allocator.release_cached()
        elif step.startswith("free "):
            allocator.free(blocks.pop(step.removeprefix("free ")))
        else:
            name, _, size = step.partition(" = ")
            blocks[name] = allocator.allocate(amount(size))
        assert (allocator.allocated, allocator.reserved) == (allocated, reserved), step
    lowest = min(allocator.segments)
    if sequence.places:
        assert {name: blocks[name].address - lowest for name in sequence.places} == sequence.places
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
    elsewhere = allocator.allocate(M)  # a granule of 2 MiB of the small pool
    allocator.highest_reserved()
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(60 * M)
    assert allocator.highest_reserved() == 62 * M
    assert (allocator.allocated, allocator.reserved) == (21 * M, 22 * M)
    assert d.allocated
    assert elsewhere.allocated


@pytest.mark.parametrize("size", [0, -1])
def test_nothing_cannot_be_allocated(size: int) -> None:
    with pytest.raises(RematError, match=f"{size} bytes cannot be allocated"):
        CachingAllocator().allocate(size)


def test_a_block_is_freed_once() -> None:
    allocator = CachingAllocator()
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


def test_an_expandable_segment_without_memory_is_forgotten() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    block: Block = allocator.allocate(3 * M)
    assert len(allocator.segments) == 1
    allocator.free(block)
    allocator.release_cached()
    assert (allocator.reserved, allocator.segments) == (0, {})


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", AllocatorSettings()),
        ("expandable_segments:True", EXPANDABLE),
        (" max_split_size_mb:64 , expandable_segments:False,backend:native", AllocatorSettings(max_split_size=64 * M)),
    ],
    ids=["nothing", "expandable", "max-split-size"],
)
def test_settings_are_read_as_pytorch_writes_them(text: str, settings: AllocatorSettings) -> None:
    assert AllocatorSettings.from_text(text) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_split_size_mb:20", "PyTorch wants more than 20 MiB"),
        ("max_split_size_mb:many", "max_split_size_mb is 'many'"),
        ("expandable_segments:yes", "expandable_segments is 'yes'"),
    ],
    ids=["too-small", "no-number", "no-truth-value"],
)
def test_settings_that_cannot_be_are_quoted(text: str, message: str) -> None:
    with pytest.raises(RematError, match=message):
        AllocatorSettings.from_text(text)


def test_the_newer_variable_counts_before_the_older_one() -> None:
    both = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": ""}
    assert not AllocatorSettings.of_process(both).expandable_segments


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
