"""The search for an arena: all components of a plan, by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from remat_explorer.entry_checks import require_bytes, require_number
from remat_explorer.errors import RematError, shown
from remat_explorer.offsets.arena import Arena
from remat_explorer.offsets.component import Component
from remat_explorer.offsets.rectangles import Rectangles
from remat_explorer.offsets.search_state import Strip
from remat_explorer.once import once
from remat_explorer.plan import Plan

ALIGNMENT = 512  # bytes; that of PyTorch's blocks on a GPU
QUICK = 0.2  # seconds, where an arena is one number beside others
ROUNDS = 8  # of taking away what lasts as long as its component, which then may fall apart


def place(
    plan: Plan, alignment: int = ALIGNMENT, time_limit: float = 1.0, over: Callable[[], bool] = lambda: False
) -> Arena:
    """Offsets for everything that a plan holds in memory, in one block that is as small as is found.

    Args:
        plan: of any graph.
        alignment: bytes of which each offset is a multiple.
        time_limit: seconds; the search ends earlier where nothing is left to improve. First fit in the order of time
            is always done to the end.
        over: asked every few milliseconds; once True the search ends with what it has.

    Raises:
        RematError: if the alignment or the time limit cannot be.
        ScheduleError: if a statement of the plan computes a value that is in memory.

    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> place(plan).size, place(plan, alignment=1).offsets.tolist(), place(plan, alignment=1).optimal
    (1536, [0, 1, 2], True)
    """
    return place_rectangles(Rectangles.of(plan), alignment, time_limit, over=over)


def predict_pool(plan: Plan) -> Arena:
    """The arena of a plan on a GPU, found in a moment, and remembered for as long as the plan lives.

    >>> from remat_explorer.instances import linear
    >>> print(predict_pool(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])))
    a pool of one block: 1.50 KiB, proven least
    """
    return _predicted(plan)


@once
def _predicted(plan: Plan) -> Arena:
    return place(plan, time_limit=QUICK)


def place_rectangles(
    rectangles: Rectangles,
    alignment: int = 1,
    time_limit: float = 1.0,
    enough: int = 0,
    seed: int = 0,
    over: Callable[[], bool] = lambda: False,
) -> Arena:
    """Offsets for rectangles, in one block that is as small as is found.

    Args:
        rectangles: with their lifetimes.
        alignment: bytes of which each offset is a multiple.
        time_limit: seconds, after the search is compiled.
        enough: bytes; the search ends with an arena that is no larger.
        seed: of the random orders.
        over: asked every few milliseconds; once True the search ends with what it has.

    Raises:
        RematError: if the alignment or the time limit cannot be.

    >>> arena = place_rectangles(Rectangles.from_rows([(0, 2, 4), (1, 4, 4), (3, 6, 4)]))
    >>> arena.size, arena.bound, arena.gap
    (8, 8, 0.0)
    """
    if require_bytes(alignment, "the alignment", RematError) < 1:
        raise RematError(f"the alignment is {shown(alignment)} bytes; give at least 1")
    require_number(time_limit, "the time limit", RematError)
    units = -(-rectangles.size // alignment)
    offsets = np.zeros(len(rectangles), dtype=np.int64)
    components = []
    for chosen, base in _pieces(rectangles, units, offsets):
        begin, end = rectangles.begin[chosen], rectangles.end[chosen]
        component = Component(Strip.of(begin, end, units[chosen]), end - begin, seed + len(components))
        components.append((component, base, chosen))
    if components:
        load_offset_search()
    bound, ends = rectangles.peak_of(units), time.monotonic() + time_limit
    while True:
        bound = max([bound, *(base + component.bound for component, base, _ in components)])
        aim = max(bound, enough // alignment)
        waiting = [(component, base) for component, base, _ in components if base + component.height > aim]
        if time.monotonic() >= ends or over():
            waiting = [(component, base) for component, base in waiting if not component.fitted]
        if not waiting:
            break
        component, base = max(waiting, key=lambda each: (not each[0].fitted, each[1] + each[0].height))
        component.work(aim - base)
    for component, base, chosen in components:
        offsets[chosen] = base + component.offset
    size = int((offsets + units).max(initial=0))
    return Arena(rectangles, offsets * alignment, alignment, size * alignment, bound * alignment)


def _pieces(rectangles: Rectangles, units: np.ndarray, offsets: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Components in time, and the offset from which on each lies.

    What lasts as long as its component can lie at the bottom of it in every arena; it gets its offset here.
    """
    open_pieces = [(np.arange(len(rectangles)), 0, ROUNDS)] if len(rectangles) else []
    while open_pieces:
        chosen, base, rounds = open_pieces.pop()
        chosen = chosen[np.argsort(rectangles.begin[chosen], kind="stable")]
        begin, latest = rectangles.begin[chosen], np.maximum.accumulate(rectangles.end[chosen])
        for piece in np.split(chosen, np.flatnonzero(begin[1:] >= latest[:-1]) + 1):
            first, last = rectangles.begin[piece].min(), rectangles.end[piece].max()
            lasting = (rectangles.begin[piece] == first) & (rectangles.end[piece] == last)
            if rounds and lasting.any():
                tops = base + np.cumsum(units[piece[lasting]])
                offsets[piece[lasting]] = tops - units[piece[lasting]]
                if not lasting.all():
                    open_pieces.append((piece[~lasting], int(tops[-1]), rounds - 1))
            else:
                yield piece, base


@cache
def load_offset_search() -> None:
    """Load the machine code, or compile it, which takes some seconds once on a machine."""
    strip = Strip.of(np.array([0, 1, 1, 4]), np.array([3, 5, 2, 6]), np.array([1, 2, 1, 1]))
    component = Component(strip, strip.last - strip.first, seed=0)
    component.compile()
