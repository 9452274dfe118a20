"""Stages looked at singly, and runs of stages between them looked at as one.

A run of stages t_1 .. t_2 that is merged has no memory rows: of it are known only what is in memory at its start, what
runs again in it, and what is in memory after it. Its first runs, operations t_1 .. t_2, cost nothing beyond their
first computation, and what they write is there after it for nothing. Every schedule is still represented, by a point
that costs no more, so a bound of the merged problem is a bound of the whole. With every stage single it is the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.solvers.condensed import Condensed


@dataclass(frozen=True, eq=False)
class Stages:
    """n stages as a sequence of single stages and merged runs.

    Attributes:
        condensed: n operations and their groups of values.
        first: the first operation of each entry, ascending, int of shape (entries,).
        last: its last operation; a single stage has first = last.
    """

    condensed: Condensed
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(condensed: Condensed, singles: Iterable[int] | None = None) -> Stages:
        """Stages in which ``singles`` (all of them if None) are single, and the runs between them are merged.

        >>> from remat_explorer.instances import linear
        >>> stages = Stages.of(Condensed.of(linear(4)), [3, 4, 7])
        >>> list(zip(stages.first.tolist(), stages.last.tolist()))
        [(0, 2), (3, 3), (4, 4), (5, 6), (7, 7), (8, 8)]
        """
        n = condensed.n
        chosen = sorted(set(range(n) if singles is None else singles))
        first = sorted({0, *chosen, *(t + 1 for t in chosen if t + 1 < n)})
        last = [*(t - 1 for t in first[1:]), n - 1]
        return Stages(condensed, np.array(first, dtype=np.int64), np.array(last, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def single(self) -> np.ndarray:
        """Whether an entry is one stage, whose memory is known; bool of shape (entries,)."""
        return self.first == self.last

    @cached_property
    def position(self) -> dict[int, int]:
        """The entry of each single stage."""
        return {int(self.first[q]): q for q in np.flatnonzero(self.single).tolist()}

    @cached_property
    def reads(self) -> np.ndarray:
        """Which groups, written before an entry, its first runs read; bool of shape (entries, groups)."""
        runs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        read = [self.condensed.read_from(a, b) & (self.condensed.producer < a) for a, b in runs]
        return np.array(read).reshape(len(self), self.condensed.groups)

    @cached_property
    def base(self) -> np.ndarray:
        """Bytes that are there all through an entry's first stage, int64 of shape (entries,)."""
        return self.condensed.base[self.first]

    def merge(self, R: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R and S of a schedule as this sequence sees them.

        What is both in memory at the start of a merged run and computed again in it counts as computed again only.

        Args:
            R: (n, n), nonzero where computed.
            S: (n, groups).

        Returns:
            R (entries, n) and S (entries, groups) as floats 0 and 1.
        """
        computed = np.asarray(R) > 0
        merged = np.add.reduceat(computed, self.first, axis=0) > 0
        held = np.asarray(S)[self.first] > 0
        return merged.astype(float), (held & ~merged[:, self.condensed.producer]).astype(float)
