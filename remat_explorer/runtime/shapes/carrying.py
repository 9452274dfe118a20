"""The schedule of a training step, carried over to the same step with smaller inputs, and checked there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from remat_explorer.allocator import reserved_of
from remat_explorer.capture.captured_program import Program
from remat_explorer.capture.profile_cache import Profile, name_of_call
from remat_explorer.checker import check_schedule
from remat_explorer.errors import ExecutionError, ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import exact_bytes
from remat_explorer.runtime.backward.retaining import retaining_peak
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.reserved import REQUESTED, RESERVED


def carried_over(
    solution: Solution,
    larger: Program,
    smaller: Program,
    resident_bytes: int,
    budget_means: str,
    alone: bool = True,
    state: int = 0,
    retain: bool = False,
) -> Solution:
    """A solution within the same budget for a step with smaller inputs: its schedule, or nothing recomputed.

    The two programs must have the same operations with the same dependencies, and no value may be larger, so that every
    rule that the schedule keeps for the one is kept for the other. The checker looks at it all the same, with the sizes
    of the smaller step. Where keeping everything fits into the budget, that is the answer, since it costs no more.

    What is taken over and not measured: an operation is assumed to need at most the workspace that was measured for
    its larger inputs, an output to take over a storage only if it does so there, and a storage that was found to be
    larger than predicted to be no larger now. Costs stay those that were measured there, so only their shares mean
    something, and nothing is proven about them.

    Args:
        solution: of the larger step, on its profiled graph, with a schedule.
        larger, smaller: both steps as they were traced.
        resident_bytes: what is there before the smaller step begins.
        budget_means: "requested" or "reserved", as for `remat_explorer.solve`.
        alone: whether nothing may be recomputed where everything fits; other processes, whose inputs may be larger,
            would wait for what this one does not gather again.
        state: bytes of a generator's state, as `state_bytes` gives them.
        retain: whether what the forward half leaves stays, as for `retaining_peak`.

    Raises:
        ExecutionError: if an operation is another one or a value is larger, with its name; or if the checker refuses
            the schedule.
    """
    require_same_operations(larger, smaller)
    states = [state if body.random else 0 for body in smaller.bodies]
    graph = with_measured(solution.graph, larger.graph, smaller.graph, resident_bytes, states)
    assert solution.schedule is not None
    everything = keeping_everything(graph, solution.budget, budget_means, retain) if alone else None
    if everything is not None and everything.schedule and everything.schedule.cost <= solution.schedule.cost:
        return everything
    try:
        schedule = check_schedule(solution.schedule.on(graph), solution.budget).schedule
    except ScheduleError as error:
        raise ExecutionError(f"it is refused for these inputs: {error}") from None
    if retain and (most := _most(schedule, REQUESTED, retain)) > solution.budget:
        raise ExecutionError(
            f"with what is retained it needs {exact_bytes(most)}, above the budget of {exact_bytes(solution.budget)}"
        )
    if (most := _most(schedule, budget_means)) > solution.budget:
        raise ExecutionError(
            f"PyTorch's allocator is predicted to reserve {exact_bytes(most)} for it, above the budget of "
            f"{exact_bytes(solution.budget)}"
        )
    return Solution(graph, solution.strategy, Status.FEASIBLE, solution.budget, schedule, None, solution.seconds)


def keeping_everything(graph: Graph, budget: int, budget_means: str, retain: bool = False) -> Solution | None:
    """The solution that recomputes nothing, if it fits into a budget; nothing is searched for.

    >>> from remat_explorer.instances import linear
    >>> keeping_everything(linear(8), 9, "requested") is None, keeping_everything(linear(8), 10, "requested").peak
    (True, 10)
    """
    schedule = checkpoint_all(graph)
    if _most(schedule, budget_means, retain) > budget:
        return None
    schedule = check_schedule(schedule, budget).schedule
    return Solution(graph, "checkpoint-all", Status.FEASIBLE, budget, schedule, None, 0.0)


def _most(schedule: Schedule, budget_means: str, retain: bool = False) -> int:
    """The bytes of a schedule that are held against its budget."""
    retained = retaining_peak(Plan.of(schedule)) if retain else 0
    return max(retained, reserved_of(schedule) if budget_means == RESERVED else Plan.peak_of(schedule))


def require_same_operations(larger: Program, smaller: Program) -> None:
    """Refuse a step with other operations, or with a value that is larger.

    Raises:
        ExecutionError: naming the first operation or value in which they differ.
    """
    for mine, theirs in zip(_operations(larger), _operations(smaller), strict=False):
        if mine[0] != theirs[0]:
            raise ExecutionError(f"the model computes {theirs[0]!r} where it computed {mine[0]!r} there")
        if mine != theirs:
            raise ExecutionError(f"{theirs[0]!r} has other operators or inputs than there")
    if larger.graph.n != smaller.graph.n:
        raise ExecutionError(f"the model has {smaller.graph.n} operations where it had {larger.graph.n} there")
    for mine, theirs in zip(larger.graph.values, smaller.graph.values, strict=True):
        if theirs.bytes > mine.bytes or theirs.persistent != mine.persistent:
            raise ExecutionError(
                f"{theirs.name!r} takes {exact_bytes(theirs.bytes)} where it took {exact_bytes(mine.bytes)} there"
            )


def _operations(program: Program) -> Iterator[tuple[Any, ...]]:
    """What must be the same: names, operators, and what is read and written."""
    for node, body in zip(program.graph.operations, program.bodies, strict=True):
        ways = tuple((way.name, way.inputs, way.outputs) for way in node.implementations)
        yield node.name, node.phase, node.optional, ways, tuple(map(name_of_call, body.calls)), body.random


def with_measured(
    measured: Graph, larger: Graph, smaller: Graph, resident_bytes: int, states: Sequence[int] = ()
) -> Graph:
    """The graph of a smaller step with what was measured for a larger one, operation by operation.

    Args:
        measured: the profiled graph of the larger step.
        larger, smaller: both as captured, with the same operations.
        resident_bytes: of the smaller step.
        states: for each operation the bytes of a generator's state that is read before it runs, or 0; smaller outputs
            leave less room for it.

    >>> from remat_explorer.instances import linear
    >>> with_measured(linear(2), linear(2), linear(2), 7).resident_bytes
    7
    """
    sizes = tuple(
        small.bytes if real.bytes == large.bytes else max(small.bytes, real.bytes)
        for real, large, small in zip(measured.values, larger.values, smaller.values, strict=True)
    )
    pairs = [
        (*pair, state)
        for node, other, state in zip(measured.operations, smaller.operations, states or [0] * smaller.n, strict=True)
        for pair in zip(node.implementations, other.implementations, strict=True)
    ]
    takes_over = (
        real.overwrites is not None
        and real.overwrites == way.overwrites
        and sizes[real.overwrites] in [sizes[v] for v in way.outputs]
        for real, way, _ in pairs
    )
    grown = [
        sum(sizes[v] for v in way.outputs) - (0 if real.overwrites is None else sizes[real.overwrites])
        for real, way, _ in pairs
    ]
    workspace = tuple(
        max(real.workspace, state and state - more) for (real, _, state), more in zip(pairs, grown, strict=True)
    )
    costs = tuple(float(real.cost) for real, _, _ in pairs)
    return Profile(costs, workspace, tuple(takes_over), sizes, resident_bytes).of(smaller)
