"""A schedule within a budget in milliseconds: several walks, and repair where they fail.

Walks with a few exponents of the eviction score come first; the cheapest schedule wins. If none fits, the walk is
repeated with weights that grow on what the stuck stage had to recompute, so that it is kept the next time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.flat_graph import FlatGraph

# exponents of recomputation cost, bytes, and distance to the next use in the eviction score
EXPONENTS = ((1, 1, 1), (0.5, 1, 1), (1, 1, 0), (1, 0.7, 0.7), (1, 1, 0.5), (1, 0.5, 1), (1, 1, 2), (0.5, 0.5, 0.5))
REPAIR_EXPONENTS = ((1, 1, 1), (0.5, 1, 1), (1, 1, 0.3))
GUIDED_EXPONENTS = ((1, 1, 1), (0.5, 1, 1), (1, 1, 0.5), (1, 1, 0))
REPAIR_TRIES, REPAIR_STEP = 60, 0.5


@dataclass(frozen=True)
class Conflict:
    """Where a walk got stuck: the stage, the operation that did not fit, and what the stage had to run."""

    stage: int
    operation: int
    running: tuple[int, ...]


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
    walks = Walks(condensed, budget)
    untouched = np.zeros(condensed.groups)
    for exponents in EXPONENTS:
        best = walks.better(best, walks.run(exponents, untouched))
        if over():
            return best
    return best or _repair(walks, over)


def guided_schedule(
    condensed: Condensed, budget: int, guides: list[np.ndarray], over: Callable[[], bool]
) -> Schedule | None:
    """The cheapest schedule of walks that keep what guides of shape (n, groups) say, or None.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        guides: factors on the eviction score by stage, as `guidance.guides` makes them.
        over: asked between walks; once True the best so far is returned.
    """
    best: Schedule | None = None
    walks = Walks(condensed, budget)
    for guide in guides:
        logarithms = np.log(guide)
        for exponents in GUIDED_EXPONENTS:
            if over():
                return best
            best = walks.better(best, walks.run(exponents, logarithms))
    return best


class Walks:
    """Walks through one graph within one budget."""

    def __init__(self, condensed: Condensed, budget: int) -> None:
        self.condensed, self.budget = condensed, budget
        self.flat = FlatGraph.of(condensed)

    def run(
        self,
        exponents: tuple[float, float, float],
        keep: np.ndarray,
        any_operation: bool = False,
        most_cost: float = math.inf,
    ) -> np.ndarray | Conflict | None:
        """R, or the conflict that stopped the walk, or None if it became dearer than ``most_cost``.

        Args:
            exponents: of the eviction score.
            keep: logarithms of factors on the score, of shape (groups,), or (n, groups) by stage.
            any_operation: whether operations of the backward pass may run again, too.
            most_cost: of the recomputations alone.
        """
        from remat_explorer.solvers import walk  # compiled on its first use

        n = self.condensed.n
        R = np.zeros((n, n), dtype=np.uint8)
        rows = np.ascontiguousarray(np.atleast_2d(keep), dtype=np.float32)
        powers = np.array(exponents, dtype=np.float64)
        ended, stage, operation, _ = walk.walk(self.flat, self.budget, powers, rows, any_operation, most_cost, R)
        if ended == walk.STUCK:
            return Conflict(stage, operation, tuple(np.flatnonzero(R[stage]).tolist()))
        return R if ended == walk.DONE else None

    def better(self, best: Schedule | None, ended: np.ndarray | Conflict | None) -> Schedule | None:
        """The cheaper of the best schedule so far and that of a walk."""
        if not isinstance(ended, np.ndarray):
            return best
        found = _fitting(self.condensed.schedule(ended), self.budget)
        return found if found is not None and (best is None or found.cost < best.cost) else best


def _repair(walks: Walks, over: Callable[[], bool]) -> Schedule | None:
    """Walks with conflict-driven weights, first without, then with recomputed gradients."""
    condensed = walks.condensed
    random = np.random.default_rng(0)
    for any_operation in (False, True):
        for exponents in REPAIR_EXPONENTS:
            logarithms = np.zeros(condensed.groups)
            for _ in range(REPAIR_TRIES):
                if over():
                    return None
                ended = walks.run(exponents, logarithms, any_operation)
                if not isinstance(ended, Conflict):
                    found = walks.better(None, ended)
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


def _fitting(schedule: Schedule, budget: int) -> Schedule | None:
    """The schedule if it is executable and its plan stays within the budget, by the plan's own account."""
    if schedule.violation() is None and Plan.of(schedule).peak <= budget:
        return schedule
    return None
