"""The largest batch whose training step fits into a memory, at a limited overhead: Checkmate's section 6.4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.entry_checks import Count, Seconds, Threads, require_arguments
from remat_explorer.errors import GraphError, ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes, format_overhead, parse_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.backends import backend
from remat_explorer.solvers.base import Limits, Progress
from remat_explorer.solvers.batches.batch_bound import BatchProblem
from remat_explorer.solvers.batches.batch_scaling import BatchScaling
from remat_explorer.solvers.batches.batch_search import BatchSearch
from remat_explorer.solvers.batches.overhead_limit import ONE_EXTRA_FORWARD, OverheadLimit, allowed_recomputation
from remat_explorer.solvers.search.compiled_search import load_search

GraphOfBatch = Callable[[int], Graph]
CAPTURED = (2, 4)  # at batch 1 some models take other paths: an axis of length 1 broadcasts
SHARES = (0.5, 0.5, 1.0)  # of the time that is left, for each search between two captures
CAUTION = 1.25  # on the seconds of the next capture


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
    spare = limits.left - CAUTION * seconds
    return limits.share(min(share, spare / limits.left) if spare > limits.left / 3 else 1.0)
