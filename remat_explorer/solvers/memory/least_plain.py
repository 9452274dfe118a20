"""The smallest budget of a graph with one implementation of each operation, from below and from above.

1. Lower bound: what some operation needs at once, together with what had to be in memory while its inputs were prepared
   (`working_sets`). The few-moments relaxation proves nothing beyond the largest operation: without a limit on the
   cost, everything may run again between two moments.
2. Upper bound: descent of the budget with the planner, by work that is counted.
3. Small graphs: bisection of what is left by the optimal strategy, which proves budgets infeasible.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits, Progress
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.heuristics.binomial import binomial_schedule, fewest_slots
from remat_explorer.solvers.heuristics.chain import require_chain
from remat_explorer.solvers.memory.working_sets import WorkingSet, least_working_set
from remat_explorer.solvers.search.planner import first_within, plan_schedule
from remat_explorer.solvers.strategies.optimal import solve_optimal

_BOUNDING_SHARE = 0.2  # of the time for the working sets, at most
_PLANNING_SHARE = 0.6  # of the time for the descent with the planner
_PACE = 150_000  # operations that walks pass in a second, on an idle core
_PATIENCE = 4.0  # how many times as long a descent may take on a busy machine
_STEP = 0.6  # share of what is above the lower bound by which a descent steps down
_FINE = 0.002  # relative width at which a descent ends,
_FINEST = 0.02  # at most this share of what keeping everything takes above the lower bound
_FEW_REPAIRS = 4  # walks with growing weights, for each of the exponents, in the first descent


@dataclass(frozen=True)
class LeastPlainSettings:
    """How the time is divided between the steps, and when they end."""

    close: float = 0.005  # relative width at which a bisection ends
    settled_up_to: int = 60  # operations up to which the optimal strategy settles what the planner leaves open


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
        seconds: about, on an idle core; a busy machine has more, to find the same.
        settings: how the time is divided.

    >>> from remat_explorer.instances import linear
    >>> least_plain(linear(8), 3.0).lower_bound
    3
    """
    end = time.monotonic() + seconds
    condensed = Condensed.of(graph)
    working_set = least_working_set(condensed, _BOUNDING_SHARE * seconds)
    limiting = Limiting(
        working_set.bytes,
        working_set.stage,
        working_set.operation,
        _values(condensed, working_set),
        int(condensed.base[working_set.during]),
    )
    schedule = smallest_schedule(condensed, working_set.bytes, _PLANNING_SHARE * seconds)
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


class _Work:
    """Work that is left, in operations walked: so a busy machine finds what an idle one does.

    `plan_schedule` asks before each walk and each batch of local search, which take about as long.
    """

    def __init__(self, operations: int, each: int, cancelled: Callable[[], bool]) -> None:
        self._left, self._each, self._cancelled = operations, each, cancelled

    def over(self) -> bool:
        """Whether nothing is left, or it was cancelled; one walk less is left afterwards."""
        self._left -= self._each
        return self._left < 0 or self._cancelled()


def smallest_schedule(
    condensed: Condensed,
    lower_bound: int,
    seconds: float,
    cancelled: Callable[[], bool] = lambda: False,
) -> Schedule:
    """Descent with the planner from checkpoint-all, by a share of what is above the lower bound at a time.

    Of a chain it begins with REVOLVE's schedule of the fewest states, which no walk through a long chain comes near.

    A budget that the planner fits costs a few walks, one that it does not fit costs all repairs. So the way leads from
    above, by smaller steps after each failure; first with few repairs, then from there with all.

    Args:
        condensed: n operations and their groups of values.
        lower_bound: bytes.
        seconds: how long an idle core works on it, about; the clock ends it at `_PATIENCE` times that.
        cancelled: asked before each walk.
    """
    end = time.monotonic() + _PATIENCE * seconds
    work = _Work(round(seconds * _PACE), condensed.n, cancelled)
    best = checkpoint_all(condensed.graph)
    peak = max(Plan.of(best).peak, 1)
    width = min(_FINE, _FINEST * (1 - lower_bound / peak))
    with suppress(SolverError):  # no chain
        forward = len(require_chain(condensed.graph, ""))
        best = min(best, binomial_schedule(condensed.graph, fewest_slots(forward)), key=Plan.peak_of)

    def by_walks(budget: int) -> Schedule | None:
        return first_within(condensed, budget, lambda: work.over() or time.monotonic() > end, _FEW_REPAIRS)

    def by_all_means(budget: int) -> Schedule | None:
        return plan_schedule(condensed, budget, end - time.monotonic(), work.over)

    for look in (by_walks, by_all_means):
        step, high = 1.0, Plan.of(best).peak  # the first trial is the bound itself
        while high > lower_bound and step * (high - lower_bound) > width * high:
            trial = min(high - 1, high - int(step * (high - lower_bound)))
            schedule = look(trial)
            if schedule is not None:
                best, high = schedule, Plan.of(schedule).peak
            elif time.monotonic() > end or work.over():
                return best
            else:
                step = _STEP if step == 1.0 else step / 2
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
