"""Which implementation a computation runs, and how it differs from the default one: what it reads, keeps and costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.explanations.kinds import kinds_of_codes
from remat_explorer.explanations.wording import cost_text
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan, Statement
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule


@dataclass(frozen=True)
class Choice:
    """The implementation of one run of an operation, beside the default one.

    Attributes:
        operation: the operation.
        stage: in which it runs.
        code: number of the implementation, from 1.
        name: of the implementation.
        kind: of the implementation, "" for the default.
        cost: more than the default's, in the unit of the graph's costs; negative where it is cheaper.
        workspace: bytes more than the default's.
        reads: ids of values that it reads and the default does not.
        spares: ids of values that the default reads and it does not.
        sentence: all of this in words.
    """

    operation: int
    stage: int
    code: int
    name: str
    kind: str
    cost: float
    workspace: int
    reads: tuple[int, ...]
    spares: tuple[int, ...]
    sentence: str


def explain_choice(schedule: Schedule, operation: int, stage: int) -> Choice | None:
    """The implementation that an operation runs in a stage, or in the stage nearest before or after it.

    Args:
        schedule: of a graph with choices.
        operation: the operation.
        stage: the stage that is looked at.

    Returns:
        None where the operation has one implementation only, or never runs.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> explain_choice(keep, 1, 1) is None
    True
    """
    graph, node = schedule.graph, schedule.graph.operations[operation]
    runs = np.flatnonzero(codes := schedule.implementations_of(operation))
    if len(node.implementations) == 1 or not len(runs):
        return None
    at = int(runs[np.abs(runs - stage).argmin()])
    code = int(codes[at])
    way, plain = node.implementations[code - 1], node.default
    reads = tuple(sorted(set(way.inputs) - set(plain.inputs)))
    spares = tuple(sorted(set(plain.inputs) - set(way.inputs)))
    kind = kinds_of_codes(graph)[operation][code - 1]
    cost, workspace = way.cost - plain.cost, way.workspace - plain.workspace
    others = len(node.implementations) - 1
    if way is plain:
        words = f"PyTorch's own, of {others + 1} implementations"
    else:
        words = _words(graph, cost, workspace, reads, spares, way.tolerance)
    return Choice(operation, at, code, way.name, kind, cost, workspace, reads, spares, words)


def _words(
    graph: Graph, cost: float, workspace: int, reads: tuple[int, ...], spares: tuple[int, ...], tolerance: float
) -> str:
    """How an implementation differs from the default one."""
    parts = []
    if reads or spares:
        here = f"reads {_values(graph, reads)}" if reads else "reads nothing else"
        parts.append(f"{here} instead of {_values(graph, spares)}" if spares else here)
    if cost:
        amount = cost_text(graph, abs(cost)).removeprefix("cost ")
        parts.append(f"costs {amount} {'more' if cost > 0 else 'less'} than the default")
    else:
        parts.append("costs the same as the default")
    if workspace:
        parts.append(f"needs {format_bytes(abs(workspace))} {'more' if workspace > 0 else 'less'} workspace")
    parts.append(f"results within {tolerance:.0e}" if tolerance else "results equal bit for bit")
    return ", ".join(parts)


def _values(graph: Graph, values: tuple[int, ...]) -> str:
    total = sum(graph.values[v].bytes for v in values)
    if len(values) > 2:
        return f"{len(values)} values ({format_bytes(total)})"
    return " and ".join(f"{graph.values[v].name} ({format_bytes(graph.values[v].bytes)})" for v in values)


def way_name(graph: Graph, operation: int, code: int) -> str:
    """The name of an implementation that is not the default one, else "".

    >>> from remat_explorer.instances import linear
    >>> way_name(linear(1), 0, 1)
    ''
    """
    return graph.operations[operation].implementations[code - 1].name if code > 1 else ""


def statement_text(plan: Plan, statement: Statement) -> str:
    """A statement as people read it, with the name of its implementation where that is not the default one."""
    said = plan.text(statement)
    name = ""
    if isinstance(statement, Compute):
        name = way_name(plan.graph, statement.operation, statement.implementation)
    return f"{said} · {name}" if name else said
