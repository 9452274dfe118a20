"""How much recomputation may cost: Checkmate's "one extra forward pass", or a share of keeping everything."""

from __future__ import annotations

import math
import re

import numpy as np

from remat_explorer.errors import QuantityError, shown

ONE_EXTRA_FORWARD = "one extra forward"
OverheadLimit = str | float | None
MOST = 1e6  # no schedule costs so many times as much as keeping everything
_PERCENT = re.compile(r"((?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+))\s*%")
_HINT = f'write "{ONE_EXTRA_FORWARD}", a ratio of at least 1 such as 1.3, or a percentage such as "10%"'


def allowed_recomputation(costs: np.ndarray, is_backward: np.ndarray, limit: OverheadLimit) -> float:
    """Cost beyond that of running every operation once.

    Args:
        costs: C, cost of each operation, float of shape (n,).
        is_backward: which operations belong to the backward pass, bool of shape (n,).
        limit: "one extra forward" (Checkmate, MLSys 2020, (10)), a ratio to keeping everything, a percentage
            on top of it, or None for no limit.

    Raises:
        QuantityError: if the limit is none of these.

    >>> costs, is_backward = np.array([1.0, 2.0, 6.0]), np.array([False, False, True])
    >>> [round(allowed_recomputation(costs, is_backward, limit), 9) for limit in ("one extra forward", 1.5, "10%")]
    [3.0, 4.5, 0.9]
    """
    if limit is None:
        return math.inf
    if limit == ONE_EXTRA_FORWARD:
        return float(costs[~is_backward].sum())
    return _share(limit) * float(costs.sum())


def _share(limit: str | float) -> float:
    percent = isinstance(limit, str) and _PERCENT.fullmatch(limit.strip())
    try:
        share = math.nan if isinstance(limit, bool) else float(percent[1]) / 100 if percent else float(limit) - 1
    except (TypeError, ValueError, OverflowError):
        share = math.nan
    if not 0 <= share <= MOST:
        raise QuantityError(f"{shown(limit)} is no limit on the overhead; {_HINT}")
    return share
