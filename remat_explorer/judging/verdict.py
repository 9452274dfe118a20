"""What is said of a method at a budget, with what is proven at the peak of its own schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from remat_explorer.claims import Status

SAME = 1e-9  # relative difference of two costs that are the same


@dataclass(frozen=True)
class Verdict:
    """One method on one graph at one budget.

    Cost and peak are the checker's. The distance from the optimum is that at the method's own peak, and lies between
    `at_least` and `at_most`, which are equal where ours is proven optimal.

    Attributes:
        graph, method: names.
        budget: bytes that were asked for.
        label: the setting of the schedule, in words, or "".
        least: cost of computing everything once.
        cost, peak: of the schedule; None where there is none.
        seconds: that finding it took; of a method with settings, all of them.
        stages: whether the schedule goes stage by stage, which all that is proven is about.
        bound: no schedule with stages costs less within ``peak`` bytes; None where nothing is proven.
        ours, ours_peak, status: cost, peak and status of our schedule within ``peak``; None where there is none.
        problem: why there is no schedule, or "".

    >>> proven = {"bound": 10.5, "ours": 11.0, "ours_peak": 88, "status": "feasible"}
    >>> verdict = Verdict("chain", "by hand", 100, 10.0, 12.0, 90, **proven)
    >>> verdict.kept, round(verdict.at_least, 3), round(verdict.at_most, 3), verdict.fault
    (True, 0.091, 0.143, '')
    """

    graph: str
    method: str
    budget: int
    least: float
    cost: float | None = None
    peak: int | None = None
    seconds: float = 0.0
    label: str = ""
    stages: bool = True
    bound: float | None = None
    ours: float | None = None
    ours_peak: int | None = None
    status: str | None = None
    problem: str = ""

    @property
    def kept(self) -> bool | None:
        """Whether the peak is within the budget; None where there is no schedule."""
        return None if self.peak is None else self.peak <= self.budget

    @property
    def overhead(self) -> float | None:
        """Cost over that of computing everything once."""
        return None if self.cost is None else self.cost / self.least if self.least else 1.0

    @property
    def at_least(self) -> float | None:
        """(cost - ours) / ours: lost for certain, since ours needs no more memory; negative where ours is worse."""
        return None if self.cost is None or not self.ours else self.cost / self.ours - 1

    @property
    def at_most(self) -> float | None:
        """(cost - bound) / bound: more cannot be lost; None where no bound holds for the schedule."""
        return None if self.cost is None or not self.bound or not self.stages else self.cost / self.bound - 1

    @property
    def fault(self) -> str:
        """What refutes a claim of ours, in words, or "".

        >>> Verdict("chain", "m", 9, 10.0, 12.0, 9, bound=13.0, ours=13.0, ours_peak=9, status="optimal").fault
        'costs 12, less than the bound of 13'
        """
        if self.cost is None or not self.stages:
            return ""
        if self.status == Status.INFEASIBLE:
            return f"has a schedule of {self.peak} bytes, which is called infeasible"
        if self.bound is not None and self.cost < self.bound * (1 - SAME):
            return f"costs {self.cost:.9g}, less than the bound of {self.bound:.9g}"
        if self.status == Status.OPTIMAL and self.ours is not None and self.cost < self.ours * (1 - SAME):
            return f"costs {self.cost:.9g}, less than ours of {self.ours:.9g}, which is called optimal"
        return ""

    def to_document(self) -> dict[str, Any]:
        """The fields as a JSON object, without those that have their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @staticmethod
    def from_document(entry: Mapping[str, Any]) -> Verdict:
        """The verdict of a parsed JSON object; what else stands in it is not read."""
        return Verdict(**{field.name: entry[field.name] for field in fields(Verdict) if field.name in entry})
