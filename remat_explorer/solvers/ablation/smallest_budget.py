"""Between which budgets the schedules of a set of kinds begin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule


@dataclass(frozen=True, eq=False)
class SmallestBudget:
    """Between which budgets schedules of a set of kinds begin; bytes, resident ones included.

    Attributes:
        lower_bound: no schedule of the set fits into less.
        schedule: the one with the lowest peak that is known.
    """

    lower_bound: int
    schedule: Schedule

    @cached_property
    def known_feasible(self) -> int:
        """The peak of that schedule."""
        return Plan.of(self.schedule).peak

    @property
    def proven(self) -> bool:
        """Whether it is proven to be the smallest."""
        return self.lower_bound >= self.known_feasible
