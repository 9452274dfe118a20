"""What a walk is told to keep rather than to evict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Guide(NamedTuple):
    """Logarithms of factors on the eviction score: what has a larger one stays longer.

    Attributes:
        rows: of shape (rows, groups); stages in a row share one.
        row: the row of each stage, int64 of shape (n,).
    """

    rows: np.ndarray
    row: np.ndarray

    @staticmethod
    def everywhere(logarithms: np.ndarray, stages: int) -> Guide:
        """The same logarithms, of shape (groups,), in every stage."""
        return Guide(logarithms[None, :], np.zeros(stages, dtype=np.int64))

    def plus(self, logarithms: np.ndarray) -> Guide:
        """With logarithms of shape (groups,) added in every stage."""
        return Guide(self.rows + logarithms, self.row)
