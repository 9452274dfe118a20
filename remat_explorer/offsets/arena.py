"""One block of memory with an offset for everything that a plan holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from remat_explorer.offsets.check import check_offsets
from remat_explorer.offsets.rectangles import Rectangles
from remat_explorer.quantities import format_bytes, format_share


@dataclass(frozen=True, eq=False)
class Arena:
    """Offsets at which no two rectangles overlap; an arena that breaks a rule cannot be made.

    Attributes:
        rectangles: what lies in it, with lifetimes.
        offsets: where each lies, bytes, int64 of shape (rectangles,).
        alignment: bytes of which each offset and the size are a multiple.
        size: bytes of the whole block, resident bytes included.
        bound: no arena with this alignment is smaller; at least the most bytes at a time, each size rounded up to the
            alignment.

    Raises:
        ScheduleError: if two rectangles overlap, or one is not aligned, or not within the block.
    """

    rectangles: Rectangles
    offsets: np.ndarray
    alignment: int
    size: int
    bound: int

    def __post_init__(self) -> None:
        check_offsets(self.rectangles, self.offsets, self.alignment, self.size)

    @property
    def peak(self) -> int:
        """Most bytes that live at a time, not rounded up."""
        return self.rectangles.peak

    @property
    def gap(self) -> float:
        """(size - bound) / size: no arena is smaller by a larger share."""
        return (self.size - self.bound) / self.size if self.size else 0.0

    @property
    def optimal(self) -> bool:
        """Whether it is proven that no arena is smaller."""
        return self.size == self.bound

    @property
    def excess(self) -> float:
        """Size above the most bytes that live at a time, as a share of these."""
        return self.size / self.peak - 1 if self.peak else 0.0

    def to_document(self) -> dict[str, Any]:
        """Size, bound and gap, as JSON takes them."""
        return {"size": self.size, "bound": self.bound, "gap": self.gap, "alignment": self.alignment}

    def __str__(self) -> str:
        proven = "proven least" if self.optimal else f"within {format_share(self.gap)} of the least"
        return f"a pool of one block: {format_bytes(self.size)}, {proven}"
