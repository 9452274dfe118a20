"""Rectangles that are connected in time: their lowest arrangement so far, and a bound, improved step by step.

First fit in several orders comes first, and is all that there is for very many rectangles. Then searches take turns: by
fixed orders, which go on until they have found offsets at the target or proven that there are none, and by random
orders for a limited number of placements each, since a search that is unlucky early may take forever.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator

import numpy as np

from remat_explorer.offsets.orders import Orders
from remat_explorer.offsets.search_state import LEAST_REFUSED, SearchState, Strip

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

    Args:
        strip: n rectangles, in sections.
        lifetime: of each in statements, int64 of shape (n,).
        seed: of the random orders.

    ``offset`` and ``height`` are the lowest arrangement so far: one upon another, until ``fitted``. No arrangement is
    lower than ``bound``.

    >>> strip = Strip.of(np.array([0, 1, 3]), np.array([2, 4, 6]), np.array([4, 4, 4]))
    >>> component = Component(strip, np.array([2, 3, 3]), seed=0)
    >>> while component.height > component.aim:
    ...     component.work(component.bound)
    >>> component.height, component.bound, component.offset.tolist()
    (8, 8, [0, 4, 0])
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
        from remat_explorer.offsets.first_fit import first_fit  # compiled on its first use

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
