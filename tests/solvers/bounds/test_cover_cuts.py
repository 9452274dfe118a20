"""Lifted covers cut off the point they are made for, and nothing that fits."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, reject
from hypothesis import strategies as st

from remat_explorer.solvers.bounds.stages import MemoryRow, violated_cover
from remat_explorer.solvers.linear_expression import ONE, LinearExpression

SIZES = st.lists(st.integers(1, 12), min_size=2, max_size=7)
TENTHS = st.integers(0, 10)


def row_of(sizes: list[int], room: int, complemented: int) -> MemoryRow:
    """x = column, or 1 - column where the bit of the term is set."""
    terms = [LinearExpression.of(i) for i in range(len(sizes))]
    terms = [ONE - term if complemented >> i & 1 else term for i, term in enumerate(terms)]
    return MemoryRow.of(room, list(zip(sizes, terms, strict=True)))


@given(SIZES, st.integers(0, 40), st.integers(0, 127), st.lists(TENTHS, min_size=7, max_size=7))
def test_a_cover_holds_at_every_integral_point_that_fits(sizes, room, complemented, tenths):
    row = row_of(sizes, room, complemented)
    point = np.array(tenths[: len(sizes)]) / 10
    cover = violated_cover(row, point)
    if cover is None:
        reject()
    terms, coefficients = list(cover.terms), np.array(cover.coefficients)
    assert coefficients @ row.presence(point)[terms] > cover.right + 0.02  # the least violation
    for x in product((0.0, 1.0), repeat=len(sizes)):
        if np.dot(sizes, x) <= room:
            assert coefficients @ np.array(x)[terms] <= cover.right


def test_a_large_value_stands_for_several_of_a_cover():
    row = row_of([4, 4, 4, 9], 11, 0)  # three of the first do not fit, and neither does the last beside one of them
    cover = violated_cover(row, np.array([0.9, 0.9, 0.9, 0.1]))
    assert cover == ((0, 1, 2, 3), (1, 1, 1, 2), 2)


def test_a_point_that_is_integral_and_fits_violates_nothing():
    assert violated_cover(row_of([4, 4, 4, 9], 11, 0), np.array([1.0, 1.0, 0.0, 0.0])) is None
    assert violated_cover(row_of([4, 4], 11, 0), np.array([1.0, 1.0])) is None
