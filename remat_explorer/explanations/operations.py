"""What an operation is, where it comes from and when it runs; the person's own lines; and where to look first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.explanations.choices import first_runs
from remat_explorer.explanations.peak import alive_at
from remat_explorer.explanations.values import kept_bytes
from remat_explorer.explanations.wording import cost_text, count
from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.operation_details import Details
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_share
from remat_explorer.schedule import Schedule

Line = tuple[str, str]  # path of the file, or "" where it is not known, and "net.py:42"


@dataclass(frozen=True)
class LineUse:
    """What a schedule does with the operations of a line.

    Attributes:
        kept: bytes of their values that the forward pass leaves to the backward pass.
        again: how many of their computations repeat an earlier one.
    """

    kept: int
    again: int


def line_of(graph: Graph, operation: int) -> Line | None:
    """The line that an operation comes from, or None."""
    details = graph.operations[operation].details
    if details is None or not details.line:
        return None
    return (details.source.path if details.source is not None else "", details.line)


@memoize_by_identity
def lines_of(graph: Graph) -> dict[Line, int]:
    """The lines of a graph's operations, numbered in the order in which they first come."""
    numbers: dict[Line, int] = {}
    for k in range(graph.n):
        line = line_of(graph, k)
        if line is not None:
            numbers.setdefault(line, len(numbers))
    return numbers


@memoize_by_identity
def uses_of_lines(schedule: Schedule) -> tuple[LineUse, ...]:
    """What the schedule does with each line, in the order of `lines_of`.

    >>> from dataclasses import replace
    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.operation_details import Details
    >>> chain = linear(1)
    >>> nodes = tuple(replace(node, details=Details(line="net.py:7")) for node in chain.operations)
    >>> uses_of_lines(Schedule(replace(chain, operations=nodes), np.eye(3), np.tril(np.ones((3, 3)), -1)))
    (LineUse(kept=1, again=0),)
    """
    graph, numbers = schedule.graph, lines_of(schedule.graph)
    kept, again = np.zeros(len(numbers)), np.zeros(len(numbers), dtype=np.int64)
    of_operation, runs = kept_bytes(schedule), schedule.computations.counts(graph.n)
    for k in range(graph.n):
        line = line_of(graph, k)
        if line is not None:
            kept[numbers[line]] += of_operation[k]
            again[numbers[line]] += max(int(runs[k]) - 1, 0)
    return tuple(LineUse(int(size), int(count)) for size, count in zip(kept, again, strict=True))


def first_look(schedule: Schedule, plan: Plan) -> tuple[int, int]:
    """Stage and value to begin with: the recomputation that costs most, or where there is none the peak.

    Args:
        schedule: R and S.
        plan: its plan.

    Returns:
        The stage, and the first value that is written there; at the peak, the largest value in memory.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> few, all_kept = solve(linear(8), 4), solve(linear(8), 10)
    >>> first_look(few.schedule, few.plan), first_look(all_kept.schedule, all_kept.plan)
    ((10, 5), (9, 0))
    """
    return dearest_recomputation(schedule) or peak_look(plan)


def dearest_recomputation(schedule: Schedule) -> tuple[int, int] | None:
    """Stage and first value written of the recomputation that costs most, or None where nothing is computed again."""
    again = recomputed(schedule)
    return max(again, key=lambda found: again[found]) if again else None


def peak_look(plan: Plan) -> tuple[int, int]:
    """The stage at which most is in memory, and the largest value there."""
    memory = alive_at(plan)
    return memory.stage, next((row.value for row in memory.rows if row.value is not None), 0)


@memoize_by_identity
def recomputed(schedule: Schedule) -> dict[tuple[int, int], tuple[float, int]]:
    """What is computed again, as stage and first value that is written: its cost, and the bytes of that value.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> recomputed(solve(linear(4), 4).schedule)
    {(7, 0): (1.0, 1), (7, 1): (1.0, 1)}
    """
    graph, first = schedule.graph, first_runs(schedule)
    found = {}
    for stage, operation, code in schedule.sequence:
        outputs = graph.outputs(operation)
        if stage > first[operation] and outputs:
            cost = float(graph.operations[operation].implementations[code - 1].cost)
            found[stage, outputs[0]] = cost, int(graph.value_bytes[outputs[0]])
    return found


@memoize_by_identity
def values_of_stages(schedule: Schedule) -> list[int]:
    """For each stage the value that it is about: of what it computes again the dearest, else of its last operation.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> values_of_stages(solve(linear(4), 4).schedule)
    [0, 1, 2, 3, 4, 5, 6, 0, 8]
    """
    again, values = recomputed(schedule), [0] * schedule.stages
    for stage, operation, _ in schedule.sequence:
        outputs = schedule.graph.outputs(operation)
        values[stage] = outputs[0] if outputs else values[stage]
    best: dict[int, tuple[float, int]] = {}
    for (stage, value), weight in again.items():
        if stage not in best or weight > best[stage]:
            best[stage], values[stage] = weight, value
    return values


@dataclass(frozen=True)
class OperationExplanation:
    """One operation in a schedule.

    Attributes:
        module, operator, line: path of the module, operator and line of the person's code; "" where not known.
        calls: what the code of a plan calls for its default implementation; nothing where that is not known.
        cost: of its default implementation, in the unit of the graph's costs.
        share: of the cost of computing everything once.
        workspace: bytes that it needs only while it runs.
        inputs, outputs: value ids.
        shapes: shape of each output, or nothing.
        overwrites: the input whose storage the output may take over, or None.
        stages: where it runs, ascending; the first is its first computation.
        sentence: cost, workspace and runs in words.
    """

    operation: int
    name: str
    phase: str
    module: str
    operator: str
    line: str
    calls: tuple[str, ...]
    cost: float
    share: float
    workspace: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[str, ...]
    overwrites: int | None
    stages: tuple[int, ...]
    sentence: str


def explain_operation(schedule: Schedule, operation: int) -> OperationExplanation:
    """What an operation is, and in which stages it runs.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> explain_operation(keep, 1).sentence
    'Costs 1 (33.3 % of one pass), no workspace; runs once, in stage 1.'
    """
    graph = schedule.graph
    node = graph.operations[operation]
    way, details = node.default, node.details or Details()
    stages = tuple(int(t) for t in np.flatnonzero(schedule.implementations_of(operation)))
    share = way.cost / graph.total_cost if graph.total_cost else 0.0
    cost = cost_text(graph, way.cost).removeprefix("cost ")
    workspace = f"{format_bytes(way.workspace)} of workspace" if way.workspace else "no workspace"
    return OperationExplanation(
        operation,
        node.name,
        node.phase,
        details.module,
        details.operator or way.name.removeprefix("default"),
        details.line,
        details.calls,
        way.cost,
        share,
        way.workspace,
        way.inputs,
        way.outputs,
        details.shapes if len(details.shapes) == len(way.outputs) else (),
        way.overwrites,
        stages,
        f"Costs {cost} ({format_share(share)} of one pass), {workspace}; {_runs(stages)}.",
    )


def _runs(stages: tuple[int, ...]) -> str:
    if not stages:
        return "does not run"
    if len(stages) == 1:
        return f"runs once, in stage {stages[0]}"
    shown = [str(t) for t in stages[:8]] + (["…"] if len(stages) > 8 else [])
    return f"runs {count(len(stages), 'time')}, in stages {', '.join(shown)}"
