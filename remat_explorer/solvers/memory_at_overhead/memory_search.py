"""The search for the least memory at a limited cost: falling budgets, a lower bound on the peak, improved together.

In: a graph, with choices of implementations or without, and a limit on the cost. Out: the schedule with the lowest peak
that was found within the limit, and bytes that no schedule within the limit does without. A *choice* is one
implementation for each operation. Planning with a choice means bisection of the budget with walks, then a look at the
runs of the best schedule with these implementations.

1. Plan with the default implementations, or those that read less for the same cost, as Checkmate would run them.
2. Solve the linear program of the few-moments relaxation with memory as the objective: a bound. Plan with what it would
   choose.
3. Lower the budget, as in step 6, for a share of the time.
4. Plan with choices by one rule for all operations.
5. Climb: change the best choice where walks slightly below the best peak cost less after the change.
6. Lower the budget in steps that grow after a success and halve after a failure. An attempt at a budget searches with
   the best choice, then with what the relaxation with cost as the objective would choose (which may prove the budget
   too small), then with the second best. Once the step is small, the local searches become longer, and changes of the
   best choice are tried, too.
7. Solve the relaxation's integer program, which raises the bound: beside step 6 if there is a second thread, else after
   it.

A graph without choices takes steps 2, 4, 6 and 7. A small problem takes steps 2 and 4; then bisection with the joint
integer program, which is exact. The search ends when peak and bound are within 0.1 %, or when the time is up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.entry_checks import Seconds, Threads, require_arguments
from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.memory_at_overhead.memory_descent import (
    CLOSE,
    LOOSE,
    MemoryCandidates,
    MemoryDescent,
    MemoryIncumbent,
    climb,
    decide_exactly,
)
from remat_explorer.solvers.method import Support
from remat_explorer.solvers.milp import backend
from remat_explorer.solvers.monet.condensed_choices import Codes, CondensedChoices, Tables, allowed_codes
from remat_explorer.solvers.monet.relaxation_with_choices import LeastMemory
from remat_explorer.solvers.monet.selections import cheapest, default_or_leaner, lightest, smallest
from remat_explorer.solvers.registry import DEFAULTS, STRATEGIES, threads_of
from remat_explorer.solvers.search.planner import load_search
from remat_explorer.solvers.solve import checked_reports
from remat_explorer.solvers.solver_interface import Limits, Progress, Search, checkpoint_all_peak

EXACT_UP_TO = 2500  # stages times operations up to which the joint integer program settles what is left
_BOUNDING_SHARE = 0.15  # of the time that is left, at most, for the relaxation's linear program
_PROVING_SHARE = 0.3  # the same for its integer program
_FALLING_SHARE = 0.25  # the same for falling budgets before choices by rules
_CLIMBING_SHARE = 0.3  # the same for changes of the best choice
_FIRST_STEP = 0.05  # by how much a budget is below the known peak at first, relative
_LONGER = 1.3  # factor on the step after a budget that was reached
_LAST_STEP = 0.004  # below which searches become longer
_AGAIN = 0.02  # step with which longer searches begin
_ITERATIONS = 60_000  # of the local search in an attempt at first
_PATIENCE = 3  # factor on them where the step has become small
_MOST_ITERATIONS = 2_000_000  # beyond which the search has ended


class MemorySearch(Search):
    """The schedule with the least memory, a bound on it, and the steps that improve them.

    The joint integer program settles what is left up to ``exact_up_to`` stages times operations.
    """

    def __init__(
        self, graph: Graph, most_cost: float, limits: Limits, codes: Codes | None = None, exact_up_to: int = EXACT_UP_TO
    ) -> None:
        self.problem, self.codes, self.exact_up_to = CondensedChoices.of(graph, codes), codes, exact_up_to
        super().__init__(limits)
        self.most_cost = most_cost
        self.incumbent = MemoryIncumbent(graph, int(self.problem.least_memory.max()), limits)
        self.candidates = MemoryCandidates(self.problem.graph, most_cost, self.incumbent, self._quiet, codes)
        self.finished = False

    @property
    def best(self) -> Schedule:
        """The schedule with the least memory so far."""
        return self.incumbent.best

    @property
    def peak(self) -> int:
        """Of the best schedule's plan, in bytes."""
        return self.incumbent.peak

    @property
    def bound(self) -> int:
        """Bytes; no schedule within the limit on the cost does with less."""
        return self.incumbent.bound

    @property
    def fixed(self) -> bool:
        """Whether there is nothing to choose."""
        return all(len(ways) <= 1 for ways in self.problem.ways)

    @property
    def settled(self) -> bool:
        """Whether schedule and bound are as good as equal."""
        return self.incumbent.settled

    def run(self) -> None:
        """Search until bound and schedule meet, or the time is up."""
        if not self.settled:
            self.tables = Tables(self.problem)
            self.relaxation = LeastMemory(self.tables, self.most_cost, self.peak, ())
        steps = (self._plan_defaults, self._bound_first, self._descend_first, self._plan_by_rules, self._climb)
        last = self._descend_and_prove
        if self.problem.graph.stages * self.problem.graph.n <= self.exact_up_to:
            steps, last = (self._bound_first, self._plan_by_rules), self._settle_exactly
        elif self.fixed:
            steps = self._bound_first, self._plan_by_rules
        self.take((*steps, last))
        self.incumbent.tell("done")

    def _quiet(self, share: float = 1.0) -> Limits:
        """Limits of a part of the work, which tells nobody."""
        part, cancelled = self.limits.share(share), self.limits.cancelled
        return replace(part, threads=1, report=lambda progress: None, cancelled=lambda: cancelled() or self.finished)

    def _plan_defaults(self) -> None:
        """What Checkmate would do, so that choices are never worse for want of it."""
        self.incumbent.tell("planning with the default implementations")
        self.candidates.plan({})
        self.candidates.plan(default_or_leaner(self.tables))

    def _descend_first(self) -> None:
        self._descend(self._quiet(_FALLING_SHARE), _ITERATIONS)

    def _climb(self) -> None:
        """Changes of the best choice that walks think well of."""
        if not self.candidates.descents:
            return
        self.incumbent.tell("changing implementations")
        candidates = self.candidates
        limits, start = self._quiet(_CLIMBING_SHARE), candidates.ranked()[0].choice
        over, peak_with = (lambda: limits.over), candidates.peak_with
        choice = climb(self.tables, start, self.most_cost, self.codes, peak_with, over)
        descent = candidates.plan(choice)
        if descent is not None:
            descent.attempt(int(self.peak * (1 - _LAST_STEP)), _ITERATIONS, self._quiet())
            self.candidates.keep(descent)

    def _bound_first(self) -> None:
        self.incumbent.tell("bounding the memory from a few moments")
        self._improve_bound(self._quiet(_BOUNDING_SHARE), integral=False)
        self.candidates.plan(self.relaxation.best.choice())

    def _plan_by_rules(self) -> None:
        self.candidates.plan({})
        for rule in (cheapest, lightest, smallest):
            if not self.over:
                self.incumbent.tell(f"planning with the {rule.__name__} implementations")
                self.candidates.plan(rule(self.tables))

    def _descend_and_prove(self) -> None:
        """Budgets fall while a second thread proves, if there is one; else one after the other."""
        if self.second_thread:
            proving = self._quiet(_PROVING_SHARE)

            def descend() -> None:
                try:
                    self._descend(self._quiet(), _MOST_ITERATIONS)
                finally:
                    self.finished = True

            self.beside(descend, lambda: self._improve_bound(proving, integral=True))
        else:
            self._descend(self._quiet(1 - _PROVING_SHARE), _MOST_ITERATIONS)
            if not self.over:
                self.incumbent.tell("bounding the memory from a few moments, with integers")
                self._improve_bound(self._quiet(), integral=True)

    def _settle_exactly(self) -> None:
        """Bisection with the joint integer program, between the bound and the best schedule."""
        while self.bound < self.peak and not self.limits.over:
            budget = (self.bound + self.peak) // 2
            self.incumbent.tell("solving the joint problem")
            schedule, above = decide_exactly(self.problem, budget, self.most_cost, self._quiet())
            if schedule is not None:
                self.incumbent.keep(schedule)
            elif above:
                self.incumbent.raise_bound(budget + 1)
            else:
                break

    def _descend(self, limits: Limits, most_iterations: int) -> None:
        """Falling budgets until the time is up, or searches have become long and steps small."""
        step, iterations = _FIRST_STEP, _ITERATIONS
        while not limits.over and not self.settled and iterations <= most_iterations and self.candidates.descents:
            budget = max(self.bound, int(self.peak * (1 - step)))
            self.incumbent.tell("lowering the memory")
            if self._reach(budget, iterations, limits):
                step *= _LONGER
                continue
            step /= 2
            if step < _LAST_STEP:
                step, iterations = _AGAIN, iterations * _PATIENCE

    def _reach(self, budget: int, iterations: int, limits: Limits) -> bool:
        """Whether a schedule with less memory than the best was found at a budget."""
        before, candidates = self.peak, self.candidates
        ways: list[Callable[[], MemoryDescent | None]] = [
            lambda: candidates.ranked()[0],
            lambda: None if self.fixed else candidates.relaxed(self.tables, self.relaxation, budget, limits),
            candidates.second,
            lambda: candidates.near_best(self.tables, budget, limits),
        ]
        for way in ways if iterations > _ITERATIONS else ways[:-1]:
            if limits.over or self.bound >= self.peak:
                break
            descent = way()
            if descent is not None and self.peak == before:
                descent.attempt(budget, iterations, limits)
                candidates.keep(descent)
            if self.peak < before:
                return True
        return False

    def _improve_bound(self, limits: Limits, integral: bool) -> None:
        self.relaxation.most = float(self.peak)
        bound = self.relaxation.improve(limits, integral).bound
        self.incumbent.raise_bound(self.relaxation.most if math.isinf(bound) else bound)


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
