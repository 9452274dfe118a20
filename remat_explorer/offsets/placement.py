"""The search for offsets in one block of memory: all components of a plan, by the clock.

A component is a set of rectangles that are connected in time. Its lowest arrangement and a bound are improved step by
step: first fit in several orders comes first (compiled; what is hard to place goes first), and is all that there is for
very many rectangles. Then searches take turns: by fixed orders, which go on until they have found offsets at the target
or proven that there are none, and by random orders for a limited number of placements each, since a search that is
unlucky early may take forever.

`place_at_once` needs nothing compiled: it places as an allocator does while a program runs, each storage at the lowest
offset that is free when it begins.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from remat_explorer.entry_checks import require_bytes, require_number
from remat_explorer.errors import RematError, shown
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.offsets.check import check_offsets
from remat_explorer.offsets.rectangles import Rectangles
from remat_explorer.offsets.search_state import LEAST_REFUSED, SearchState, Strip
from remat_explorer.plan import Plan
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


SPREAD = np.array([3.0, 1.0, 1.0, 1.0, 0.5])  # of the weights of load, lifetime, size, sections and overlaps
NOISE = (0.0, 0.1, 0.3)


class Orders:
    """Orders of the rectangles of one problem."""

    def __init__(self, strip: Strip, lifetime: np.ndarray) -> None:
        sections = int(strip.last.max())
        change = np.zeros(sections + 1, dtype=np.int64)
        np.add.at(change, strip.first, strip.size)
        np.subtract.at(change, strip.last, strip.size)
        self.load = np.cumsum(change)[:-1]
        spans = strip.last.astype(np.int64) - strip.first
        highest = range_maxima(self.load, strip.first, strip.last)
        begun = np.searchsorted(np.sort(strip.first), strip.last)
        ended = np.searchsorted(np.sort(strip.last), strip.first, side="right")
        self.keys = {"T": highest, "W": lifetime, "A": lifetime * strip.size.astype(float), "C": spans, "Z": strip.size}
        features = np.log(np.array([highest, lifetime, strip.size, spans, begun - ended], dtype=float))
        spread = features.std(axis=1, keepdims=True)
        self._features = (features - features.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)

    def static(self, name: str) -> np.ndarray:
        """Rectangles by the keys that ``name`` lists, each largest first, int32.

        Letters, the first key first: T, the largest load of a section that it spans; W, its lifetime; Z, its size; A,
        the product of both; C, the number of its sections.
        """
        return np.lexsort([-self.keys[key] for key in reversed(name)]).astype(np.int32)

    def drawn(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        """Orders by random weights of all keys, one after another."""
        while True:
            weights = np.abs(draw.normal(size=len(SPREAD))) * SPREAD
            noise = draw.choice(NOISE) * draw.normal(size=self._features.shape[1])
            yield np.argsort(-(weights @ self._features) - noise, kind="stable").astype(np.int32)


def range_maxima(numbers: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The largest of ``numbers[first:last]`` for each pair, by a table of the powers of two."""
    table = [numbers]
    while 2 ** len(table) <= len(numbers):
        half = 2 ** (len(table) - 1)
        table.append(np.maximum(table[-1][:-half], table[-1][half:]))
    level = np.frexp(last - first)[1] - 1  # of the largest power of two in the range
    answer = np.empty(len(first), dtype=numbers.dtype)
    for i in np.unique(level):
        chosen = level == i
        answer[chosen] = np.maximum(table[i][first[chosen]], table[i][last[chosen] - 2**i])
    return answer


# Orders of first fit, and of the searches that go on; the same with parts sorted anew.
FITTED = ("TWA", "TCA", "WAT", "TAW", "AZT", "ZAT")
SEARCHED = tuple(itertools.product(("TWA", "WAT", "TAW", "TCA"), (False, True)))
MOST_SEARCHED = 2500  # rectangles; of more there is first fit only
BLOCK = 512  # rectangles that first fit places between two questions whether the time is over
STEP = 2_000_000  # simple operations of a search between them, some milliseconds
FIRST_LIMIT = 2000  # placements of a search by a random order
LIMIT_GROWS = 200  # after so many random orders it is twice as large
SHARES = (0.0, 0.0, 0.5, 0.9)  # of the way from the target to the height, at which random orders search in turn


class Component:
    """Some rectangles, of which each shares time with others.

    ``offset`` and ``height`` are the lowest arrangement so far: one upon another, until ``fitted``. No arrangement is
    lower than ``bound``.
    """

    def __init__(self, strip: Strip, lifetime: np.ndarray, seed: int) -> None:
        self.strip = strip
        self._orders = Orders(strip, lifetime)
        self._draw = np.random.default_rng(seed)
        self.bound = int(self._orders.load.max())
        self._target = self.bound
        self.height = int(strip.size.sum())
        self.offset = np.cumsum(strip.size) - strip.size
        self.fitted = False
        self._steps = self._improve()
        spanned = int((strip.last - strip.first).sum())
        self._placements = max(1, STEP // (spanned + 4 * len(strip.size)))

    def work(self, target: int) -> None:
        """Go on for some milliseconds, for a height of ``target`` or as near to it as can be."""
        self._target = target
        if self.height > self.aim:
            next(self._steps)

    def compile(self) -> None:
        """Run every compiled function once."""
        deque(self._fit(self._orders.static("TWA")), maxlen=0)
        self._advanced(SearchState.empty(self.strip, self._orders.static("TWA"), self.height, True), 1)

    @property
    def aim(self) -> int:
        """The height that is searched for."""
        return max(self._target, self.bound)

    def _improve(self) -> Iterator[None]:
        yield from self._fit(np.argsort(self.strip.first, kind="stable").astype(np.int32), by_time=True)
        for name in FITTED:
            yield from self._fit(self._orders.static(name))
        drawn = self._orders.drawn(self._draw)
        while len(self.strip.size) > MOST_SEARCHED:
            yield from self._fit(next(drawn))
        fixed = [self._search_fixed(name, sorted_anew) for name, sorted_anew in SEARCHED]
        random = self._search_drawn(drawn)
        while True:
            for search in fixed:
                yield next(search)
                yield next(random)

    def _fit(self, order: np.ndarray, by_time: bool = False) -> Iterator[None]:
        """First fit in one order."""
        from remat_explorer.offsets.canonical_search import first_fit  # compiled on its first use

        n = len(order)
        offset, placed, count = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int32), 0
        for begin in range(0, n, BLOCK):
            end = min(begin + BLOCK, n)
            count = first_fit(self.strip, order, begin, end, by_time, offset, placed, count, self.height)
            yield
            if count < 0:
                break
        else:
            self._take(offset)
        self.fitted = True

    def _search_fixed(self, name: str, sorted_anew: bool) -> Iterator[None]:
        """Search by one order until there are offsets at the aim; each proof that there are none raises the bound."""
        order = self._orders.static(name)
        while True:
            aim = self.aim
            state = SearchState.empty(self.strip, order, aim, sorted_anew)
            while aim == self.aim and not self._advanced(state, self._placements):
                yield
            yield

    def _search_drawn(self, drawn: Iterator[np.ndarray]) -> Iterator[None]:
        """Search by random orders, each for a limited number of placements."""
        for run, order in enumerate(drawn):
            yield from self._fit(order)
            share = SHARES[run % len(SHARES)]
            capacity = self.aim + int(share * (self.height - 1 - self.aim))
            state = SearchState.empty(self.strip, order, capacity, bool(self._draw.integers(2)))
            left = FIRST_LIMIT * 2 ** (run // LIMIT_GROWS)
            while left > 0 and not self._advanced(state, min(left, self._placements)):
                left -= self._placements
                yield

    def _advanced(self, state: SearchState, placements: int) -> bool:
        """Go on with a search, and take what it ends with; whether it has ended."""
        from remat_explorer.offsets.canonical_search import EXHAUSTED, FOUND, advance  # compiled on its first use

        ended = advance(self.strip, state, placements)
        if ended == FOUND:
            self._take(state.offset)
        elif ended == EXHAUSTED:
            self.bound = max(self.bound, int(state.heights[LEAST_REFUSED]))
        return ended in (FOUND, EXHAUSTED)

    def _take(self, offset: np.ndarray) -> None:
        height = int((offset + self.strip.size).max())
        if height < self.height:
            self.height, self.offset = height, offset.copy()


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


@memoize_by_identity
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
