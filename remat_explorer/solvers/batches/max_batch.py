"""The largest batch whose training step fits into a memory, at a limited overhead: Checkmate's section 6.4.

Bounds from above and schedules from below, until they meet or the time is up. A schedule that was planned for one batch
often fits a larger one; how large is read off its timeline, since the memory at every statement is a line in the batch.
What is found is believed only once the checker agrees at its own batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from remat_explorer.checker import CheckedSchedule, check_schedule
from remat_explorer.entry_checks import Count, Seconds, Threads, require_arguments
from remat_explorer.errors import GraphError, ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_overhead, parse_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime_search.optimal import solve_optimal
from remat_explorer.solvers.batches.batch_bound import (
    CAUTION,
    ONE_EXTRA_FORWARD,
    BatchBound,
    BatchProblem,
    OverheadLimit,
    allowed_recomputation,
    integral_batch_bound,
    largest_operation_batch,
    relaxed_batch_bound,
)
from remat_explorer.solvers.batches.batch_scaling import BatchScaling
from remat_explorer.solvers.bounds.few_moments import MomentsBound, few_moments_bound, guides
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.milp import backend
from remat_explorer.solvers.search.local_search import LocalSearch
from remat_explorer.solvers.search.planner import guided_schedule, load_search, plan_schedule
from remat_explorer.solvers.solver_interface import Limits, Progress, Search, checkpoint_all

PLANNING, RELAXING = 2.0, 5.0  # seconds for one batch, at most
INTEGRAL, SEARCHING = 0.5, 0.25  # shares of the time that is left, for the integer program and for one batch, at most
NEAR = 0.005  # share of a batch, to which it is known before the first linear program
SMALL = 100  # operations up to which the optimal strategy decides the batches that are left
ITERATIONS = 100_000  # of local search between two looks at the cost


class BatchSearch(Search):
    """The largest batch with a schedule, and the bound on it; both improve from step to step."""

    def __init__(self, problem: BatchProblem, limits: Limits) -> None:
        super().__init__(limits)
        self.problem = problem
        self.found: CheckedSchedule | None = None
        self.batch = 0
        self.upper_bound, self.operation = largest_operation_batch(problem)
        self.bound: BatchBound | None = None
        self.too_dear: dict[int, Schedule] = {}
        self.checkpoint_all_batch = 0

    def run(self) -> None:
        """All steps, the cheap ones first."""
        if self.upper_bound < 1:
            return
        kept = checkpoint_all(self.problem.scaling.graph)
        self._keep(kept, 1)
        self.checkpoint_all_batch = self.batch
        small = self.problem.scaling.graph.n <= SMALL
        last = ("solving", self._solve) if small else ("searching", self._search)
        self.take(
            (
                self._plan_for_bound,
                # without a linear program, each of a moment, so that a short time limit loses little
                lambda: self._bisect("planning", lambda batch: self._try(batch, guided=False), NEAR),
                self._relax,
                lambda: self._bisect("planning", self._try),
                self._prove,
                lambda: self._bisect(*last),
            )
        )
        self._tell("done")

    @property
    def settled(self) -> bool:
        """Whether the batch is proven to be the largest."""
        return self.batch == self.upper_bound

    def _plan_for_bound(self) -> None:
        self._tell("planning")
        self._try(self.upper_bound, guided=False)

    def _relax(self) -> None:
        """The linear program's bound, and a try at it."""
        self._tell("bounding from a few moments")
        before = self.upper_bound
        self.bound = relaxed_batch_bound(self.problem, before, self.limits)
        self.upper_bound = max(self.batch, self.bound.batch)
        if self.upper_bound < before and not self.settled:
            self._try(self.upper_bound)

    def _bisect(self, doing: str, attempt: Callable[[int], None], near: float = 0.0) -> None:
        """Attempts between what is found and the bound, until they are within one, or within a share ``near``."""
        low, high = self.batch, self.upper_bound + 1
        while high - low > max(1, near * low) and not self.limits.over:
            middle = (low + high) // 2
            self._tell(f"{doing} for batch {middle}")
            attempt(middle)
            low = max(low, self.batch)
            if self.batch < middle:
                high = min(middle, high)
            high = min(high, self.upper_bound + 1)

    def _prove(self) -> None:
        """The integer program's bound, if it is above what is found."""
        if self.bound is not None and not self.settled:
            self._tell("bounding from a few moments, integrally")
            limits = self.limits.share(INTEGRAL)
            self.bound = integral_batch_bound(self.problem, self.bound, limits, self.batch + 1)
            self.upper_bound = max(self.batch, min(self.upper_bound, self.bound.batch))

    def _try(self, batch: int, guided: bool = True) -> None:
        """Plan for ``batch``; with guided walks, if the first ones are too dear."""
        condensed, memory = CondensedGraph.of(self.problem.scaling.at(batch)), self.problem.memory
        self._keep_schedule(plan_schedule(condensed, memory, min(PLANNING, self.limits.left)), batch)
        if self.batch >= batch or not guided or self.limits.over:
            return
        walks = guides(condensed, self._relaxed(condensed, batch))
        self._keep_schedule(guided_schedule(condensed, memory, walks, lambda: self.limits.over), batch)

    def _search(self, batch: int) -> None:
        """Local search at ``batch``, from the cheapest schedule that is known to fit there."""
        graph = self.problem.scaling.at(batch)
        condensed = CondensedGraph.of(graph)
        search = LocalSearch(condensed, self.problem.memory)
        search.guide(guides(condensed, self._relaxed(condensed, batch)))
        for larger, schedule in self.too_dear.items():
            if larger >= batch:
                search.offer(schedule.on(graph))
        limits = self.limits.share(SEARCHING)
        while self.batch < batch and not limits.over:
            self._keep_schedule(search.run(ITERATIONS, lambda: limits.over), batch)

    def _solve(self, batch: int) -> None:
        """The optimal strategy at ``batch``, until it has a schedule that is cheap enough or a proof that none is."""

        def report(progress: Progress) -> None:
            self._keep_schedule(progress.schedule, batch)
            self._rule_out(batch, progress.lower_bound or 0.0)

        def decided() -> bool:
            return not self.batch < batch <= self.upper_bound or self.limits.cancelled()

        seconds = SEARCHING * self.limits.left
        limits = Limits(seconds, self.limits.solver, self.limits.threads, report, decided)
        answer = solve_optimal(self.problem.scaling.at(batch), self.problem.memory, limits)
        self._keep_schedule(answer.schedule, batch)
        self._rule_out(batch, math.inf if answer.infeasible else answer.lower_bound or 0.0)

    def _relaxed(self, condensed: CondensedGraph, batch: int) -> MomentsBound:
        limits = Limits(min(RELAXING, self.limits.left), self.limits.solver, self.limits.threads)
        relaxed = few_moments_bound(condensed, self.problem.memory, limits)
        self._rule_out(batch, relaxed.bound)
        return relaxed

    def _rule_out(self, batch: int, bound: float) -> None:
        """Lower the bound if no schedule at ``batch`` costs less than ``bound``, and that is too dear.

        A schedule of a larger batch would be one of this batch, too, if its cost shrinks with the batch as the limit
        does: where no cost has a part that does not grow.
        """
        shrinks = self.problem.overhead_limit is None or not self.problem.scaling.costs.fixed.any()
        if shrinks and self.batch < batch <= self.upper_bound and not self.problem.allows(bound / (1 + CAUTION), batch):
            self.upper_bound = batch - 1

    def _keep_schedule(self, schedule: Schedule | None, batch: int) -> None:
        """Take over what was planned for ``batch``; what is too dear is kept as a start for smaller batches."""
        if schedule is None:
            return
        if self.problem.allows(schedule.cost, batch):
            self._keep(schedule, batch)
        elif batch not in self.too_dear or schedule.cost < self.too_dear[batch].cost:
            self.too_dear[batch] = schedule

    def _keep(self, schedule: Schedule, batch: int) -> None:
        """Take a schedule over at the largest batch that it fits, at least the one it was planned for."""
        for largest in dict.fromkeys((self._reach(schedule, batch), batch)):
            if largest <= self.batch:
                continue
            try:
                checked = check_schedule(schedule.on(self.problem.scaling.at(largest)), self.problem.memory)
            except ScheduleError:
                continue
            if self.problem.allows(checked.cost, largest):
                self.found, self.batch = checked, largest
                self.upper_bound = max(self.upper_bound, largest)  # a solver's tolerance was too wide
                self._tell("found a larger batch")
                return

    def _reach(self, schedule: Schedule, batch: int) -> int:
        """The largest batch at which the memory of a schedule's plan is within the memory, 0 for none."""
        fixed, at_batch = (
            Plan.of(schedule.on(self.problem.scaling.at(b))).timeline.during.astype(float) for b in (0, batch)
        )
        growth = (at_batch - fixed) / batch
        if (fixed > self.problem.memory).any() or not (growth > 0).any():
            return 0
        room = (self.problem.memory - fixed[growth > 0]) / growth[growth > 0]
        return max(0, math.floor(room.min() * (1 + 1e-12)))

    def _tell(self, doing: str) -> None:
        bound = f"batch {self.batch} of at most {self.upper_bound}"
        self.limits.tell(f"{doing}: {bound}", None if self.found is None else self.found.schedule)


GraphOfBatch = Callable[[int], Graph]
CAPTURED = (2, 4)  # at batch 1 some models take other paths: an axis of length 1 broadcasts
SHARES = (0.5, 0.5, 1.0)  # of the time that is left, for each search between two captures
CAPTURE_CAUTION = 1.25  # on the seconds of the next capture


@dataclass(frozen=True)
class MaxBatch:
    """The largest batch found, its schedule, and a proven bound on every schedule's batch.

    Attributes:
        batch: examples; 0 if no schedule is known.
        upper_bound: no schedule has a larger batch.
        schedule: for the graph at ``batch``, checked there; None if no schedule is known.
        memory: bytes that were given, resident bytes included.
        cost: of the schedule, or None.
        cost_limit: that the schedule keeps to, infinity for none; None without a schedule.
        peak: bytes of the schedule's plan, or None.
        checkpoint_all_batch: the largest batch without recomputation.
        operation: name of the operation that needs the most for itself alone at large batches.
        measured: whether graphs of two batch sizes told what grows with the batch, or a rule did.
        seconds: wall time.
        solver: the back end of the bound.
    """

    batch: int
    upper_bound: int
    schedule: Schedule | None
    memory: int
    cost: float | None
    cost_limit: float | None
    peak: int | None
    checkpoint_all_batch: int
    operation: str
    measured: bool
    seconds: float
    solver: str = "highs"

    @property
    def optimal(self) -> bool:
        """Whether the batch is proven to be the largest."""
        return self.batch == self.upper_bound

    def to_document(self) -> dict[str, Any]:
        """Everything but the schedule, for JSON."""
        names = ("batch", "upper_bound", "optimal", "memory", "cost", "peak", "checkpoint_all_batch", "operation")
        limit = None if self.cost_limit is None or self.cost_limit == float("inf") else self.cost_limit
        document = {name: getattr(self, name) for name in (*names, "measured", "seconds", "solver")}
        return document | {"cost_limit": limit}

    def __str__(self) -> str:
        if self.upper_bound == 0:
            return f"not even one example fits into {format_bytes(self.memory)}: {self.operation!r} alone needs more"
        proof = "proven to be the largest" if self.optimal else f"at most {self.upper_bound} can fit"
        if self.schedule is None or self.peak is None:
            return f"no schedule found for {format_bytes(self.memory)}; {proof}"
        overhead = format_overhead(self.schedule.overhead)
        return (
            f"batch {self.batch}, {proof}; peak {format_bytes(self.peak)} of {format_bytes(self.memory)}, "
            f"overhead {overhead}; batch {self.checkpoint_all_batch} without recomputation"
        )


def max_batch(
    graph: Graph | GraphOfBatch,
    memory: str | int | float,
    overhead_limit: OverheadLimit = ONE_EXTRA_FORWARD,
    larger: Graph | None = None,
    batches: tuple[Count, Count] = (1, 2),
    time_limit: Seconds = 60.0,
    solver: str = "highs",
    threads: Threads = 1,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> MaxBatch:
    """The largest batch that some schedule trains within ``memory`` at a limited overhead, and a bound on it.

    What grows with the batch is measured where graphs of two batch sizes are given: every number of bytes, and every
    cost, is then a line through two points. Bytes of captured models lie on such lines; costs need not, where reading
    parameters takes longer than computing at small batches, so a function is asked again at the batch found. With
    one graph alone a rule says it: values, workspace and costs are proportional to the batch; resident bytes
    (parameters, and the model's inputs) and persistent values (parameter gradients, the loss) are there once.

    Args:
        graph: the training graph at the first of ``batches``; or a function from a batch size to its graph, which is
            called for batch 2 and 4, and again for the batch found, so that the schedule is checked there.
        memory: bytes, or "16 GB" (10 ** 9 bytes each) or "16 GiB"; everything counts, parameters included.
        overhead_limit: "one extra forward" (cost at most that of one more forward pass), a ratio to the cost of
            keeping everything such as 1.3, a percentage on top such as "10%", or None for any cost.
        larger: the graph at the second of ``batches``: what grows is measured.
        batches: batch sizes of ``graph`` and ``larger``.
        time_limit: seconds of wall time. No capture is interrupted, and the one at the batch found is left out where
            it would end too late; compiling the search, once on a machine, is no part of them.
        solver: a key of `BACKENDS`.
        threads: threads of the solver.
        on_progress: called in this thread with each `Progress`.
        cancelled: asked between steps; once True the best so far is returned.

    Raises:
        QuantityError: if the memory or the limit cannot be read.
        UnknownNameError: if there is no such solver.
        GraphError: if the two graphs differ in more than bytes and costs, or nothing grows with the batch.
        SolverError: if the solver fails, or the graph has operations with several implementations.

    Source: section 6.4 and the limit (10) of Checkmate (Jain et al., MLSys 2020); the batch is no variable here.

    >>> from remat_explorer.instances import linear
    >>> found = max_batch(linear(8), memory=1000)
    >>> found.batch, found.schedule.cost, found.checkpoint_all_batch
    (200, 4400.0, 100)
    """
    require_arguments(max_batch, locals())
    memory_bytes = parse_bytes(memory)
    backend(solver)
    load_search(on_progress)
    limits = Limits(time_limit, solver, threads, on_progress, cancelled)
    if isinstance(graph, Graph):
        if larger is None:
            scaling = BatchScaling.by_rule(graph, batches[0])
        else:
            scaling = BatchScaling.measured_from(graph, larger, batches)
        return _searched(BatchProblem(scaling, memory_bytes, overhead_limit), limits)
    return _captured(graph, memory_bytes, overhead_limit, limits)


def _searched(problem: BatchProblem, limits: Limits) -> MaxBatch:
    allowed_recomputation(problem.scaling.costs.fixed, problem.scaling.graph.is_backward, problem.overhead_limit)
    search = BatchSearch(problem, limits)
    search.run()
    checked = search.found
    graph = None if checked is None else checked.schedule.graph
    return MaxBatch(
        search.batch,
        search.upper_bound,
        None if checked is None else checked.schedule,
        problem.memory,
        None if checked is None else checked.cost,
        None if graph is None else graph.total_cost + problem.spare_cost(search.batch),
        None if checked is None else checked.peak,
        search.checkpoint_all_batch,
        problem.scaling.graph.operations[search.operation].name,
        problem.scaling.measured,
        limits.elapsed,
        limits.solver,
    )


def _captured(capture: GraphOfBatch, memory: int, overhead_limit: OverheadLimit, limits: Limits) -> MaxBatch:
    """Lines through two small batches; where those miss what is captured at the batch found, lines through that one."""
    batches, small = CAPTURED, capture(CAPTURED[0])
    begun = limits.elapsed
    large = capture(CAPTURED[1])
    seconds = limits.elapsed - begun  # of every later capture, too: no tensors are allocated; the first loads modules
    for share in SHARES:
        scaling = BatchScaling.measured_from(small, large, batches)
        answer = _searched(BatchProblem(scaling, memory, overhead_limit), _leaving(limits, share, seconds))
        if answer.schedule is None or limits.over or limits.left < seconds:
            break
        limits.tell(f"capturing at batch {answer.batch}", answer.schedule)
        graph = capture(answer.batch)
        try:
            batches, large = (CAPTURED[0], answer.batch), graph
            exact = BatchProblem(BatchScaling.measured_from(small, graph, batches), memory, overhead_limit)
            checked = check_schedule(answer.schedule.on(graph), memory)
        except GraphError:  # another structure at this batch: the lines are all there is
            break
        except ScheduleError:
            continue
        if exact.allows(checked.cost, answer.batch):
            limit = graph.total_cost + exact.spare_cost(answer.batch)
            answer = replace(answer, schedule=checked.schedule, cost=checked.cost, cost_limit=limit, peak=checked.peak)
            break
    return replace(answer, seconds=limits.elapsed)


def _leaving(limits: Limits, share: float, seconds: float) -> Limits:
    """Limits of a search before a capture, or of the last search if there is not enough time for both."""
    spare = limits.left - CAPTURE_CAUTION * seconds
    return limits.share(min(share, spare / limits.left) if spare > limits.left / 3 else 1.0)
