"""What a strategy is: a function from a graph and a budget to an answer, with limits it must respect.

`Limits` is the time and whom to tell, `Progress` what it tells, `Answer` what it returns. `Incumbent` holds the best
schedule and the highest bound of a running search, and `Search` takes the steps that improve them. `checkpoint_all` is
the schedule that every other is compared with.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solution_summary import PROVEN as PROVEN
from remat_explorer.solution_summary import relative_gap


def cores() -> int:
    """The number of cores that this process may use.

    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class TransferStrategy(NamedTuple):
    """A strategy that also sends values to the host: what it does, whether it computes some again, and searches."""

    summary: str
    recomputes: bool
    searches: bool  # for the fastest plan of all, so that it takes any that is known


TRANSFER_STRATEGIES: dict[str, TransferStrategy] = {
    "offload": TransferStrategy("keep, compute again, or send to the host: an anytime search with a bound", True, True),
    "offload-only": TransferStrategy(
        "keep or send to the host, and compute everything once: the same search", False, True
    ),
    "torchtitan-offload": TransferStrategy(
        "torchtitan's planner: layers keep, compute again and send in shares", True, False
    ),
    "offload-layer-inputs": TransferStrategy(
        "checkpoints around layers, and every n-th layer's input is sent", True, False
    ),
}
INTERRUPTION = "an interruption"
MOST_COMPUTATIONS = 300_000  # of a schedule that a search makes: its plan takes seconds and some 100 MB
NEARLY = 0.7  # share of its time after which a search that has ended was ended by the time limit


@dataclass(frozen=True)
class Progress:
    """What a running strategy knows: the best schedule so far, a lower bound, and what it is doing.

    Attributes:
        seconds: wall time since the strategy was started.
        doing: its present step, in words.
        schedule: the best one so far, or None.
        lower_bound: no schedule within the budget costs less, or None.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solver_interface import checkpoint_all
    >>> report = Progress(0.5, "planning", checkpoint_all(linear(8)), lower_bound=15.3)
    >>> report.cost, report.peak, round(report.gap, 3)
    (17.0, 10, 0.1)
    >>> print(report)
    500 ms, planning: overhead +0.0 %, predicted peak 10 B, gap 10.0 %
    """

    seconds: float
    doing: str
    schedule: Schedule | None = None
    lower_bound: float | None = None

    @property
    def cost(self) -> float | None:
        """Cost of the schedule, in the unit of the graph's costs."""
        return None if self.schedule is None else self.schedule.cost

    @property
    def peak(self) -> int | None:
        """Predicted peak of the schedule's plan in bytes."""
        return None if self.schedule is None else Plan.peak_of(self.schedule)

    @property
    def gap(self) -> float | None:
        """(cost - lower bound) / cost, or None while either is unknown."""
        return relative_gap(self.cost, self.lower_bound)

    def __str__(self) -> str:
        """One line, so that ``on_progress=print`` shows what goes on."""
        doing = f"{format_seconds(self.seconds)}, {self.doing}"
        if self.schedule is None or self.peak is None:
            return doing
        proven = "no bound proven" if self.gap is None else f"gap {format_share(self.gap)}"
        overhead, peak = format_overhead(self.schedule.overhead), format_bytes(self.peak)
        return f"{doing}: overhead {overhead}, predicted peak {peak}, {proven}"


@dataclass(frozen=True)
class Limits:
    """How long a strategy may work, with which back end, and whom it tells.

    Attributes:
        time_limit: seconds of wall time.
        solver: name of the MILP back end, a key of `remat_explorer.solvers.milp.BACKENDS`.
        threads: threads of the back end.
        report: called with a `Progress` whenever something better is known.
        cancelled: asked between steps; once True the strategy returns what it has.
    """

    time_limit: float = 60.0
    solver: str = "highs"
    threads: int = 1
    report: Callable[[Progress], None] = lambda progress: None
    cancelled: Callable[[], bool] = lambda: False
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        """Seconds since the strategy was started."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float:
        """Seconds that remain, never below 0."""
        return max(0.0, self.time_limit - self.elapsed)

    @property
    def over(self) -> bool:
        """Whether the time is up or the person cancelled."""
        return self.left == 0.0 or self.cancelled()

    @property
    def reached(self) -> str:
        """Which limit has ended the work, in words, as `Solution.limit` has it; "" where none has.

        A back end is given a little less time than there is, and so ends a little earlier.
        """
        if self.cancelled():
            return INTERRUPTION
        return time_limit_of(self.time_limit) if self.elapsed >= NEARLY * self.time_limit else ""

    def share(self, share: float) -> Limits:
        """Limits of a part of the work: a share of the time that is left, the same reports on the same clock."""
        begun = self.elapsed

        def report(progress: Progress) -> None:
            self.report(replace(progress, seconds=begun + progress.seconds))

        return Limits(share * self.left, self.solver, self.threads, report, self.cancelled)

    def tell(self, doing: str, schedule: Schedule | None = None, lower_bound: float | None = None) -> None:
        """Report progress."""
        self.report(Progress(self.elapsed, doing, schedule, lower_bound))


@dataclass(frozen=True)
class Answer:
    """What a strategy claims, before the checker has looked at it.

    Attributes:
        schedule: the best schedule found, or None.
        lower_bound: valid for every frontier-advancing schedule of the graph within the budget, or None.
        infeasible: whether it is proven that no such schedule exists.
        solver: the MILP back end that was used, or "".
        limit: what ended the work before it had proven its answer, in words after "ended by"; "" leaves it to
            `Method.ended`.
    """

    schedule: Schedule | None
    lower_bound: float | None = None
    infeasible: bool = False
    solver: str = ""
    limit: str = ""


def time_limit_of(seconds: float) -> str:
    """A time limit as what ended a search."""
    return f"the time limit of {format_seconds(seconds)}"


Strategy = Callable[..., Answer]
"""A method: graph, budget in bytes (resident bytes included), limits, and its options in; answer out."""


class Incumbent:
    """What a search knows so far; it only gets better. Two threads may work on it at once."""

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


class Search:
    """What searches share: steps until the answer is settled or the time is up, and a second thread.

    ``incumbent`` is None for a search that tells by itself.
    """

    def __init__(self, limits: Limits, incumbent: Incumbent | None = None) -> None:
        self.second_thread = limits.threads > 1
        self.limits = limits if incumbent is None else replace(limits, threads=1, report=incumbent.pass_on)

    @property
    def settled(self) -> bool:
        """Whether the answer is proven, as far as the search can."""
        raise NotImplementedError

    @property
    def over(self) -> bool:
        """Whether the answer is settled, the time is up, or the person cancelled."""
        return self.limits.over or self.settled

    def take(self, steps: Iterable[Callable[[], None]], after: Callable[[], None] = lambda: None) -> None:
        """One step after another, each followed by ``after``, until the search is over."""
        for step in steps:
            if self.over:
                break
            step()
            after()

    def beside(self, work: Callable[[], object], more: Callable[[], object]) -> None:
        """Both at once, ``more`` in the second thread; without one, ``more`` first, and then the work."""
        if self.second_thread:
            with ThreadPoolExecutor(1) as second:
                running = second.submit(more)
                try:
                    work()
                finally:
                    running.result()
        else:
            more()
            if not self.over:
                work()


def checkpoint_all(graph: Graph) -> Schedule:
    """The schedule without any recomputation: default implementations, and no optional operation.

    >>> from remat_explorer.instances import linear
    >>> checkpoint_all(linear(8)).cost
    17.0
    """
    once = Computations(np.arange(graph.stages), graph.mandatory, np.ones(graph.stages, dtype=np.uint8))
    return Schedule.leanest(graph, graph.stages, once)


def least_cost(graph: Graph) -> float:
    """Cost of running every mandatory operation once, each in its cheapest implementation; no schedule costs less."""
    return float(sum(min(way.cost for way in graph.operations[k].implementations) for k in graph.mandatory))


def checkpoint_all_peak(graph: Graph) -> int:
    """Bytes that keeping everything takes: the 100% of a budget.

    >>> from remat_explorer.instances import linear
    >>> checkpoint_all_peak(linear(8))
    10
    """
    return Plan.from_sequence(graph, ((t, k, 1) for t, k in enumerate(graph.mandatory.tolist()))).peak
