"""How much larger a step may be: schedules for multiples of a graph, from below, and a bound, from above."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remat_explorer.checker import check_schedule
from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.batches.batch_bound import BatchProblem, largest_operation_batch
from remat_explorer.solvers.batches.batch_scaling import BatchScaling
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.planner import plan_schedule

PLANNING = 3.0  # seconds for one size, at most
CLOSE = 1.03  # two sizes between which nothing more is tried


@dataclass(frozen=True)
class Reach:
    """How many units, tokens or examples, a step may have.

    Attributes:
        unit: "tokens" or "examples".
        kept: the most without recomputation, 0 for none.
        found: the most with recomputation that a checked schedule is known for.
        bound: no schedule has more, since one operation alone would not fit.
        operation: that operation's name.
        overhead: of the schedule for ``found``, in relation to computing everything once; None where there is none.
        measured: whether two captures told what grows, or the rule of `BatchScaling.by_rule` did.
    """

    unit: str
    kept: int
    found: int
    bound: int
    operation: str
    overhead: float | None
    measured: bool


def reach_of(
    scaling: BatchScaling,
    unit: str,
    memory: int,
    seconds: float,
    cancelled: Callable[[], bool] = lambda: False,
    known: tuple[int, float] = (0, 1.0),
) -> Reach:
    """How many units fit into ``memory``, by bisection with the planner.

    Args:
        scaling: what a step with any number of units needs.
        unit: what they are called.
        memory: bytes, resident bytes included.
        seconds: wall time, at most.
        cancelled: asked between sizes.
        known: units for which a schedule within the memory is known, 0 for none, and its overhead.

    >>> from remat_explorer.instances import linear
    >>> found = reach_of(BatchScaling.by_rule(linear(8)), "examples", 1000, 5.0)
    >>> found.kept, found.bound, found.kept < found.found <= found.bound
    (100, 333, True)
    """
    end = time.monotonic() + seconds
    bound, operation = largest_operation_batch(BatchProblem(scaling, memory, None))
    kept = _most_kept(scaling, memory, bound)
    found, overhead = (kept, 1.0) if kept >= known[0] else known
    low, high = found, bound + 1
    asked = 2 * low
    while high > CLOSE * low and high - low > 1 and time.monotonic() < end and not cancelled():
        size = min(max(asked, low + 1), high - 1)
        cost = _cost_at(scaling.at(size), memory, min(PLANNING, end - time.monotonic()), cancelled)
        if cost is None:
            high = size
        else:
            low = found = size
            overhead = cost
        asked = math.isqrt(low * high)
    name = scaling.graph.operations[operation].name
    return Reach(unit, kept, found, max(bound, found), name, overhead if found else None, scaling.measured)


def smallest_known(
    graph: Graph, budgets: Sequence[int], end: float, cancelled: Callable[[], bool] = lambda: False
) -> int | None:
    """Peak of a schedule for the first of ``budgets`` with one, or None until the time is up.

    Args:
        graph: of the step.
        budgets: bytes, ascending.
        end: of the time, on the monotonic clock.
        cancelled: asked between budgets.

    >>> from remat_explorer.instances import linear
    >>> smallest_known(linear(8), [2, 4, 6], time.monotonic() + 5)
    4
    """
    for budget in budgets:
        if cancelled() or time.monotonic() > end:
            return None
        schedule = plan_schedule(Condensed.of(graph), budget, min(PLANNING, end - time.monotonic()), cancelled)
        if schedule is not None:
            return check_schedule(schedule, budget).peak
    return None


def _most_kept(scaling: BatchScaling, memory: int, most: int) -> int:
    """The most units at which keeping everything fits, by bisection."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if checkpoint_all_peak(scaling.at(middle)) <= memory else (low, middle)
    return low


def _cost_at(graph: Graph, memory: int, seconds: float, cancelled: Callable[[], bool]) -> float | None:
    """The overhead of a checked schedule within the memory, or None where none was found."""
    schedule = plan_schedule(Condensed.of(graph), memory, seconds, cancelled)
    if schedule is None:
        return None
    try:
        return check_schedule(schedule, memory).cost / graph.total_cost
    except ScheduleError:
        return None
