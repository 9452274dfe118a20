"""What a file says of a solution, read strictly, and held against what its schedule really has.

Solution, sweep, ablation and cache files have the same claims, so they are read and checked here for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from remat_explorer.documents import quote
from remat_explorer.entry_checks import Table, or_null, require_bytes, require_number, require_text
from remat_explorer.errors import RematError, SolutionError

PROVEN = 1e-6  # relative gap up to which a solution is called optimal
SAME = 1e-9  # difference up to which two gaps are the same, however they were rounded


class Status(StrEnum):
    """How an answer stands: proven optimal, feasible, proven infeasible, or nothing found in time."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


def relative_gap(cost: float | None, lower_bound: float | None) -> float | None:
    """(cost - lower bound) / cost, or None while either is unknown.

    >>> relative_gap(20.0, 19.0), relative_gap(20.0, None)
    (0.05, None)
    """
    if cost is None or lower_bound is None:
        return None
    return max(0.0, (cost - lower_bound) / cost) if cost else 0.0


def _read_status(entry: Any, where: str, error: type[RematError]) -> Status:
    if not isinstance(entry, str) or entry not in set(Status):
        raise error(f"{where} is none of {', '.join(Status)}: {quote(entry)}")
    return Status(entry)


def read_seconds(entry: Any, where: str, error: type[RematError]) -> float:
    """The reader of a time that something took; 0 where it is null."""
    return 0.0 if entry is None else require_number(entry, where, error)


SUMMARY: Table = {
    **dict.fromkeys(("strategy", "solver"), require_text),
    "status": _read_status,
    "budget": require_bytes,
    "peak": or_null(require_bytes),
    **dict.fromkeys(("cost", "lower_bound", "gap"), or_null(require_number)),
    "seconds": read_seconds,
}
"""The keys of a file that claim something of a solution, and how each is read."""

LIMIT: Table = {"limit": require_text}
"""The claim that is there only where the search was ended."""


@dataclass(frozen=True)
class SolutionSummary:
    """What an entry of a file says; what each field means is said in `Solution`."""

    strategy: str
    status: Status
    budget: int
    cost: float | None
    peak: int | None
    lower_bound: float | None
    gap: float | None
    seconds: float
    solver: str
    limit: str = ""

    @staticmethod
    def of(entry: Mapping[str, Any]) -> SolutionSummary:
        """The claims among what was read by `SUMMARY`, and by `LIMIT` where it is there."""
        return SolutionSummary(**{key: entry[key] for key in (*SUMMARY, *LIMIT) if key in entry})

    def require_true(self, cost: float | None, peak: int | None, where: str) -> None:
        """Refuse claims that do not follow from the schedule, or that contradict each other."""
        for key, actual in (("cost", cost), ("peak", peak)):
            if getattr(self, key) != actual:
                said = quote(getattr(self, key))
                has = "there is no schedule" if actual is None else f"its schedule has {actual!r}"
                raise SolutionError(f"{where} says {key} {said}, but {has}")
        bound, status = self.lower_bound, self.status
        solved = status in (Status.OPTIMAL, Status.FEASIBLE)
        if solved == (cost is None):
            there = "there is no schedule" if solved else "there is a schedule"
            raise SolutionError(f'{where} says status "{status}", but {there}')
        if cost is not None and bound is not None and bound > cost:
            raise SolutionError(f"{where} says lower_bound {bound!r}, but its schedule costs {cost!r}, which is less")
        if status is Status.OPTIMAL and (bound is None or cost is None or cost - bound > PROVEN * cost):
            proven = f"lower_bound {quote(bound)}, which does not prove a cost of {cost!r}"
            raise SolutionError(f'{where} says status "optimal" with {proven}')
        gap = relative_gap(cost, bound)
        if (gap is None) != (self.gap is None) or abs((gap or 0.0) - (self.gap or 0.0)) > SAME:
            raise SolutionError(f"{where} says gap {quote(self.gap)}, but cost and lower_bound have {quote(gap)}")
