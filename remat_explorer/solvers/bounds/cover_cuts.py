"""Lifted cover cuts of the memory rows: of what does not fit together, something is missing.

A memory row says sum of a_i x_i <= b with sizes a_i and x_i, between 0 and 1, for how present each term is. A cover is
a set C whose sizes exceed b; then the x_i of C cannot all be 1. Let it be minimal, its sizes in descending order, and
m_h the sum of the first h. A term outside of C that is at least as large as the first h of C together can stand for h
of them, so

    sum over C of x_i + sum over j outside of (largest h with m_h <= a_j) x_j <= |C| - 1

holds at every integral point (lifting by Balas, 1975). A linear program fills a row to the byte with fractions of
large values; covers say how many of them fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from remat_explorer.solvers.bounds.row_settings import ROWS
from remat_explorer.solvers.linear_expression import LinearExpression, single_columns


class MemoryRow(NamedTuple):
    """A memory row without its fixed part.

    Attributes:
        room: b, bytes.
        sizes: a, bytes as floats, of shape (terms,).
        constants, columns, factors: x = constant + factor * column, of shape (terms,).
    """

    room: int
    sizes: np.ndarray
    constants: np.ndarray
    columns: np.ndarray
    factors: np.ndarray

    @staticmethod
    def of(room: int, terms: Sequence[tuple[int, LinearExpression]]) -> MemoryRow:
        """The row of sizes times expressions, each of one column."""
        sizes = np.array([size for size, _ in terms], dtype=float)
        constants, columns, factors = single_columns([term for _, term in terms]).T
        return MemoryRow(room, sizes, constants, columns.astype(np.int64), factors)

    def presence(self, values: np.ndarray) -> np.ndarray:
        """x at a point of the columns."""
        return self.constants + self.factors * values[self.columns]


class Cover(NamedTuple):
    """The cut sum of coefficients times x <= right, over terms of a row."""

    terms: tuple[int, ...]
    coefficients: tuple[int, ...]
    right: int


def violated_cover(row: MemoryRow, values: np.ndarray, violated: float = ROWS.covers) -> Cover | None:
    """A lifted cover cut that the point violates, or None; the cover is found greedily.

    Args:
        row: a memory row.
        values: a point, one value per column.
        violated: by how much, at least.

    >>> row = MemoryRow.of(10, [(size, LinearExpression.of(i)) for i, size in enumerate((6, 6, 13))])
    >>> violated_cover(row, np.array([0.8, 0.8, 0.0]))
    Cover(terms=(0, 1, 2), coefficients=(1, 1, 2), right=1)
    """
    sizes, x = row.sizes, row.presence(values)
    missing = np.maximum(1 - x, 0.0)
    order = np.lexsort((-sizes, missing / sizes))
    together = np.cumsum(sizes[order])
    count = int(np.searchsorted(together, row.room, side="right")) + 1
    if row.room < 0 or count > len(order):
        return None
    cover = order[:count]
    excess = together[count - 1] - row.room
    if missing[cover].sum() >= 1 + max(x.sum() - x[cover].sum(), 0.0):
        return None  # no lifting can make up for that
    kept = []
    for i in cover[np.argsort(-missing[cover], kind="stable")].tolist():  # what is missing most is left out first
        if sizes[i] < excess:
            excess -= sizes[i]
        else:
            kept.append(i)
    sums = np.cumsum(np.sort(sizes[kept])[::-1])
    coefficients = np.searchsorted(sums, sizes, side="right")
    coefficients[kept] = 1
    right = len(kept) - 1
    if coefficients @ x <= right + violated:
        return None
    terms = np.flatnonzero(coefficients)
    return Cover(tuple(terms.tolist()), tuple(coefficients[terms].tolist()), right)
