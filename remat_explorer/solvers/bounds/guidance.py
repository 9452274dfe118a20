"""Eviction priorities for the planner, read off the few-moments relaxation."""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.bounds.few_moments import MomentsBound
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.guide import Guide

STRENGTHS = (3.0, 30.0)  # factor on the score of what the relaxation holds, and its inverse on what it does not


def guides(condensed: Condensed, relaxed: MomentsBound) -> list[Guide]:
    """Guides for walks towards what the relaxation has in memory at the next moment.

    A value that is held now and read before the next moment is kept, too; one that the relaxation computes again in
    the interval is left to the score.

    Args:
        condensed: n operations and their groups of values.
        relaxed: a bound with its solution.

    Returns:
        One guide per strength; none if the bound has no solution.
    """
    if relaxed.s is None or relaxed.x is None:
        return []
    moments, last = relaxed.moments, len(relaxed.moments)
    held = np.zeros((last + 1, condensed.groups))  # a row for the stages up to each moment, one for those after all
    neutral = np.zeros((last + 1, condensed.groups), dtype=bool)
    row = np.searchsorted(np.array(moments), np.arange(condensed.n), side="right")
    for q in range(-1, last):
        start = moments[q] if q >= 0 else 0
        end = moments[q + 1] if q + 1 < last else condensed.n
        if q + 1 < last:
            held[q + 1] = relaxed.s[q + 1]
            held[q + 1, list(condensed.inputs[end])] = 1.0  # even what it overwrites
            neutral[q + 1] |= condensed.producer >= end  # the next moment says nothing about what comes after it
        if q >= 0:
            read = condensed.read_from(start, end)
            held[q + 1] = np.maximum(held[q + 1], relaxed.s[q] * read)
            neutral[q + 1] |= (relaxed.x[q][condensed.producer] > 0.5) & (held[q + 1] < 0.5)
    held[neutral] = 0.5
    return guides_to(held, row)


def guides_to(held: np.ndarray, row: np.ndarray) -> list[Guide]:
    """Guides towards what is held, between 0 and 1, of shape (rows, groups), where each stage has its row."""
    return [Guide(np.log(strength) * (2 * held - 1), row) for strength in STRENGTHS]
