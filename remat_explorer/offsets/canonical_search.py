"""A depth-first search for offsets within a capacity; compiled. Where it ends with nothing, there are none.

It looks at canonical solutions: each rectangle rests on another or on the ground, and they are placed by rising offset,
so each placement is at the lowest offset that those before have left. What is left of the problem falls into parts
that share no time; these are searched one after another, and where one has no solution, the search goes back to the
placement that made it a part. Not tried are a placement above room for a whole rectangle, which could be lowered into
it, and others in place of one that nothing will lie over. A placement is refused where the rectangles of a section that
are left, each above its lowest offset, do not fit any more.

Source: Moffitt, MiniMalloc (ASPLOS 2023), which bounds a section by the least of those offsets, not by all of them.

All memory of the search is allocated before it is called (`State`): as much as it can ever need; what it does not
write takes none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat_explorer.machine_code import counting_nothing, entry

DEPTH, OPENING, OPEN, TRAIL, MEMBERS, PARTS, SORTED_ANEW = range(7)  # entries of numbers
CAPACITY, LEAST_REFUSED = 0, 1  # entries of heights


class Strip(NamedTuple):
    """Rectangles as compiled code reads them. A section is the time from one beginning to the next.

    Attributes:
        first, last: the sections of each rectangle, half-open, int32 of shape (rectangles,).
        size: height of each, int64 of shape (rectangles,), at least 1.
    """

    first: np.ndarray
    last: np.ndarray
    size: np.ndarray

    @staticmethod
    def of(begin: np.ndarray, end: np.ndarray, size: np.ndarray) -> Strip:
        """Rectangles with lifetimes in statements.

        >>> strip = Strip.of(np.array([0, 5, 7]), np.array([6, 9, 8]), np.array([4, 4, 4]))
        >>> strip.first.tolist(), strip.last.tolist()
        ([0, 1, 2], [2, 3, 3])
        """
        beginnings = np.unique(begin)
        first, last = np.searchsorted(beginnings, begin), np.searchsorted(beginnings, end)
        return Strip(first.astype(np.int32), last.astype(np.int32), np.ascontiguousarray(size, dtype=np.int64))


class SearchState(NamedTuple):
    """A search that can be left and gone on with at any placement.

    Attributes:
        offset: of each rectangle, -1 where it is not placed.
        lowest: no placement of the rectangle lies below, int64.
        trail_rectangle, trail_lowest: what ``lowest`` was before.
        members: rectangles of each part of the problem, slice by slice, in the order in which they are tried.
        rising: the same rectangles of each slice, by their lowest offsets.
        part_begin, part_end: the slice of each part.
        part_offset, part_place: what comes before this offset, and place in the slice, is tried elsewhere.
        part_owner: the placement that made it a part; -1 for the whole.
        part_next: the part that is open after it; -1 for none.
        frame_part, frame_rectangle, frame_offset, frame_place: of each placement on the path.
        frame_last: whether nothing else need be tried in its place.
        frame_trail, frame_members, frame_parts: how long trail, members and parts were before it.
        height, crossing: of each section, scratch space: the least height that is left possible, and how many
            rectangles reach into it from the section before.
        load: the most bytes of a section that a rectangle spans, where parts are sorted anew.
        numbers, heights: see the constants of this file.
        stopped: bool of shape (1,); once True the search returns.
    """

    offset: np.ndarray
    lowest: np.ndarray
    trail_rectangle: np.ndarray
    trail_lowest: np.ndarray
    members: np.ndarray
    rising: np.ndarray
    part_begin: np.ndarray
    part_end: np.ndarray
    part_offset: np.ndarray
    part_place: np.ndarray
    part_owner: np.ndarray
    part_next: np.ndarray
    frame_part: np.ndarray
    frame_rectangle: np.ndarray
    frame_offset: np.ndarray
    frame_place: np.ndarray
    frame_last: np.ndarray
    frame_trail: np.ndarray
    frame_members: np.ndarray
    frame_parts: np.ndarray
    height: np.ndarray
    crossing: np.ndarray
    load: np.ndarray
    numbers: np.ndarray
    heights: np.ndarray
    stopped: np.ndarray

    @staticmethod
    def empty(strip: Strip, order: np.ndarray, capacity: int, sorted_anew: bool) -> SearchState:
        """A search that has not begun.

        Args:
            strip: n rectangles.
            order: in which they are tried where several have the same lowest offset, int32 of shape (n,).
            capacity: where nothing may be higher.
            sorted_anew: whether parts into which the rest falls are sorted by their own loads.
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


FOUND, EXHAUSTED, UNFINISHED = 0, 1, 2
FAR = 1 << 62  # above all offsets


@entry
def advance(strip, state, placements):
    """Go on for so many placements.

    Returns:
        `FOUND`, with the offsets in the state; `EXHAUSTED`, and then no arena is lower than the least height that was
        refused; or `UNFINISHED`.
    """
    numbers = state.numbers
    for _ in range(placements):
        if state.stopped[0]:
            break
        if numbers[OPENING]:
            if numbers[OPEN] < 0:
                return FOUND
            begin_frame(state, numbers[OPEN])
        depth = numbers[DEPTH]
        take_back(state, depth)
        if state.frame_last[depth] or not choose(strip, state, depth):
            owner = state.part_owner[state.frame_part[depth]]
            if owner < 0:
                return EXHAUSTED
            while numbers[DEPTH] > owner:
                numbers[DEPTH] -= 1
                take_back(state, numbers[DEPTH])
            continue
        r = state.frame_rectangle[depth]
        state.offset[r] = state.frame_offset[depth]
        state.frame_last[depth] = not lift(strip, state, depth, r)
        height = least_height(strip, state, depth)
        if height > state.heights[CAPACITY]:
            state.heights[LEAST_REFUSED] = min(state.heights[LEAST_REFUSED], height)
            continue
        open_parts(strip, state, depth)
        numbers[OPENING] = 1
    return UNFINISHED


@counting_nothing
def begin_frame(state, part):
    """A frame for the next placement of ``part``, which has none yet."""
    numbers = state.numbers
    numbers[OPENING] = 0
    numbers[DEPTH] += 1
    depth = numbers[DEPTH]
    state.frame_part[depth] = part
    state.frame_rectangle[depth] = -1
    state.frame_offset[depth] = state.part_offset[part]
    state.frame_place[depth] = state.part_place[part]
    state.frame_last[depth] = False
    state.frame_trail[depth] = numbers[TRAIL]
    state.frame_members[depth] = numbers[MEMBERS]
    state.frame_parts[depth] = numbers[PARTS]


@counting_nothing
def take_back(state, depth):
    """Undo the placement of a frame, if it has one."""
    numbers, r = state.numbers, state.frame_rectangle[depth]
    if r < 0:
        return
    state.offset[r] = -1
    state.frame_rectangle[depth] = -1
    while numbers[TRAIL] > state.frame_trail[depth]:
        numbers[TRAIL] -= 1
        state.lowest[state.trail_rectangle[numbers[TRAIL]]] = state.trail_lowest[numbers[TRAIL]]
    numbers[MEMBERS] = state.frame_members[depth]
    numbers[PARTS] = state.frame_parts[depth]


@counting_nothing
def choose(strip, state, depth):
    """The next rectangle to be tried by lowest offset, then by place; whether there is one."""
    part = state.frame_part[depth]
    begin = state.part_begin[part]
    tried, tried_place = state.frame_offset[depth], state.frame_place[depth]
    room, best, place = FAR, FAR, -1
    for i in range(begin, state.part_end[part]):
        r = state.members[i]
        if state.offset[r] >= 0:
            continue
        lowest = state.lowest[r]
        room = min(room, lowest + strip.size[r])
        if lowest < best and (lowest > tried or (lowest == tried and i - begin > tried_place)):
            best, place = lowest, i - begin
    if best >= room:
        return False
    state.frame_offset[depth], state.frame_place[depth] = best, place
    state.frame_rectangle[depth] = state.members[begin + place]
    return True


@counting_nothing
def lift(strip, state, depth, r):
    """Raise the lowest offsets of what shares time with ``r`` above it; whether anything does."""
    numbers, part, above = state.numbers, state.frame_part[depth], False
    first, last, top = strip.first[r], strip.last[r], state.offset[r] + strip.size[r]
    for i in range(state.part_begin[part], state.part_end[part]):
        other = state.members[i]
        if state.offset[other] < 0 and strip.first[other] < last and first < strip.last[other]:
            above = True
            if state.lowest[other] < top:
                state.trail_rectangle[numbers[TRAIL]] = other
                state.trail_lowest[numbers[TRAIL]] = state.lowest[other]
                numbers[TRAIL] += 1
                state.lowest[other] = top
    return above


@counting_nothing
def least_height(strip, state, depth):
    """The least height at which the rest of the part may end, or one above the capacity; fills ``crossing``.

    In each section rectangles are stacked by rising lowest offsets, as jobs with release times on one machine.
    """
    part, offset, capacity = state.frame_part[depth], state.frame_offset[depth], state.heights[CAPACITY]
    begin, end = state.part_begin[part], state.part_end[part]
    sort_rising(state, begin, end)
    for s in range(len(state.height)):
        state.height[s] = 0
        state.crossing[s] = 0
    highest = 0
    for i in range(begin, end):
        r = state.rising[i]
        if state.offset[r] >= 0:
            continue
        lowest, size = max(state.lowest[r], offset), strip.size[r]
        for s in range(strip.first[r], strip.last[r]):
            state.height[s] = max(state.height[s], lowest) + size
            state.crossing[s] += 1
            highest = max(highest, state.height[s])
        state.crossing[strip.first[r]] -= 1
        if highest > capacity:
            break
    return highest


@counting_nothing
def sort_rising(state, begin, end):
    """Sort a slice by lowest offsets; little has changed since the last time."""
    for i in range(begin + 1, end):
        r = state.rising[i]
        j = i
        while j > begin and state.lowest[state.rising[j - 1]] > state.lowest[r]:
            state.rising[j] = state.rising[j - 1]
            j -= 1
        state.rising[j] = r


@counting_nothing
def open_parts(strip, state, depth):
    """Open what is left of the frame's part: one part, or several where no rectangle crosses."""
    numbers, part = state.numbers, state.frame_part[depth]
    begin, end, offset = state.part_begin[part], state.part_end[part], state.frame_offset[depth]
    numbers[OPEN] = state.part_next[part]
    first, last = len(state.height), 0
    for i in range(begin, end):
        r = state.members[i]
        if state.offset[r] < 0:
            first, last = min(first, strip.first[r]), max(last, strip.last[r])
    whole = True
    for s in range(first + 1, last):
        whole = whole and state.crossing[s] > 0
    if whole:
        if first < last:
            open_part(state, begin, end, offset, state.frame_place[depth], depth)
        return
    start = first
    for s in range(first + 1, last + 1):
        if s < last and state.crossing[s] > 0:
            continue
        slice_begin = numbers[MEMBERS]
        for i in range(begin, end):
            r = state.members[i]
            if state.offset[r] < 0 and start <= strip.first[r] < s:
                state.members[numbers[MEMBERS]] = state.rising[numbers[MEMBERS]] = r
                numbers[MEMBERS] += 1
        if numbers[MEMBERS] > slice_begin:
            if numbers[SORTED_ANEW]:
                sort_by_load(strip, state, slice_begin, numbers[MEMBERS], start, s)
            open_part(state, slice_begin, numbers[MEMBERS], offset, -1, depth)
        start = s


@counting_nothing
def open_part(state, begin, end, offset, place, owner):
    """The part is searched next."""
    numbers = state.numbers
    part = numbers[PARTS]
    numbers[PARTS] += 1
    state.part_begin[part], state.part_end[part] = begin, end
    state.part_offset[part], state.part_place[part] = offset, place
    state.part_owner[part], state.part_next[part] = owner, numbers[OPEN]
    numbers[OPEN] = part


@counting_nothing
def sort_by_load(strip, state, begin, end, first, last):
    """Sort a slice by the largest load of a section that each rectangle spans; else the order stays."""
    for s in range(first, last):
        state.height[s] = 0
    for i in range(begin, end):
        r = state.members[i]
        for s in range(strip.first[r], strip.last[r]):
            state.height[s] += strip.size[r]
    for i in range(begin, end):
        r = state.members[i]
        state.load[r] = 0
        for s in range(strip.first[r], strip.last[r]):
            state.load[r] = max(state.load[r], state.height[s])
    for i in range(begin + 1, end):
        r = state.members[i]
        j = i
        while j > begin and state.load[state.members[j - 1]] < state.load[r]:
            state.members[j] = state.members[j - 1]
            j -= 1
        state.members[j] = r
