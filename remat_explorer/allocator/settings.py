"""The sizes and settings of PyTorch's CUDA caching allocator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from remat_explorer.entry_checks import require_bytes
from remat_explorer.errors import RematError, shown

MIB = 1 << 20
LEAST_BLOCK = 512  # kMinBlockSize: every block is a multiple of it
LARGEST_SMALL = 1 * MIB  # kSmallSize: the largest block of the small pool
SMALL_SEGMENT = 2 * MIB  # kSmallBuffer: every segment of the small pool
LARGE_SEGMENT = 20 * MIB  # large_segment_size: a segment of the large pool for blocks below `LEAST_OWN`
LEAST_OWN = 10 * MIB  # kMinLargeAlloc: the smallest block that gets a segment of its own size
SEGMENT_ROUNDING = 2 * MIB  # kRoundLarge: what segments for larger blocks are a multiple of
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # the first one that is set counts


@dataclass(frozen=True)
class AllocatorSettings:
    """How the allocator is set, as in ``PYTORCH_ALLOC_CONF``.

    Attributes:
        expandable_segments: one segment for each pool, which grows, in place of one for each request to the driver.
        max_split_size: blocks of at least so many bytes are neither split nor given to smaller requests; None where
            all may be split.
        capacity: bytes that the driver has in all; None for any number.

    Raises:
        RematError: if a size is no number of bytes, or the largest block to be split is not above 20 MiB.

    >>> AllocatorSettings.from_text("expandable_segments:True,max_split_size_mb:64")
    AllocatorSettings(expandable_segments=True, max_split_size=67108864, capacity=None)
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    capacity: int | None = None

    def __post_init__(self) -> None:
        if self.capacity is not None:
            require_bytes(self.capacity, "the capacity of the allocator", RematError)
        if self.max_split_size is None:
            return
        require_bytes(self.max_split_size, "the largest block that is split", RematError)
        if self.max_split_size <= LARGE_SEGMENT:
            raise RematError(
                f"the largest block that is split is {shown(self.max_split_size)} bytes; PyTorch wants more than 20 MiB"
            )

    @staticmethod
    def from_text(text: str) -> AllocatorSettings:
        """The settings that ``text`` gives, in the form of ``PYTORCH_ALLOC_CONF``; other settings are not modelled.

        Raises:
            RematError: if the value of a setting that is modelled cannot be read.
        """
        expandable, most = False, None
        for name, _, value in (entry.strip().partition(":") for entry in text.split(",")):
            if name == "expandable_segments":
                if value.strip().lower() not in ("true", "false"):
                    raise RematError(f"expandable_segments is {shown(value)}; expected True or False")
                expandable = value.strip().lower() == "true"
            elif name == "max_split_size_mb":
                if not value.strip().isdecimal():
                    raise RematError(f"max_split_size_mb is {shown(value)}; expected a whole number of MiB")
                most = int(value) * MIB
        return AllocatorSettings(expandable, most)

    @staticmethod
    def of_process(environment: Mapping[str, str] = os.environ) -> AllocatorSettings:
        """The settings of the variables that PyTorch reads, `VARIABLES`.

        Raises:
            RematError: as `from_text`.

        >>> AllocatorSettings.of_process({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}).expandable_segments
        True
        """
        return AllocatorSettings.from_text(next((environment[name] for name in VARIABLES if name in environment), ""))


def block_bytes(requested: int) -> int:
    """What a request is rounded up to, bytes.

    >>> block_bytes(1), block_bytes(512), block_bytes(513)
    (512, 512, 1024)
    """
    return max(LEAST_BLOCK, -(-requested // LEAST_BLOCK) * LEAST_BLOCK)


def segment_bytes(size: int) -> int:
    """What is taken from the driver for a block of ``size`` bytes, without expandable segments.

    >>> [segment_bytes(size) // MIB for size in (512, MIB, MIB + 512, 10 * MIB, 11 * MIB)]
    [2, 2, 20, 10, 12]
    """
    if size <= LARGEST_SMALL:
        return SMALL_SEGMENT
    if size < LEAST_OWN:
        return LARGE_SEGMENT
    return -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING
