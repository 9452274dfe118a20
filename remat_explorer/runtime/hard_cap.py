"""A budget that CUDA's allocator enforces itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def hard_cap(device: torch.device, room: int, wanted: bool = True) -> Iterator[None]:
    """Let the allocator refuse more than ``room`` bytes beside what the process holds when the context is entered.

    The allocator counts reserved bytes, which are those that it took from the driver. It takes them in blocks of up to
    20 MiB, so that it may refuse what would have fitted to the byte: one such block is left as a margin.

    Args:
        device: where the cap holds; on the CPU there is none, and nothing is enforced.
        room: bytes.
        wanted: whether to enforce anything.
    """
    if device.type != "cuda" or not wanted:
        yield
        return
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device).total_memory
    share = (torch.cuda.memory_reserved(device) + room + BLOCK) / total
    torch.cuda.set_per_process_memory_fraction(min(1.0, max(0.0, share)), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


BLOCK = 20 * 2**20  # bytes that the caching allocator takes from the driver for requests of 1 to 10 MiB
