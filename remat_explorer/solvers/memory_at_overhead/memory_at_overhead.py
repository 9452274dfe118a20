"""The least memory whose schedule costs at most so much more than keeping everything: MONeT's Table 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.entry_checks import Seconds, Threads, require_arguments
from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.backends import backend
from remat_explorer.solvers.base import Limits, Progress
from remat_explorer.solvers.checkpoint_all import checkpoint_all_peak
from remat_explorer.solvers.memory_at_overhead.memory_descent import CLOSE, LOOSE
from remat_explorer.solvers.memory_at_overhead.memory_search import MemorySearch
from remat_explorer.solvers.method import Support
from remat_explorer.solvers.monet.condensed_choices import allowed_codes
from remat_explorer.solvers.registry import DEFAULTS, STRATEGIES, threads_of
from remat_explorer.solvers.search.compiled_search import load_search
from remat_explorer.solvers.solve import checked_reports


@dataclass(frozen=True, eq=False)
class MemoryAtOverhead:
    """The schedule with the least memory found at a limited cost, and a proven bound on every schedule's memory.

    Attributes:
        graph: the graph that was scheduled.
        strategy: "monet" or "optimal".
        overhead: by how much the cost may exceed that of eager execution, as a share of it.
        schedule: checked, its cost within the limit.
        peak: bytes of its plan, resident bytes included.
        lower_bound: bytes; no frontier-advancing schedule of the strategy's implementations does with less.
        eager_peak: bytes of eager execution, which keeps everything.
        cost_limit: in the graph's unit.
        seconds: wall time.
        solver: the back end of the bound.
    """

    graph: Graph
    strategy: str
    overhead: float
    schedule: Schedule
    peak: int
    lower_bound: int
    eager_peak: int
    cost_limit: float
    seconds: float
    solver: str

    @property
    def ratio(self) -> float:
        """Peak as a share of eager's."""
        return self.peak / self.eager_peak

    @property
    def ratio_bound(self) -> float:
        """The lower bound as a share of eager's peak."""
        return self.lower_bound / self.eager_peak

    @property
    def gap(self) -> float:
        """(peak - lower bound) / peak."""
        return (self.peak - self.lower_bound) / self.peak if self.peak else 0.0

    @property
    def proven(self) -> bool:
        """Whether the bound says that nothing better is left to find: the search ends there."""
        return self.gap < CLOSE

    def to_document(self) -> dict[str, Any]:
        """Everything but graph and schedule, for JSON."""
        names = ("strategy", "overhead", "peak", "ratio", "lower_bound", "ratio_bound", "gap", "eager_peak")
        document = {name: getattr(self, name) for name in (*names, "cost_limit", "seconds", "solver")}
        return document | {"cost": self.schedule.cost}

    def __str__(self) -> str:
        return (
            f"{self.strategy}: {format_share(self.ratio)} of eager's {format_bytes(self.eager_peak)} at overhead "
            f"{format_overhead(1 + self.overhead)}, at least {format_share(self.ratio_bound)} proven, "
            f"{format_seconds(self.seconds)}"
        )


def memory_at_overhead(
    graph: Graph,
    overhead: float = 0.1,
    strategy: str = "monet",
    implementations: str | Collection[str] = "all",
    eager: Graph | None = None,
    time_limit: Seconds = 60.0,
    solver: str = "highs",
    threads: Threads | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> MemoryAtOverhead:
    """The least memory whose schedule costs at most ``1 + overhead`` times what eager execution does.

    Every better schedule is told as it is found; the best so far is returned when the time is up. The bound holds for
    every frontier-advancing schedule with whatever allowed implementations, and different ones in reruns.

    Args:
        graph: the training graph; operations may have several implementations, or be optional.
        overhead: share of eager's cost that may be added, at least 0.
        strategy: "monet", which chooses implementations; or "optimal", which runs the default ones (Checkmate-D).
        implementations: for "monet": "all", "exact", or what else `solve` takes.
        eager: the graph whose default execution is compared with, such as the same model captured without
            alternatives; None for ``graph``.
        time_limit: seconds of wall time; compiling the search, once on a machine, is no part of them.
        solver: a key of `BACKENDS`.
        threads: threads; None for two where there are two cores: the second proves.
        on_progress: called in this thread with each `Progress`; its lower bound, one on the cost, is None.
        cancelled: asked between steps; once True the best so far is returned.

    Raises:
        QuantityError: if the overhead is no number of at least 0, or eager execution costs so little that keeping
            everything is beyond the limit.
        UnknownNameError: if there is no such strategy, solver or implementation.
        ScheduleError: if a schedule is wrong: a bug.
        SolverError: if the back end fails.

    Source: Table 1 of Shah et al., Memory Optimization for Deep Networks (ICLR 2021).

    >>> from remat_explorer.instances import linear
    >>> found = memory_at_overhead(linear(8), overhead=0.53)
    >>> found.peak, found.lower_bound, found.eager_peak, found.schedule.cost
    (4, 4, 10, 26.0)
    """
    require_arguments(memory_at_overhead, locals())
    if strategy not in DEFAULTS.values():
        raise UnknownNameError("strategy", strategy, DEFAULTS.values())
    if isinstance(overhead, bool) or not isinstance(overhead, int | float) or not 0 <= overhead < math.inf:
        raise QuantityError(f"{overhead!r} is no overhead; write a share of at least 0, such as 0.1 for 10 %")
    backend(solver)
    compared = graph if eager is None else eager
    limit = (1 + overhead) * compared.total_cost
    if graph.total_cost > limit * (1 + LOOSE):
        raise QuantityError(
            f"keeping everything costs {graph.total_cost:.6g}, above {1 + overhead:g} times the "
            f"{compared.total_cost:.6g} of eager execution; allow a larger overhead"
        )
    codes = [[1] for _ in graph.operations]
    if STRATEGIES[strategy].choices is Support.YES:
        codes = allowed_codes(graph, implementations)
    report = on_progress or (lambda progress: None)
    load_search(report)
    checked = checked_reports(graph, checkpoint_all_peak(graph), report)
    limits = Limits(time_limit, solver, threads_of(strategy, threads), checked, cancelled or (lambda: False))
    search = MemorySearch(graph, limit, limits, codes)
    search.run()
    best = check_schedule(search.best, search.peak)
    return MemoryAtOverhead(
        graph,
        strategy,
        float(overhead),
        best.schedule,
        best.peak,
        min(search.bound, best.peak),
        checkpoint_all_peak(compared),
        limit,
        limits.elapsed,
        solver,
    )
