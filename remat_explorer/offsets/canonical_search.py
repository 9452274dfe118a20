"""First fit, and a depth-first search for offsets within a capacity; compiled.

First fit puts one rectangle after another at the lowest offset with room. Where the search ends with nothing, there is
nothing. It looks at canonical solutions: each rectangle rests on another or the ground, and they are placed by rising
offset, so each placement is at the lowest offset that those before have left. What is left of the problem falls into
parts that share no time; these are searched one after another, and where one has no solution, the search goes back to
the placement that made it a part. Not tried are a placement above room for a whole rectangle, which could be lowered
into it, and others in place of one that nothing will lie over. A placement is refused where the rectangles of a section
that are left, each above its lowest offset, do not fit any more.

Source: Moffitt, MiniMalloc (ASPLOS 2023), which bounds a section by the least of those offsets, not by all of them.
"""

from __future__ import annotations

from remat_explorer.machine_code import counting_nothing, entry
from remat_explorer.offsets.search_state import (
    CAPACITY,
    DEPTH,
    LEAST_REFUSED,
    MEMBERS,
    OPEN,
    OPENING,
    PARTS,
    SORTED_ANEW,
    TRAIL,
)

FOUND, EXHAUSTED, UNFINISHED = 0, 1, 2
FAR = 1 << 62  # above all offsets


@entry
def advance(strip, state, placements):
    """Go on for so many placements.

    Returns `FOUND`, with the offsets in the state; `EXHAUSTED`, and then no arena is lower than the least height that
    was refused; or `UNFINISHED`.
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


@entry
def first_fit(strip, order, begin, end, by_time, offset, placed, count, limit):
    """Place the rectangles of ``order`` from ``begin`` up to ``end``.

    ``offset``, int64, is filled for those that are placed; ``placed`` has them by their offsets, the first ``count``,
    and room for all. By time, they come by their beginnings: then what has ended is forgotten. Returns how many are
    placed now, or -1 where one would reach the limit.
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
