"""First fit in the order of time, without anything compiled: offsets at once, while a search looks for better ones.

It places as an allocator does while a program runs: each storage at the lowest offset that is free when it begins.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from remat_explorer.offsets.arena import Arena
from remat_explorer.offsets.rectangles import Rectangles


def place_at_once(rectangles: Rectangles, alignment: int = 1) -> Arena:
    """Offsets by first fit, in the order in which the rectangles begin.

    Args:
        rectangles: with their lifetimes.
        alignment: bytes of which each offset is a multiple.

    >>> arena = place_at_once(Rectangles.from_rows([(0, 2, 4), (1, 4, 4), (3, 6, 4)]))
    >>> arena.offsets.tolist(), arena.size
    ([0, 4, 0], 8)
    """
    units = (-(-rectangles.size // alignment)).tolist()
    begins, ends = rectangles.begin.tolist(), rectangles.end.tolist()
    offsets = [0] * len(units)
    gaps: list[tuple[int, int]] = []  # offset and end of each, in units, ascending; above `top` all is free
    living: list[tuple[int, int]] = []  # end and rectangle, the next to end first
    top = highest = 0
    for r in sorted(range(len(units)), key=begins.__getitem__):
        while living and living[0][0] <= begins[r]:
            ended = living.pop(0)[1]
            top = _give_back(gaps, offsets[ended], offsets[ended] + units[ended], top)
        place = next((i for i, (low, high) in enumerate(gaps) if high - low >= units[r]), None)
        if place is None:
            offsets[r] = top
            top += units[r]
        else:
            low, high = gaps.pop(place)
            offsets[r] = low
            if low + units[r] < high:
                gaps.insert(place, (low + units[r], high))
        highest = max(highest, top)
        insort(living, (ends[r], r))
    placed = np.array(offsets, dtype=np.int64) * alignment
    bound = rectangles.peak_of(np.array(units, dtype=np.int64)) * alignment
    return Arena(rectangles, placed, alignment, highest * alignment, bound)


def _give_back(gaps: list[tuple[int, int]], low: int, high: int, top: int) -> int:
    """Join what is free again with the gaps beside it; returns the top, which sinks where the highest one is free."""
    place = bisect_left(gaps, (low, high))
    if place < len(gaps) and gaps[place][0] == high:
        high = gaps.pop(place)[1]
    if place > 0 and gaps[place - 1][1] == low:
        place -= 1
        low = gaps.pop(place)[0]
    if high == top:
        return low
    gaps.insert(place, (low, high))
    return top
