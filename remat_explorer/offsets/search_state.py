"""The arrays of the search for offsets within a capacity: all its memory is allocated here, before it is called.

They are as long as a search can ever need; what it does not write takes no memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

DEPTH, OPENING, OPEN, TRAIL, MEMBERS, PARTS, SORTED_ANEW = range(7)  # entries of numbers
CAPACITY, LEAST_REFUSED = 0, 1  # entries of heights


class Strip(NamedTuple):
    """Rectangles as compiled code reads them. A section is the time from one beginning to the next."""

    first: np.ndarray  # the sections of each rectangle, half-open, int32 of shape (rectangles,)
    last: np.ndarray
    size: np.ndarray  # height of each, int64 of shape (rectangles,), at least 1

    @staticmethod
    def of(begin: np.ndarray, end: np.ndarray, size: np.ndarray) -> Strip:
        """Rectangles with lifetimes in statements."""
        beginnings = np.unique(begin)
        first, last = np.searchsorted(beginnings, begin), np.searchsorted(beginnings, end)
        return Strip(first.astype(np.int32), last.astype(np.int32), np.ascontiguousarray(size, dtype=np.int64))


class SearchState(NamedTuple):
    """A search that can be left and gone on with at any placement."""

    offset: np.ndarray  # of each rectangle, -1 where it is not placed
    lowest: np.ndarray  # no placement of the rectangle lies below, int64
    trail_rectangle: np.ndarray  # with ``trail_lowest``, what ``lowest`` was before
    trail_lowest: np.ndarray
    members: np.ndarray  # rectangles of each part of the problem, slice by slice, in the order in which they are tried
    rising: np.ndarray  # the same rectangles of each slice, by their lowest offsets
    part_begin: np.ndarray  # the slice of each part
    part_end: np.ndarray
    part_offset: np.ndarray  # what comes before this offset, and place in the slice, is tried elsewhere
    part_place: np.ndarray
    part_owner: np.ndarray  # the placement that made it a part; -1 for the whole
    part_next: np.ndarray  # the part that is open after it; -1 for none
    frame_part: np.ndarray  # of each placement on the path, as what follows
    frame_rectangle: np.ndarray
    frame_offset: np.ndarray
    frame_place: np.ndarray
    frame_last: np.ndarray  # whether nothing else need be tried in its place
    frame_trail: np.ndarray  # how long trail, members and parts were before it
    frame_members: np.ndarray
    frame_parts: np.ndarray
    height: np.ndarray  # of each section, scratch space: the least height that is left possible
    crossing: np.ndarray  # how many rectangles reach into it from the section before
    load: np.ndarray  # the most bytes of a section that a rectangle spans, where parts are sorted anew
    numbers: np.ndarray  # see the constants of this file, as for ``heights``
    heights: np.ndarray
    stopped: np.ndarray  # bool of shape (1,); once True the search returns

    @staticmethod
    def empty(strip: Strip, order: np.ndarray, capacity: int, sorted_anew: bool) -> SearchState:
        """A search that has not begun.

        Rectangles are tried in ``order`` where several have the same lowest offset. With ``sorted_anew``, parts into
        which the rest falls are sorted by their own loads.
        """
        n, sections = len(order), int(strip.last.max())
        pairs, parts = n * (n + 1) // 2 + 1, 2 * n + 2

        def integers(count: int) -> np.ndarray:
            return np.zeros(count, dtype=np.int32)

        def sizes(count: int) -> np.ndarray:
            return np.zeros(count, dtype=np.int64)

        state = SearchState(
            offset=np.full(n, -1, dtype=np.int64),
            lowest=sizes(n),
            trail_rectangle=integers(pairs),
            trail_lowest=sizes(pairs),
            members=integers(pairs + n),
            rising=integers(pairs + n),
            part_begin=integers(parts),
            part_end=integers(parts),
            part_offset=sizes(parts),
            part_place=integers(parts),
            part_owner=integers(parts),
            part_next=integers(parts),
            frame_part=integers(n + 1),
            frame_rectangle=integers(n + 1),
            frame_offset=sizes(n + 1),
            frame_place=integers(n + 1),
            frame_last=np.zeros(n + 1, dtype=np.bool_),
            frame_trail=integers(n + 1),
            frame_members=integers(n + 1),
            frame_parts=integers(n + 1),
            height=sizes(sections + 1),
            crossing=integers(sections + 1),
            load=sizes(n),
            numbers=np.zeros(7, dtype=np.int64),
            heights=np.array([capacity, np.iinfo(np.int64).max], dtype=np.int64),
            stopped=np.zeros(1, dtype=np.bool_),
        )
        state.members[:n] = state.rising[:n] = order
        state.part_end[0] = n
        state.part_owner[0] = state.part_next[0] = state.part_place[0] = state.numbers[DEPTH] = -1
        state.numbers[OPENING], state.numbers[MEMBERS], state.numbers[PARTS] = 1, n, 1
        state.numbers[SORTED_ANEW] = sorted_anew
        return state
