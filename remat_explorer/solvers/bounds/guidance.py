"""Eviction priorities for the planner, read off the few-moments relaxation."""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.bounds.few_moments import MomentsBound
from remat_explorer.solvers.condensed import Condensed

STRENGTHS = (3.0, 30.0)  # factor on the score of what the relaxation holds, and its inverse on what it does not


def guides(condensed: Condensed, relaxed: MomentsBound) -> list[np.ndarray]:
    """Factors on the planner's eviction score, larger for what the relaxation has in memory at the next moment.

    A value that is held now and read before the next moment is kept, too; one that the relaxation computes again in
    the interval is left to the score.

    Args:
        condensed: n operations and their groups of values.
        relaxed: a bound with its solution.

    Returns:
        One array of shape (n, groups) per strength; none if the bound has no solution.
    """
    if relaxed.s is None or relaxed.x is None:
        return []
    moments, last = relaxed.moments, len(relaxed.moments)
    held = np.zeros((condensed.n, condensed.groups))
    neutral = np.zeros((condensed.n, condensed.groups), dtype=bool)
    for q in range(-1, last):
        start = moments[q] if q >= 0 else 0
        end = moments[q + 1] if q + 1 < last else condensed.n
        stages = slice(start, end)
        if q + 1 < last:
            held[stages] = relaxed.s[q + 1]
            held[stages, list(condensed.inputs[end])] = 1.0  # even what it overwrites
            neutral[stages] |= condensed.producer >= end  # the next moment says nothing about what comes after it
        if q >= 0:
            read = condensed.read_from(start, end)
            held[stages] = np.maximum(held[stages], relaxed.s[q] * read)
            neutral[stages] |= (relaxed.x[q][condensed.producer] > 0.5) & (held[stages] < 0.5)
    held[neutral] = 0.5
    return guides_to(held)


def guides_to(held: np.ndarray) -> list[np.ndarray]:
    """Factors on the eviction score that pull towards what is held, between 0 and 1, of shape (n, groups)."""
    return [strength ** (2 * held - 1) for strength in STRENGTHS]
