"""A budget that CUDA's allocator enforces itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

LARGE, SMALL = 20 * 2**20, 2 * 2**20  # bytes that the caching allocator takes at a time, from 1 to 10 MiB and up to 1
MARGIN = LARGE + SMALL


@contextlib.contextmanager
def hard_cap(device: torch.device, room: int, wanted: bool = True) -> Iterator[None]:
    """Let the allocator refuse more than ``room`` bytes beside what the process holds when the context is entered.

    The allocator counts reserved bytes, which are those that it took from the driver. For requests of 1 to 10 MiB it
    takes 20 MiB, and for those of up to 1 MiB 2 MiB, so that one block of each may be all but empty when the last byte
    is asked for: as much is left as a margin. What fits to the byte may be refused all the same, where blocks are
    fragmented.

    A fraction of memory that the person has set (`torch.cuda.set_per_process_memory_fraction`) holds if it allows less,
    and is set again afterwards.

    Args:
        device: where the cap holds; on the CPU there is none, and nothing is enforced.
        room: bytes.
        wanted: whether to enforce anything.

    Source: the sizes are the defaults of PyTorch's caching allocator (kLargeBuffer and kSmallBuffer of
    c10/core/AllocatorConfig.h); ``large_segment_size_mb`` in PYTORCH_ALLOC_CONF makes the first one larger.
    """
    if device.type != "cuda" or not wanted:
        yield
        return
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    before = torch.cuda.get_per_process_memory_fraction(device)
    total = torch.cuda.get_device_properties(device).total_memory  # what a fraction is of
    share = (torch.cuda.memory_reserved(device) + room + MARGIN) / total
    torch.cuda.set_per_process_memory_fraction(min(before, max(0.0, share)), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(before, device)
