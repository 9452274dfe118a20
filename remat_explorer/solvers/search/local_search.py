"""Walks through one graph within one budget, and local search over schedules.

Local search is coolings of simulated annealing, each from the best schedule or from a new walk.

All work is done in compiled code that releases the interpreter's lock, so that a search can run in a thread beside a
solver. The result depends on the seed, the number of iterations and what was offered when, not on time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.search.compiled_state import BETTER, FlatGraph, FlipState, Neighbourhoods, WalkState
from remat_explorer.solvers.solver_interface import MOST_COMPUTATIONS

BATCH = 1_000_000  # iterations times operations between two questions whether the time is over; it changes no result
HEATS = (1.0, 0.3, 2.0)  # factors on the temperatures, one cooling after another
LOOSER = (1.0, 1.02, 1.05, 1.1, 1.2, 1.4, 2.0)  # budgets of walks that local search begins with, in budgets


_LONGEST_COOLING = 400_000  # iterations of any cooling, at most


@dataclass(frozen=True)
class LocalSearchSettings:
    """How long the coolings are, how hot, and what they begin with."""

    first_cooling_each: int = 200  # iterations of the first cooling for each operation
    first_cooling: int = 20_000  # iterations of the first cooling, at most
    longest_cooling_each: int = 1000  # iterations of any cooling for each operation, at most
    growth: int = 3  # length of a cooling in lengths of the one before it
    hottest: float = 0.3  # first temperature, in costs of an average operation
    coldest: float = 0.01  # last temperature, as a share of the first
    wider: int = 4  # one cooling in so many may compute operations of the backward pass again
    fresh: int = 3  # one cooling in so many begins with a new walk, not with the best schedule


LOCAL_SEARCH = LocalSearchSettings()


class LocalSearch:
    """A resumable search for cheaper schedules of one graph within one budget.

    ``iterations`` and ``coolings`` count what was done so far; the first cooling has ``first_cooling`` iterations.
    """

    def __init__(
        self, condensed: CondensedGraph, budget: int, seed: int = 0, settings: LocalSearchSettings = LOCAL_SEARCH
    ) -> None:
        n, groups = condensed.n, condensed.groups
        self.condensed, self.budget, self.settings = condensed, int(budget), settings
        self._walks = Walks(condensed, self.budget)
        self._draw = np.random.default_rng(seed)
        self._guides: list[Guide] = []
        self._best: Schedule | None = None
        self._improved = False
        self._state = FlipState.empty(n, groups)
        self._annealing = np.array([0.0, 0.0, 1.0, math.inf])  # as `anneal` wants them
        self._random = np.array([seed], dtype=np.uint64)
        self._peaks, self._stack = np.zeros(n, dtype=np.int64), np.zeros(32, dtype=np.int32)
        self._stopped = np.zeros(1, dtype=np.bool_)
        self.first_cooling = min(settings.first_cooling_each * n, settings.first_cooling)
        self.iterations, self.coolings, self._done, self._length = 0, 0, 0, 0
        self._allowed = ~self._walks.backward

    @property
    def best(self) -> Schedule | None:
        """The cheapest schedule that is known, checked by its plan; None if there is none."""
        if self._improved:
            self._improved = False
            computations = with_first_runs(self.condensed.n, self._best_again)
            self._best = if_within(self.condensed.schedule(computations), self.budget) or self._best
        return self._best

    @property
    def least(self) -> float:
        """Cost of the recomputations of the cheapest schedule that is known; infinity if there is none."""
        return float(self._annealing[-1])

    def offer(self, schedule: Schedule | None) -> None:
        """Take ``schedule`` as the best one if it is within the budget and cheaper: the next cooling begins with it."""
        if schedule is None or if_within(schedule, self.budget) is None:
            return
        again, n = recomputations_of(schedule.computations, self.condensed.n), self.condensed.n
        cost = float((schedule.computations.counts(n) - 1.0) @ self.condensed.costs)
        if cost < self._annealing[-1]:
            self._best, self._improved = schedule, False
            self._annealing[-1] = cost
            self._state.best[: len(again)] = again
            self._state.numbers[BETTER] = len(again)

    def guide(self, guides: Sequence[Guide]) -> None:
        """Let some coolings begin with walks that follow ``guides``, as `few_moments.guides` makes them."""
        self._guides = list(guides)

    def begin(self, computations: Computations | None, length: int) -> None:
        """Begin a cooling of ``length`` iterations with a schedule within the budget or not; None: with a new walk."""
        self._begin_cooling(self._walk if computations is None else lambda: computations)
        self._length = length

    def stop(self) -> None:
        """End `run` within a millisecond, from any thread; a later `run` goes on."""
        self._stopped[0] = True

    def run(self, iterations: int, over: Callable[[], bool] = lambda: False) -> Schedule | None:
        """The best schedule after so many more iterations, or None if none within the budget is known.

        An iteration takes one to four microseconds.
        """
        from remat_explorer.solvers.search.annealing import anneal  # compiled on its first use

        self._stopped[0] = False
        left = iterations if self.condensed.groups else 0  # without groups there is nothing to retain
        while left > 0 and not self._stopped[0] and not over():
            if self._done == self._length:
                self._begin_cooling()
            last = min(self._length, self._done + max(1, BATCH // self.condensed.n), self._done + left)
            better = anneal(
                self._walks.flat,
                self._state,
                self.budget,
                self._allowed,
                self._annealing,
                self._done,
                last,
                self._length,
                self._random,
                self._peaks,
                self._stack,
                self._stopped,
            )
            self._improved = self._improved or better > 0
            left -= last - self._done
            self.iterations += last - self._done
            self._done = last
        return self.best

    @property
    def _best_again(self) -> np.ndarray:
        return self._state.best[: self._state.numbers[BETTER]].astype(np.int64)

    def _begin_cooling(self, first: Callable[[], Computations] | None = None) -> None:
        """Set temperatures and the schedule to begin with."""
        from remat_explorer.solvers.search.annealing import COLD, HOT, WEIGHT, start

        settings = self.settings
        number, self.coolings = self.coolings, self.coolings + 1
        longest = min(settings.longest_cooling_each * self.condensed.n, _LONGEST_COOLING)
        self._done, self._length = 0, min(self.first_cooling * settings.growth**number, longest)
        self._annealing[HOT] = HEATS[number % len(HEATS)] * settings.hottest / self.condensed.n
        self._annealing[COLD] = settings.coldest * self._annealing[HOT]
        self._annealing[WEIGHT] = 1.0
        has_schedule = math.isfinite(self._annealing[-1])
        self._allowed = ~self._walks.backward
        if number % settings.wider == settings.wider - 1 or (not has_schedule and number % 2):
            self._allowed[:] = True
        if first is None and (not has_schedule or (number % settings.fresh == settings.fresh - 1)):
            first = self._walk
        again = recomputations_of(first(), self.condensed.n) if first else self._best_again
        # later operations of a stage first: they hold the inputs that earlier ones then need not
        ordered = np.lexsort((-(again % self.condensed.n), again // self.condensed.n))
        start(self._walks.flat, self._state, again[ordered])

    def _walk(self) -> Computations:
        """A walk with random exponents and noise, in a budget that is larger where it would be stuck."""
        groups = self.condensed.groups
        exponents = self._draw.uniform((0.2, 0.4, 0.0), (1.3, 1.2, 1.5))
        noise = self._draw.normal(scale=0.5, size=groups)
        if self._guides:
            guide = self._guides[int(self._draw.integers(len(self._guides)))].plus(noise)
        else:
            guide = Guide.everywhere(noise, self.condensed.n)
        for looser in LOOSER:  # what comes to the end beyond the budget is a better beginning than what is stuck
            budget = int(looser * self.budget)
            walked = self._walks.walk(exponents, guide, bool(self._allowed.all()), budget=budget)
            if walked.complete:
                break
        return walked.computations


def recomputations_of(computations: Computations, n: int) -> np.ndarray:
    """Recomputations as stage * n + operation, int64: what is computed after its own stage."""
    again = computations.operation < computations.stage
    return (computations.stage * n + computations.operation)[again]


def with_first_runs(n: int, again: np.ndarray) -> Computations:
    """Recomputations as stage * n + operation, and operation t in each stage t."""
    stage, operation = np.divmod(np.sort(np.append(again, np.arange(n) * (n + 1))), n)
    return Computations(stage, operation, np.ones(len(stage), dtype=np.uint8))


class Guide(NamedTuple):
    """Logarithms of factors on the eviction score: what has a larger one stays longer."""

    rows: np.ndarray  # of shape (rows, groups); stages in a row share one
    row: np.ndarray  # the row of each stage, int64 of shape (n,)

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


class WalkResult(NamedTuple):
    """What a walk computed as far as it came, the conflict that stopped it, and whether it came to the end."""

    computations: Computations
    conflict: Conflict | None
    complete: bool


class Walks:
    """Walks through one graph within one budget; see `remat_explorer.solvers.search.walk`."""

    def __init__(self, condensed: CondensedGraph, budget: int) -> None:
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
    ) -> WalkResult:
        """Walk once.

        ``exponents`` are of recomputation cost, bytes and distance to the next use in the eviction score. The walk ends
        once its recomputations must cost more than ``most_cost``.
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
        return WalkResult(computations, conflict, ended == walk.DONE)

    def better(self, best: Schedule | None, computations: Computations) -> Schedule | None:
        """The cheaper of the best schedule so far and that of a walk that came to the end."""
        schedule = if_within(self.condensed.schedule(computations), self.budget)
        return schedule if schedule is not None and (best is None or schedule.cost < best.cost) else best


def if_within(schedule: Schedule, budget: int) -> Schedule | None:
    """The schedule if it is executable and its plan stays within the budget, by the plan's own account."""
    if schedule.violation() is None and Plan.of(schedule).peak <= budget:
        return schedule
    return None
