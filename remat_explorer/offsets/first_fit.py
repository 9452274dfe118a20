"""First fit: one rectangle after another, each at the lowest offset with room; compiled."""

from __future__ import annotations

from remat_explorer.machine_code import entry


@entry
def first_fit(strip, order, begin, end, by_time, offset, placed, count, limit):
    """Place the rectangles of ``order`` from ``begin`` up to ``end``.

    Args:
        strip: a `Strip`.
        order: rectangles, int32.
        by_time: whether they come by their beginnings: then what has ended is forgotten.
        offset: of each rectangle, int64, filled for those that are placed.
        placed: those, by their offsets, int32 with room for all; changed.
        count: how many there are.
        limit: where nothing may be as high as it.

    Returns:
        How many rectangles are placed now; -1 where one would reach the limit.
    """
    for i in range(begin, end):
        r = order[i]
        first, last, size = strip.first[r], strip.last[r], strip.size[r]
        lowest, found = 0, False
        if by_time:
            left = 0
            for j in range(count):
                if strip.last[placed[j]] > first:
                    placed[left] = placed[j]
                    left += 1
            count = left
        for j in range(count):
            other = placed[j]
            if strip.first[other] < last and first < strip.last[other]:
                if offset[other] >= lowest + size:
                    found = True
                    break
                lowest = max(lowest, offset[other] + strip.size[other])
        if not found and lowest + size >= limit:
            return -1
        offset[r] = lowest
        j = count
        while j > 0 and offset[placed[j - 1]] > lowest:
            placed[j] = placed[j - 1]
            j -= 1
        placed[j] = r
        count += 1
    return count
