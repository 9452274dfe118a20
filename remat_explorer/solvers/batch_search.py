"""The search for the largest batch: bounds from above, schedules from below, until they meet or the time is up.

A schedule that was planned for one batch often fits a larger one; how large is read off its timeline, since the memory
at every statement is a line in the batch. What is found is believed only once the checker agrees at its own batch.
"""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.checker import Checked, check
from remat_explorer.errors import ScheduleError
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.batch_bound import (
    BatchBound,
    BatchProblem,
    integral_batch_bound,
    largest_operation_batch,
    relaxed_batch_bound,
)
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.few_moments import few_moments_bound
from remat_explorer.solvers.guidance import guides
from remat_explorer.solvers.planner import guided_schedule, plan_schedule

PLANNING, RELAXING = 2.0, 5.0  # seconds for one batch, at most
INTEGRAL = 0.5  # share of the time that is left for the integer program, at most


class BatchSearch:
    """The largest batch with a schedule, and the bound on it; both improve from step to step.

    Attributes:
        found: the checked schedule of the largest batch so far, or None.
        batch: that batch, 0 for none.
        upper_bound: no schedule has a larger batch.
        operation: the operation that alone fits no larger batch than the first bound.
        checkpoint_all_batch: the largest batch of keeping everything, 0 for none.
    """

    def __init__(self, problem: BatchProblem, limits: Limits) -> None:
        self.problem, self.limits = problem, limits
        self.found: Checked | None = None
        self.batch = 0
        self.upper_bound, self.operation = largest_operation_batch(problem)
        self.bound: BatchBound | None = None
        self.checkpoint_all_batch = 0

    def run(self) -> None:
        """All steps, the cheap ones first."""
        if self.upper_bound < 1:
            return
        kept = checkpoint_all(self.problem.scaling.graph)
        self._keep(kept.R, kept.S, 1)
        self.checkpoint_all_batch = self.batch
        for step in (self._plan_for_bound, self._relax, self._bisect, self._prove, self._bisect):
            if self.limits.over or self.settled:
                break
            step()
        self._tell("done")

    @property
    def settled(self) -> bool:
        """Whether the batch is proven to be the largest."""
        return self.batch == self.upper_bound

    def _plan_for_bound(self) -> None:
        self._tell("planning")
        self._try(self.upper_bound, guided=False)

    def _relax(self) -> None:
        """The linear program's bound, and a try at it."""
        self._tell("bounding from a few moments")
        before = self.upper_bound
        self.bound = relaxed_batch_bound(self.problem, before, self.limits)
        self.upper_bound = max(self.batch, self.bound.batch)
        if self.upper_bound < before and not self.settled:
            self._try(self.upper_bound, guided=True)

    def _bisect(self) -> None:
        """Tries between what is found and the bound."""
        low, high = self.batch, self.upper_bound
        while high - low > 1 and not self.limits.over:
            middle = (low + high) // 2
            self._tell(f"planning for batch {middle}")
            self._try(middle, guided=True)
            low = max(low, self.batch)
            if self.batch < middle:
                high = min(middle, self.upper_bound)

    def _prove(self) -> None:
        """The integer program's bound."""
        if self.bound is not None:
            self._tell("bounding from a few moments, integrally")
            self.bound = integral_batch_bound(self.problem, self.bound, self.limits.share(INTEGRAL))
            self.upper_bound = max(self.batch, min(self.upper_bound, self.bound.batch))

    def _try(self, batch: int, guided: bool) -> None:
        """Plan for ``batch``; with guided walks, if the first ones are too dear."""
        condensed, memory = Condensed.of(self.problem.scaling.at(batch)), self.problem.memory
        self._keep_schedule(plan_schedule(condensed, memory, min(PLANNING, self.limits.left)), batch)
        if self.batch >= batch or not guided or self.limits.over:
            return
        share = Limits(min(RELAXING, self.limits.left), self.limits.solver, self.limits.threads)
        relaxed = few_moments_bound(condensed, memory, share)
        walks = guides(condensed, relaxed)
        self._keep_schedule(guided_schedule(condensed, memory, walks, lambda: self.limits.over), batch)

    def _keep_schedule(self, schedule: Schedule | None, batch: int) -> None:
        if schedule is not None:
            self._keep(schedule.R, schedule.S, batch)

    def _keep(self, R: np.ndarray, S: np.ndarray, batch: int) -> None:
        """Take a schedule over at the largest batch that it fits, at least the one it was planned for."""
        for largest in dict.fromkeys((self._reach(R, S, batch), batch)):
            if largest <= self.batch:
                continue
            try:
                checked = check(self.problem.scaling.at(largest), R, S, self.problem.memory)
            except ScheduleError:
                continue
            if self.problem.allows(checked.cost, largest):
                self.found, self.batch = checked, largest
                self.upper_bound = max(self.upper_bound, largest)  # a solver's tolerance was too wide
                self._tell("found a larger batch")
                return

    def _reach(self, R: np.ndarray, S: np.ndarray, batch: int) -> int:
        """The largest batch at which the memory of a schedule's plan is within the memory, 0 for none."""
        fixed, at_batch = (
            Plan.of(Schedule(self.problem.scaling.at(b), R, S)).timeline.during.astype(float) for b in (0, batch)
        )
        growth = (at_batch - fixed) / batch
        if (fixed > self.problem.memory).any() or not (growth > 0).any():
            return 0
        room = (self.problem.memory - fixed[growth > 0]) / growth[growth > 0]
        return max(0, math.floor(room.min() * (1 + 1e-12)))

    def _tell(self, doing: str) -> None:
        bound = f"batch {self.batch} of at most {self.upper_bound}"
        self.limits.tell(f"{doing}: {bound}", None if self.found is None else self.found.schedule)
