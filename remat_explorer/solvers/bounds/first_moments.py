"""The moments that a few-moments relaxation begins with: where computing everything once exceeds the budget."""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.bounds.few_moments_settings import FEW_MOMENTS
from remat_explorer.solvers.condensed import Condensed


def first_moments(condensed: Condensed, budget: int, count: int = FEW_MOMENTS.first) -> list[int]:
    """Up to ``count`` operations with the largest needs of their own, spread over where checkpoint-all is too much."""
    over = np.flatnonzero(_keep_everything(condensed) > budget)
    if not len(over):
        return []
    own = condensed.operation_bytes - condensed.base
    return sorted({int(part[own[part].argmax()]) for part in np.array_split(over, min(count, len(over)))})


def _keep_everything(condensed: Condensed) -> np.ndarray:
    """Memory of checkpoint-all while each operation runs, bytes of shape (n,)."""
    change = np.zeros(condensed.n + 1)
    for v, size in enumerate(condensed.bytes):
        change[condensed.producer[v]] += size
        change[condensed.readers[v][-1] + 1] -= size
    last = np.array([v >= 0 and condensed.readers[v][-1] == k for k, v in enumerate(condensed.overwritten)])
    return np.cumsum(change)[:-1] + condensed.base + condensed.transient - condensed.credit * last
