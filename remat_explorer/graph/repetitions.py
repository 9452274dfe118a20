"""Repetitions in a sequence: where it says the same at least three times, one directly after the other.

What repeats is found by naming windows: those of 2w elements by the names of their halves, as suffix arrays are built
by prefix doubling (Manber and Myers, SIAM Journal on Computing 1993). Where windows that are as long as the period
come back after exactly that many elements, again and again, the sequence is periodic.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

LEAST = 3  # times that something has to be there


def repetitions(names: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Places of a sequence that are periodic, for the period that is least there, in O(n log² n).

    Every stretch that is at least `LEAST` periods long is met, at least once; neighbours of it may be met, too.

    Args:
        names: what stands where, int of shape (n,); equal numbers are equal elements.

    Yields:
        (first, last, period): elements ``first`` to ``last`` are each equal to the one a period later.

    >>> sorted(set(repetitions(np.array([7, 1, 2, 1, 2, 1, 2, 1, 8]))))
    [(1, 5, 2)]
    """
    names = np.unique(names, return_inverse=True)[1].reshape(-1)
    length = 1
    while length <= len(names):
        for first, last, period in _returns(names, length):
            if last - first + 1 >= (LEAST - 1) * period:
                yield first, last, period
        if 2 * length > len(names):
            return
        pairs = names[:-length].astype(np.int64) * len(names) + names[length:]
        names = np.unique(pairs, return_inverse=True)[1].reshape(-1)
        length *= 2


def _returns(names: np.ndarray, length: int) -> Iterator[tuple[int, int, int]]:
    """Stretches in which each window comes back first after the same number of elements, about ``length``."""
    order = np.argsort(names, kind="stable")
    again = names[order[1:]] == names[order[:-1]]
    gap = np.zeros(len(names), dtype=np.int64)
    gap[order[:-1][again]] = (order[1:] - order[:-1])[again]
    gap[(2 * gap <= length) | (gap > 2 * length)] = 0  # shorter ones were met with shorter windows
    edges = np.flatnonzero(np.diff(gap)) + 1
    for first, end in zip([0, *edges.tolist()], [*edges.tolist(), len(gap)], strict=True):
        if gap[first]:
            yield first, end - 1 + length - 1, int(gap[first])
