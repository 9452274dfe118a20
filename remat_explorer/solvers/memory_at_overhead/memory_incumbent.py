"""The schedule with the least memory at a limited cost, and the bound below which there is none."""

from __future__ import annotations

import math

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.checkpoint_all import checkpoint_all

CLOSE = 1e-3  # relative distance to the bound at which there is as good as nothing left to find


class MemoryIncumbent:
    """What a search for less memory knows so far; it only gets better.

    Args:
        graph: whose default execution is the first schedule.
        least: bytes that some operation needs for itself.
        limits: whom to tell.

    Attributes:
        best: the schedule.
        peak: of its plan, in bytes.
        bound: bytes; no schedule within the limit on the cost does with less.

    >>> from remat_explorer.instances import linear
    >>> known = MemoryIncumbent(linear(8), 3, Limits())
    >>> known.raise_bound(4.5)
    >>> known.peak, known.bound, known.settled
    (10, 5, False)
    """

    def __init__(self, graph: Graph, least: int, limits: Limits) -> None:
        self.best: Schedule = checkpoint_all(graph)
        self.peak = Plan.of(self.best).peak
        self.bound = least
        self._limits = limits

    @property
    def settled(self) -> bool:
        """Whether schedule and bound are as good as equal."""
        return self.peak - self.bound < CLOSE * self.peak

    def keep(self, schedule: Schedule) -> None:
        """Take a schedule within the limit on the cost if it needs less memory, and tell of it."""
        peak = Plan.of(schedule).peak
        if peak < self.peak:
            self.best, self.peak = schedule, peak
            self.tell("found a schedule with less memory")

    def raise_bound(self, bound: float) -> None:
        """No schedule does with less; one in hand refutes what claims more: it was the solver's tolerance."""
        self.bound = max(self.bound, min(math.ceil(bound), self.peak))

    def tell(self, doing: str) -> None:
        """Say what is being done, with the best schedule."""
        self._limits.tell(doing, self.best)
