"""Limits of time in processor seconds, so that other work on the machine hardly matters.

To be imported before anything that looks at the clock. Back ends look at the wall clock within a solve; they are given
as much of it as this process needs for the processor seconds that are left, going by what it has needed so far.
"""

from __future__ import annotations

import math
import time
from typing import Any

time.monotonic = time.process_time

from remat_explorer.solvers.milp import Milp, MilpOutcome  # noqa: E402  reads the clock

_begun, _solve = time.perf_counter(), Milp.solve


def _solve_in_processor_seconds(milp: Milp, time_limit: float = math.inf, *rest: Any, **options: Any) -> MilpOutcome:
    share = max(1.0, (time.perf_counter() - _begun) / max(time.process_time(), 1e-3))
    return _solve(milp, time_limit * share, *rest, **options)


Milp.solve = _solve_in_processor_seconds  # pyright: ignore[reportAttributeAccessIssue]  the same call
