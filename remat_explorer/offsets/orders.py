"""Orders in which rectangles are placed: what is hard to place comes first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from remat_explorer.offsets.search_state import Strip

SPREAD = np.array([3.0, 1.0, 1.0, 1.0, 0.5])  # of the weights of load, lifetime, size, sections and overlaps
NOISE = (0.0, 0.1, 0.3)


class Orders:
    """Orders of the rectangles of one problem.

    Args:
        strip: rectangles, in sections.
        lifetime: of each in statements, int64.
    """

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

        Args:
            name: letters, the first key first: T, the largest load of a section that it spans; W, its lifetime; Z, its
                size; A, the product of both; C, the number of its sections.
        """
        return np.lexsort([-self.keys[key] for key in reversed(name)]).astype(np.int32)

    def drawn(self, draw: np.random.Generator) -> Iterator[np.ndarray]:
        """Orders by random weights of all keys, one after another."""
        while True:
            weights = np.abs(draw.normal(size=len(SPREAD))) * SPREAD
            noise = draw.choice(NOISE) * draw.normal(size=self._features.shape[1])
            yield np.argsort(-(weights @ self._features) - noise, kind="stable").astype(np.int32)


def range_maxima(numbers: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The largest of ``numbers[first:last]`` for each pair, by a table of the powers of two.

    >>> range_maxima(np.array([3, 1, 4, 1, 5]), np.array([0, 1, 2]), np.array([2, 4, 5])).tolist()
    [3, 4, 5]
    """
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
