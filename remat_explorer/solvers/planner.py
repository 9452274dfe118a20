"""A schedule within a budget in milliseconds: several walks, and repair where they fail.

Walks with a few exponents of the eviction score come first; the cheapest schedule wins. If none fits, the walk is
repeated with weights that grow on what the stuck stage had to recompute, so that it is kept the next time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.walk import Conflict, Exponents, Walk

EXPONENTS = (
    Exponents(1, 1, 1),
    Exponents(0.5, 1, 1),
    Exponents(1, 1, 0),
    Exponents(1, 0.7, 0.7),
    Exponents(1, 1, 0.5),
    Exponents(1, 0.5, 1),
    Exponents(1, 1, 2),
    Exponents(0.5, 0.5, 0.5),
)
REPAIR_EXPONENTS = (Exponents(1, 1, 1), Exponents(0.5, 1, 1), Exponents(1, 1, 0.3))
GUIDED_EXPONENTS = (Exponents(1, 1, 1), Exponents(0.5, 1, 1), Exponents(1, 1, 0.5), Exponents(1, 1, 0))
REPAIR_TRIES, REPAIR_STEP = 60, 0.5


def plan_schedule(
    condensed: Condensed, budget: int, seconds: float = 2.0, cancelled: Callable[[], bool] = lambda: False
) -> Schedule | None:
    """A schedule whose peak is within ``budget``, or None if the walks found none.

    Checkpoint-all is returned wherever it fits, so a budget of at least its peak always has a schedule.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        seconds: no new walk begins after this time.
        cancelled: asked between walks; once True the best so far is returned.
    """
    end = time.monotonic() + seconds

    def over() -> bool:
        return time.monotonic() > end or cancelled()

    best = _fitting(checkpoint_all(condensed.graph), budget)
    if best is not None or budget < condensed.operation_bytes.max():
        return best
    untouched = np.ones(condensed.groups)
    for exponents in EXPONENTS:
        found = _realize(condensed, budget, Walk(condensed, budget, exponents, untouched).run())
        if found is not None and (best is None or found.cost < best.cost):
            best = found
        if over():
            return best
    return best or _repair(condensed, budget, over)


def guided_schedule(
    condensed: Condensed, budget: int, guides: list[np.ndarray], over: Callable[[], bool]
) -> Schedule | None:
    """The cheapest schedule of walks that keep what guides of shape (n, groups) say, or None.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        guides: factors on the eviction score by stage, as `guidance.guide` makes them.
        over: asked between walks; once True the best so far is returned.
    """
    best: Schedule | None = None
    for guide in guides:
        for exponents in GUIDED_EXPONENTS:
            if over():
                return best
            found = _realize(condensed, budget, Walk(condensed, budget, exponents, guide).run())
            if found is not None and (best is None or found.cost < best.cost):
                best = found
    return best


def _repair(condensed: Condensed, budget: int, over: Callable[[], bool]) -> Schedule | None:
    """Walks with conflict-driven weights, first without, then with recomputed gradients."""
    random = np.random.default_rng(0)
    for any_operation in (False, True):
        for exponents in REPAIR_EXPONENTS:
            logarithms = np.zeros(condensed.groups)
            for _ in range(REPAIR_TRIES):
                if over():
                    return None
                ended = Walk(condensed, budget, exponents, np.exp(logarithms), any_operation).run()
                if not isinstance(ended, Conflict):
                    found = _realize(condensed, budget, ended)
                    if found is not None:
                        return found
                    break
                _raise_weights(condensed, logarithms, ended)
                if random.random() < 0.3:  # out of a cycle of conflicts
                    logarithms += 0.1 * random.normal(size=condensed.groups)
    return None


def _raise_weights(condensed: Condensed, logarithms: np.ndarray, conflict: Conflict) -> None:
    """Keep longer what the stuck stage read or had to recompute."""
    logarithms[list(condensed.inputs[conflict.stage])] += 2 * REPAIR_STEP
    for position, k in enumerate(conflict.running[:-1]):
        if k >= conflict.operation:
            logarithms[list(condensed.outputs[k])] += REPAIR_STEP * (0.5 + position / len(conflict.running))


def _realize(condensed: Condensed, budget: int, ended: np.ndarray | Conflict) -> Schedule | None:
    return None if isinstance(ended, Conflict) else _fitting(condensed.schedule(ended), budget)


def _fitting(schedule: Schedule, budget: int) -> Schedule | None:
    """The schedule if it is executable and its plan stays within the budget, by the plan's own account."""
    if schedule.violation() is None and Plan.of(schedule).peak <= budget:
        return schedule
    return None
