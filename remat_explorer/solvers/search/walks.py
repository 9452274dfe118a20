"""Walks through one graph within one budget, and what became of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations
from remat_explorer.solvers.base import MOST_COMPUTATIONS
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.compiled_state import Neighbourhoods, WalkState
from remat_explorer.solvers.search.flat_graph import FlatGraph


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


@dataclass(frozen=True)
class Conflict:
    """Where a walk got stuck: the stage, the operation that did not fit, and what the stage had to run."""

    stage: int
    operation: int
    running: tuple[int, ...]


class Walked(NamedTuple):
    """What a walk computed as far as it came, the conflict that stopped it, and whether it came to the end."""

    computations: Computations
    conflict: Conflict | None
    complete: bool


class Walks:
    """Walks through one graph within one budget; see `remat_explorer.solvers.search.walk`.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
    """

    def __init__(self, condensed: Condensed, budget: int) -> None:
        n, groups = condensed.n, condensed.groups
        self.condensed, self.budget = condensed, int(budget)
        self.flat = FlatGraph.of(condensed)
        self.backward = np.array(condensed.graph.is_backward, dtype=np.bool_)
        self._state = WalkState.empty(n, groups, len(self.flat.inputs))
        self._around = Neighbourhoods.empty(n, groups)
        self._ran = np.empty(min(n * n, MOST_COMPUTATIONS + n), dtype=np.int32)

    def walk(
        self,
        exponents: Sequence[float] | np.ndarray,
        guide: Guide,
        any_operation: bool = False,
        most_cost: float = math.inf,
        budget: int | None = None,
    ) -> Walked:
        """Walk once.

        Args:
            exponents: of recomputation cost, bytes and distance to the next use in the eviction score.
            guide: what to keep rather than to evict.
            any_operation: whether operations of the backward pass may run again, too.
            most_cost: the walk ends once its recomputations must cost more than this.
            budget: bytes, where it is not that of all walks.
        """
        from remat_explorer.solvers.search import walk  # compiled on its first use

        n = self.condensed.n
        forward_stages = 0 if any_operation or not self.backward.any() else int(self.backward.argmax())
        ended, stage, operation, count = walk.walk(
            self.flat,
            self._state,
            self._around,
            self.budget if budget is None else budget,
            np.array(exponents, dtype=np.float64),
            np.ascontiguousarray(guide.rows, dtype=np.float32),
            guide.row,
            np.ones(n, dtype=np.bool_) if any_operation or not self.backward.any() else ~self.backward,
            forward_stages,
            float(most_cost),
            self._ran,
        )
        stages, operations = np.divmod(np.unique(self._ran[:count]).astype(np.int64), n)
        conflict = None
        if ended == walk.STUCK:
            conflict = Conflict(stage, operation, tuple(operations[stages == stage].tolist()))
        computations = Computations(stages, operations, np.ones(len(stages), dtype=np.uint8))
        return Walked(computations, conflict, ended == walk.DONE)

    def better(self, best: Schedule | None, computations: Computations) -> Schedule | None:
        """The cheaper of the best schedule so far and that of a walk that came to the end."""
        schedule = if_within(self.condensed.schedule(computations), self.budget)
        return schedule if schedule is not None and (best is None or schedule.cost < best.cost) else best


def if_within(schedule: Schedule, budget: int) -> Schedule | None:
    """The schedule if it is executable and its plan stays within the budget, by the plan's own account."""
    if schedule.violation() is None and Plan.of(schedule).peak <= budget:
        return schedule
    return None
