"""What must be in memory at some time in an interval between two moments, as sums of columns of a relaxation.

A group v is available in an interval, A(v), if it is in memory at the start, or is written in it by a first run or by
one that runs again. Shares of several ways must not add up to more than the inputs that they have in common allow:
half a run that reads x and half a run that reads y, where y is made of x again, would do with half of x. Two kinds of
rows see to that. Where several ways write v, a column w says whether any of them runs again,

    w[v] <= sum of x over the ways that write v,    w[v] <= A(u)  for what all of them read.

And where each way of a run reads one of some groups U, one of them is available, and the first that is was in memory at
the start, or was written without reading U:

    A(U) = sum over v in U of (s[v] + first runs that write v) + sum of x over the ways that write into U and do not
    read it >= 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from remat_explorer.solvers.linear_expression import LinearExpression, require
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedImplementation


class Availability:
    """What is available in one interval.

    Args:
        again: the ways that run again in it, by column.
        present: for a group, whether it is in memory at the start or written by a first run; None where that is so
            always.
        sizes: bytes of each group, 0 of those that are taken to be in memory for nothing; of shape (groups,).

    >>> normalize = CondensedImplementation(1, (0,), (1,), 1.0, transient=0, overwritten=-1, credit=0, persists=True)
    >>> held = {0: LinearExpression.of(10), 1: LinearExpression.of(11)}
    >>> available = Availability({20: normalize}, held.get, np.array([8, 8]))
    >>> available.of(1).columns
    (11, 20)
    >>> available.of_any((0, 1)).columns
    (10, 11)
    """

    def __init__(
        self,
        again: Mapping[int, CondensedImplementation],
        present: Callable[[int], LinearExpression | None],
        sizes: np.ndarray,
    ) -> None:
        self._present, self._sizes = present, sizes
        self._writers: dict[int, list[tuple[int, CondensedImplementation]]] = {}
        self._any: dict[int, int] = {}
        for column, way in again.items():
            for v in way.outputs:
                self._writers.setdefault(v, []).append((column, way))

    def add_columns(self, milp: Milp, column: Callable[[], int]) -> None:
        """Add w[v] where several ways write v again and what they read has something in common.

        Args:
            milp: the problem that the rows belong to.
            column: adds a column to it.
        """
        for v, writers in sorted(self._writers.items()):
            needs = self.common([way for _, way in writers]) if len(writers) > 1 else []
            allowed = [terms for terms in map(self.of_any, needs) if terms is not None]
            if allowed:
                self._any[v] = column()
                some = LinearExpression.of(self._any[v])
                require(milp, [(1.0, some), *((-1.0, LinearExpression.of(again)) for again, _ in writers)], "<")
                for terms in allowed:
                    require(milp, [(1.0, some), (-1.0, terms)], "<")

    def of(self, v: int) -> LinearExpression | None:
        """A(v); None where it is available always."""
        return self.of_any((v,))

    def of_any(self, groups: Collection[int]) -> LinearExpression | None:
        """A(U); None where one of the groups is available always."""
        constant, columns = 0.0, set[int]()
        for v in groups:
            terms = self._present(v)
            if terms is None:
                return None
            constant += terms.constant
            columns.update(terms.columns)
            writers = self._writers.get(v, ())
            fresh = [column for column, way in writers if not set(groups).intersection(way.inputs)]
            columns.update([self._any[v]] if v in self._any and len(fresh) == len(writers) else fresh)
        return None if constant >= 1 else LinearExpression(constant, tuple(sorted(columns)), (1.0,) * len(columns))

    def common(self, ways: Sequence[CondensedImplementation]) -> list[tuple[int, ...]]:
        """Sets of groups of each of which every way reads one: single ones, and the largest of the others of each way.

        Args:
            ways: at least one.
        """
        reads = [{v for v in way.inputs if self._sizes[v]} for way in ways]
        shared = set.intersection(*reads)
        rest = [read - shared for read in reads]
        sets: list[tuple[int, ...]] = [(v,) for v in sorted(shared)]
        if len(rest) > 1 and all(rest):
            sets.append(tuple(sorted({max(read, key=lambda v: (self._sizes[v], -v)) for read in rest})))
        return sets
