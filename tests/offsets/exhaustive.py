"""The least arena by trying every offset: for a handful of rectangles."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[int, int, int]  # begin, end, bytes


def least_height(rows: Sequence[Row]) -> int:
    """The least height at which rectangles with small whole sizes fit."""
    rows = sorted(rows, key=lambda row: row[2] * (row[1] - row[0]), reverse=True)
    last = max(end for _, end, _ in rows)
    height = max(sum(size for begin, end, size in rows if begin <= time < end) for time in range(last))
    while not _fit(rows, 0, [0] * last, height):
        height += 1
    return height


def _fit(rows: Sequence[Row], i: int, taken: list[int], height: int) -> bool:
    """Whether rectangles from the i-th on fit beside what is taken at each time, a bit for each byte."""
    if i == len(rows):
        return True
    begin, end, size = rows[i]
    for offset in range(height - size + 1):
        bits = ((1 << size) - 1) << offset
        if all(not taken[time] & bits for time in range(begin, end)):
            inside = [bits * (begin <= time < end) for time in range(len(taken))]
            if _fit(rows, i + 1, [old | new for old, new in zip(taken, inside, strict=True)], height):
                return True
    return False
