"""Where a measured run differs most from what was predicted, and why as far as that can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from remat_explorer.offload import TransferPlan
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes


@dataclass(frozen=True)
class ScheduleDifference:
    """The statement where measured and predicted memory differ most.

    Attributes:
        statement: its index in the plan.
        bytes: measured less predicted, while it runs.
        held: the part of it that was there before the statement began.
        reason: why, as far as known, as text.
    """

    statement: int
    bytes: int
    held: int
    reason: str


def largest_difference(plan: Plan | TransferPlan, during: np.ndarray, after: np.ndarray) -> ScheduleDifference | None:
    """The largest difference between measured and predicted memory, or None where there is none.

    Args:
        plan: what ran.
        during: measured highest bytes within each statement, resident bytes included, int64.
        after: measured bytes after each statement, resident bytes included, int64.

    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> during = plan.timeline.during + np.array([0, 0, 5, 0, 0, 0])
    >>> largest_difference(plan, during, plan.timeline.after).reason
    'the workspace of v2 was 5 B larger than predicted'
    """
    predicted = plan.timeline
    gap = np.asarray(during, dtype=np.int64) - predicted.during
    held = np.concatenate([[0], np.asarray(after, dtype=np.int64)[:-1] - predicted.after[:-1]])
    at = int(np.abs(gap).argmax())
    if not gap[at]:
        return None
    within = int(gap[at] - held[at])
    statement = plan.statements[at]
    if abs(within) >= abs(held[at]) and isinstance(statement, Compute):
        name = plan.graph.operations[statement.operation].name
        reason = f"the workspace of {name} was {_by(within)} than predicted"
    elif held[at]:
        start = at - 1 - int((held[:at][::-1] != held[at]).argmax())  # the statement that brought the difference
        began: Any = plan.statements[start]
        origin = plan.text(began)
        reason = f"what was held was {_by(int(held[at]))} than predicted since {origin!r} (statement {start})"
    else:
        reason = "memory that is not a value's was in use while it ran"
    return ScheduleDifference(at, int(gap[at]), int(held[at]), reason)


def _by(count: int) -> str:
    return f"{format_bytes(abs(count))} {'larger' if count > 0 else 'smaller'}"
