"""The one independent checker: no schedule is shown, saved or executed before it passes here.

It shares nothing with the strategies. Rules (1b) to (1e) are verified on R and S, and the plan is then replayed
statement by statement with bookkeeping of its own, so a mistake in the plan's liveness is found here, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import exact_bytes
from remat_explorer.schedule import Schedule


@dataclass(frozen=True)
class CheckedSchedule:
    """What the checker found: the schedule, its cost, the peak of U, and the plan with its own, lower peak."""

    schedule: Schedule
    cost: float
    U_peak: int
    peak: int
    plan: Plan


def check(graph: Graph, R: np.ndarray, S: np.ndarray, budget: int | None = None) -> CheckedSchedule:
    """Verify R and S against ``graph`` and replay their plan; `check_schedule` does it without matrices.

    Args:
        graph: the training graph.
        R: (stages, operations), 0 or the implementation computed.
        S: (stages, values), 0 or 1.
        budget: bytes that the plan's peak must not exceed, or None.

    Raises:
        ScheduleError: naming the first violation.

    >>> from remat_explorer.instances import linear
    >>> check(linear(1), np.eye(3), [[0, 0, 0], [0, 0, 0], [1, 1, 0]])
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ScheduleError: stage 1 computes 'v1' but its input 'v0' is neither computed nor retained
    """
    require_arguments(check, locals())
    return check_schedule(Schedule(graph, R, S), budget)


def check_schedule(schedule: Schedule, budget: int | None = None) -> CheckedSchedule:
    """Verify a schedule and replay its plan, in time and memory that grow with what it computes."""
    broken = schedule.violation()
    if broken:
        raise ScheduleError(broken)
    plan = Plan.of(schedule)
    cost, peak = replay(plan)
    U_peak = schedule.U_peak
    if peak > U_peak:
        raise ScheduleError(f"the plan peaks at {exact_bytes(peak)}, above its schedule's U of {exact_bytes(U_peak)}")
    if budget is not None and peak > budget:
        at = plan.timeline.stage[plan.timeline.peak_statement]
        raise ScheduleError(f"stage {at} needs {exact_bytes(peak)}, above the budget of {exact_bytes(budget)}")
    return CheckedSchedule(schedule, cost, U_peak, peak, plan)


def replay(plan: Plan) -> tuple[float, int]:
    """Cost and peak bytes of a plan, by executing its statements on a register file.

    Refused is a statement that reads a value that is not in memory, frees one that is not, computes one that still is,
    takes over a storage that it may not, or leaves something behind. A value that is freed twice, which Theorem 4.1 of
    Checkmate excludes, is one that is not in memory.
    """
    graph = plan.graph
    held: dict[int, int] = {}
    ran: set[int] = set()
    cost, total, peak = 0.0, graph.resident_bytes, graph.resident_bytes
    for i, statement in enumerate(plan.statements):
        if not isinstance(statement, Compute):
            if graph.persistent[statement.value]:
                raise ScheduleError(f"statement {i} frees persistent value {graph.values[statement.value].name!r}")
            if statement.value not in held:
                raise ScheduleError(f"statement {i} frees {graph.values[statement.value].name!r}, which is not held")
            total -= held.pop(statement.value)
            continue
        node = graph.operations[statement.operation]
        way = node.implementations[statement.implementation - 1]
        for v in way.inputs:
            if v not in held:
                raise ScheduleError(f"statement {i} computes {node.name!r} without {graph.values[v].name!r} in memory")
        new = {v: graph.values[v].bytes for v in way.outputs}
        if statement.overwrites is not None:
            total -= _taken_over(graph, statement, i, held)
        elif way.in_place:
            raise ScheduleError(
                f"statement {i} computes {node.name!r} with {way.name!r}, which may run in place only, but not in place"
            )
        peak = max(peak, total + sum(new.values()) + way.workspace)
        for v in new.keys() & held.keys():
            if not graph.persistent[v]:
                raise ScheduleError(f"statement {i} overwrites {graph.values[v].name!r}, which is still held")
            del new[v]
        held |= new
        total += sum(new.values())
        cost += way.cost
        if statement.first != (statement.operation not in ran):
            raise ScheduleError(f"statement {i} mislabels the first run of {node.name!r}")
        ran.add(statement.operation)
    left = [v for v in held if not graph.persistent[v]]
    if left:
        raise ScheduleError(f"the plan never frees {graph.names(left)}")
    return cost, peak


def _taken_over(graph: Graph, statement: Compute, i: int, held: dict[int, int]) -> int:
    """Bytes of the value that the statement overwrites; it is held no longer, so whoever reads it again is caught."""
    node, v = graph.operations[statement.operation], statement.overwrites
    way = node.implementations[statement.implementation - 1]
    if v is None or v != way.overwrites:
        raise ScheduleError(f"statement {i} computes {node.name!r} in place of a value that it cannot overwrite")
    if graph.persistent[v]:
        raise ScheduleError(f"statement {i} overwrites the persistent value {graph.values[v].name!r}")
    kept = [output for output in way.outputs if output not in statement.drops and output not in held]
    if not kept:
        raise ScheduleError(
            f"statement {i} overwrites {graph.values[v].name!r} with an output that is not kept in its place"
        )
    if held[v] not in [graph.values[output].bytes for output in kept]:
        raise ScheduleError(f"statement {i} overwrites {graph.values[v].name!r} with an output of another size")
    return held.pop(v)
