"""What an operation is: where it comes from, what it reads, writes and costs, and when it runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.explanations.wording import cost_text, count
from remat_explorer.operation_details import Details
from remat_explorer.quantities import format_bytes, format_share
from remat_explorer.schedule import Schedule


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
