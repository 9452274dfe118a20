"""The check of an arena, which shares no code with the search: lifetimes and offsets are all it reads.

It goes through time with the rectangles in memory in the order of their offsets. What begins must fit between its two
neighbours, so every pair that shares a moment is kept apart.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.offsets.rectangles import Rectangles


def check_offsets(rectangles: Rectangles, offsets: np.ndarray, alignment: int, size: int) -> None:
    """Refuse offsets at which two rectangles overlap, or one is not aligned, or not within the arena."""
    if len(offsets) != len(rectangles):
        raise ScheduleError(f"{len(offsets)} offsets for {len(rectangles)} rectangles; expected one for each")
    low = [int(offset) for offset in offsets]
    high = [offset + int(height) for offset, height in zip(low, rectangles.size, strict=True)]
    events: list[tuple[int, int, int]] = []
    for r in range(len(low)):
        if low[r] < 0 or high[r] > size:
            raise ScheduleError(f"rectangle {r} lies at [{low[r]}, {high[r]}), outside of an arena of {size} bytes")
        if low[r] % alignment:
            raise ScheduleError(f"rectangle {r} lies at {low[r]}, which is no multiple of {alignment}")
        events += [(int(rectangles.begin[r]), 1, r), (int(rectangles.end[r]), 0, r)]
    living: list[tuple[int, int]] = []
    for time, begins, r in sorted(events):  # what ends goes before what begins
        if not begins:
            del living[bisect_left(living, (low[r], r))]
            continue
        place = bisect_left(living, (low[r], r))
        for _, other in living[max(place - 1, 0) : place + 1]:
            if low[other] < high[r] and low[r] < high[other]:
                a, b = sorted((other, r))
                raise ScheduleError(
                    f"rectangles {a} and {b} overlap: [{low[a]}, {high[a]}) and [{low[b]}, {high[b]}) at time {time}"
                )
        insort(living, (low[r], r))
