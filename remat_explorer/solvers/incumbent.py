"""The best schedule and the highest lower bound that a search knows, and the reports on both."""

from __future__ import annotations

import math
from dataclasses import replace
from threading import Lock

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits, Progress


class Incumbent:
    """What a search knows so far; it only gets better. Two threads may work on it at once.

    Args:
        limits: whom to tell of each better schedule.
        schedule: one within the budget that is known already, or None.
        bound: a lower bound on the cost that is known already.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.checkpoint_all import checkpoint_all
    >>> known = Incumbent(Limits(report=lambda progress: print(progress.doing, progress.cost)), bound=17.0)
    >>> known.keep(checkpoint_all(linear(8)))
    found a better schedule 17.0
    >>> known.keep(checkpoint_all(linear(8)))
    >>> known.raise_bound(16.0)
    >>> known.gap
    0.0
    """

    def __init__(self, limits: Limits, schedule: Schedule | None = None, bound: float = 0.0) -> None:
        self._limits, self._lock = limits, Lock()
        self.schedule, self.bound = schedule, bound

    @property
    def cost(self) -> float:
        """Cost of the best schedule; infinity while there is none."""
        return math.inf if self.schedule is None else self.schedule.cost

    @property
    def gap(self) -> float:
        """Cost less bound: 0 where it is proven that there is no schedule, infinity where neither is known."""
        return 0.0 if math.isinf(self.bound) else self.cost - self.bound

    def within(self, share: float) -> bool:
        """Whether the gap is at most a share of the cost, or it is proven that there is no schedule."""
        return self.gap <= (0.0 if self.schedule is None else share * self.schedule.cost)

    def keep(self, schedule: Schedule | None) -> None:
        """Take a schedule within the budget if it is cheaper than the best so far, and tell of it."""
        with self._lock:
            if schedule is None or schedule.cost >= self.cost:
                return
            self.schedule = schedule
        self.tell("found a better schedule")

    def raise_bound(self, bound: float) -> None:
        """Take a bound if it is higher.

        Infinity claims that there is no schedule; one in hand refutes that: it was the solver's tolerance.
        """
        with self._lock:
            if self.schedule is None or math.isfinite(bound):
                self.bound = max(self.bound, bound)

    def tell(self, doing: str) -> None:
        """Report what is known."""
        self._limits.tell(doing, self.schedule, self.bound)

    def pass_on(self, progress: Progress) -> None:
        """Report what a step says: its own bound may be below one that is known already, and its schedule dearer."""
        bound = max(progress.lower_bound or 0.0, self.bound)
        own = progress.schedule
        schedule = self.schedule if own is None or self.cost <= own.cost else own
        self._limits.report(replace(progress, schedule=schedule, lower_bound=bound))

    def answer(self) -> Answer:
        """What the search ends with, told as its last report."""
        solver = self._limits.solver
        if self.schedule is None and math.isinf(self.bound):
            return Answer(None, infeasible=True, solver=solver)
        self.tell("done")
        return Answer(self.schedule, self.bound, solver=solver)
