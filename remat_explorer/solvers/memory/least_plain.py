"""The smallest budget of a graph with one implementation of each operation, from below and from above.

1. Lower bound: what some operation needs at once, together with what had to be in memory while its inputs were prepared
   (`working_sets`). The few-moments relaxation proves nothing beyond the largest operation: without a limit on the
   cost, everything may run again between two moments.
2. Upper bound: bisection of the budget with the planner.
3. Small graphs: bisection of what is left by the optimal strategy, which proves budgets infeasible.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits, Progress
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.memory.working_sets import WorkingSet, least_working_set
from remat_explorer.solvers.search.planner import plan_schedule
from remat_explorer.solvers.strategies.optimal import solve_optimal


@dataclass(frozen=True)
class LeastPlainSettings:
    """How the time is divided between the steps, and when they end.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Relative width at which a bisection ends.
    # With 0.0025: unet 0.3 % less. With 0.01: no difference.
    close: float = 0.005
    # Share of the time for the working sets, at most.
    # No difference measured with 0.1 or 0.4.
    bounding: float = 0.2
    # Share of the time for bisection with the planner, at most.
    # No difference measured with 0.3 or 1.2.
    planning: float = 0.6
    # Operations up to which the optimal strategy settles what the planner leaves open.
    # With 30: no difference. With 120: unet 0.3 % less, 1 % gap after 2.4 times the seconds.
    settled_up_to: int = 60


LEAST_PLAIN = LeastPlainSettings()


@dataclass(frozen=True)
class Limiting:
    """The point that makes a lower bound on memory.

    Attributes:
        bytes: needed there, resident bytes included.
        stage: the operation for whose sake ``operation`` runs.
        operation: the one that runs.
        values: ids of the values in memory while it does, its outputs included.
        fixed: bytes that are there whatever is scheduled.
        way: name of the implementation in which it needs the least, where it has several; else "".
    """

    bytes: int
    stage: int
    operation: int
    values: tuple[int, ...]
    fixed: int
    way: str = ""


@dataclass(frozen=True, eq=False)
class Least:
    """How little memory is proven to be needed, and known to do.

    Attributes:
        lower_bound: bytes; no schedule fits into less.
        limiting: what makes a bound, of ``lower_bound`` bytes unless a proof went beyond it.
        schedule: the one with the lowest peak that is known.
    """

    lower_bound: int
    limiting: Limiting
    schedule: Schedule


def least_plain(graph: Graph, seconds: float, settings: LeastPlainSettings = LEAST_PLAIN) -> Least:
    """The least memory of ``graph``, from below and from above.

    Args:
        graph: the training graph, one implementation per operation.
        seconds: wall time, at most.
        settings: how the time is divided.

    >>> from remat_explorer.instances import linear
    >>> least_plain(linear(8), 3.0).lower_bound
    3
    """
    end = time.monotonic() + seconds
    condensed = Condensed.of(graph)
    working_set = least_working_set(condensed, settings.bounding * seconds)
    limiting = Limiting(
        working_set.bytes,
        working_set.stage,
        working_set.operation,
        _values(condensed, working_set),
        int(condensed.base[working_set.during]),
    )
    schedule = smallest_schedule(condensed, working_set.bytes, settings.planning * seconds, settings.close)
    if graph.n <= settings.settled_up_to:
        bound, schedule = settle(
            lambda budget, limits: solve_optimal(graph, budget, limits),
            working_set.bytes,
            schedule,
            end,
            close=settings.close,
        )
        return Least(bound, limiting, schedule)
    return Least(working_set.bytes, limiting, schedule)


def _values(condensed: Condensed, point: WorkingSet) -> tuple[int, ...]:
    """Values in memory at a point: those of its groups, what its operation writes, and earlier persistent ones."""
    graph, k = condensed.graph, point.operation
    earlier = [v for v in range(len(graph.values)) if graph.persistent[v] and graph.producer[v] < point.during]
    kinds = {(int(condensed.producer[g]), condensed.readers[g]) for g in point.groups}
    members = [v for v in range(len(graph.values)) if (int(graph.producer[v]), graph.readers[v]) in kinds]
    dying = {graph.operations[k].default.overwrites} if point.in_place else set()
    return tuple(sorted({*earlier, *members, *graph.outputs(k)} - dying))


def smallest_schedule(
    condensed: Condensed, lower_bound: int, seconds: float, close: float = LEAST_PLAIN.close
) -> Schedule:
    """Bisection with the planner, from the lower bound up to checkpoint-all, to a relative width."""
    end = time.monotonic() + seconds
    best = checkpoint_all(condensed.graph)
    high, low = Plan.of(best).peak, lower_bound
    trial = low
    while high > low and time.monotonic() < end:
        schedule = plan_schedule(condensed, trial, min(end - time.monotonic(), seconds / 4))
        if schedule is None:
            low = trial + 1
        else:
            best, high = schedule, Plan.of(schedule).peak
        if high - low <= close * high and trial > lower_bound:
            break
        trial = (low + high) // 2
    return best


def settle(
    solve: Callable[[int, Limits], Answer],
    low: int,
    best: Schedule,
    end: float,
    patience: float = math.inf,
    cancelled: Callable[[], bool] = lambda: False,
    close: float = LEAST_PLAIN.close,
) -> tuple[int, Schedule]:
    """Bisection by a strategy that can prove infeasibility, and that is stopped at its first schedule.

    Args:
        solve: the strategy, for a budget.
        low: a lower bound in bytes.
        best: the schedule with the lowest peak that is known.
        end: when the time is up, by the monotonic clock.
        patience: seconds after which a budget is taken to be too small, though that is not proven; infinity for a
            search that ends only with a proof or with its time.
        cancelled: asked between steps.
        close: relative width at which it ends where a budget was given up without a proof.

    Returns:
        A bound and a schedule at least as good.
    """
    high, hopeless = Plan.of(best).peak, low
    while hopeless < high and time.monotonic() < end and not cancelled():
        schedules: list[Schedule] = []

        def keep(progress: Progress, schedules: list[Schedule] = schedules) -> None:
            schedules += [progress.schedule] if progress.schedule is not None else []

        trial = (hopeless + high) // 2
        seconds = min(patience, end - time.monotonic())
        limits = Limits(seconds, report=keep, cancelled=lambda schedules=schedules: bool(schedules) or cancelled())
        answer = solve(trial, limits)
        if answer.schedule is not None:
            best, high = answer.schedule, Plan.of(answer.schedule).peak
        elif answer.infeasible:
            low = hopeless = trial + 1
        else:
            hopeless = trial + 1
        if low < hopeless and high - hopeless <= close * high:
            break
    return low, best
