"""Which implementation a computation runs, and how it differs from the default one: what it reads, keeps and costs.

Also which kinds of implementations a graph has to choose from, and what has to run to have a value again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from remat_explorer.explanations.wording import cost_text
from remat_explorer.graph import Graph, Implementation, Operation
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.offload import TransferPlan
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule

OWN = ""  # the kind of an operation's default implementation, which is PyTorch's own
EXPLAINED: dict[str, tuple[str, str]] = {  # of a kind: its label, and what it does
    "activations": ("activations", "Backward of ReLU from its input, of ReLU6 from its input or output"),
    "masks": ("masks", "Backward of ReLU, ReLU6 and dropout from a mask of one bit per entry"),
    "replay": ("replay", "Backward of dropout, whose mask is drawn again from the generator's state"),
    "pooling": ("pooling", "Max pooling with a byte per output, made with it or later, or with indices found again"),
    "statistics": ("statistics", "Batch normalization computed again with the statistics it has saved"),
    "input-gradients": ("input gradients", "The input gradient of a convolution without its input"),
    "attention": ("attention", "Attention whose backward pass computes the forward pass again"),
    "lean": ("lean", "Backward of batch normalization without a temporary"),
    "output-activated": ("from outputs", "Backward of batch and layer normalization from the output"),
    "cross-entropy": ("cross-entropy", "Cross-entropy from one number per row"),
    "chunks": ("chunks", "Convolutions of a few samples, perceptrons of some tokens or features at a time"),
    "algorithms": ("algorithms", "Convolutions by another library or with another layout in memory"),
}


def kinds_of_way(node: Operation, way: Implementation) -> tuple[str, ...]:
    """All kinds of an implementation, the one that says what it is for first; none for the default.

    An implementation that a graph's author has given no kind is of a kind of its own, called like it.

    >>> from remat_explorer.instances import linear
    >>> node = linear(1).operations[0]
    >>> kinds_of_way(node, node.default), kinds_of_way(node, Implementation((), (0,), 1.0, name="by hand"))
    ((), ('by hand',))
    """
    if way is node.default:
        return ()
    return way.kinds or (way.name,)


@memoize_by_identity
def kinds_of_codes(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """For each operation the first kinds of its implementations; an optional one is of the kind of what reads it."""
    kinds = [[next(iter(kinds_of_way(node, way)), OWN) for way in node.implementations] for node in graph.operations]
    for k, node in enumerate(graph.operations):
        if node.optional:
            made = set(graph.outputs(k))
            served = [
                kind
                for u in sorted({u for v in made for u in graph.readers[v]})
                for kind, way in zip(kinds[u], graph.operations[u].implementations, strict=True)
                if kind and not made.isdisjoint(way.inputs)
            ]
            kinds[k] = [served[0] if served else OWN] * len(node.implementations)
    return tuple(map(tuple, kinds))


@memoize_by_identity
def kinds_in(graph: Graph) -> tuple[str, ...]:
    """The kinds of implementations that a graph offers, those that capture knows first.

    >>> from remat_explorer.instances import linear
    >>> kinds_in(linear(3))
    ()
    """
    there = {kind for node in graph.operations for way in node.implementations for kind in kinds_of_way(node, way)}
    there -= {way.name for node in graph.operations if node.optional for way in node.implementations if not way.kinds}
    return (*graph.kinds, *sorted(there.difference(graph.kinds)))


def kinds_used(schedule: Schedule) -> frozenset[str]:
    """The kinds of implementations that a schedule runs; those that only make what others read say nothing."""
    operations = schedule.graph.operations
    runs = {(k, code) for _, k, code in schedule.sequence if not operations[k].optional}
    return frozenset(
        kind for k, code in runs for kind in kinds_of_way(operations[k], operations[k].implementations[code - 1])
    )


def is_exact(graph: Graph, kind: str) -> bool:
    """Whether all implementations of a kind give results that are equal bit for bit."""
    return all(
        way.tolerance == 0
        for node in graph.operations
        for way in node.implementations
        if kind in kinds_of_way(node, way)
    )


def label_of(kind: str) -> str:
    """What a kind is called on the screen.

    >>> label_of("output-activated"), label_of(""), label_of("by hand")
    ('from outputs', 'default', 'by hand')
    """
    return EXPLAINED[kind][0] if kind in EXPLAINED else kind or "default"


def operations_again(schedule: Schedule, stage: int, value: int, use_computed: bool = True) -> tuple[int, ...]:
    """The operations, ascending, that ``stage`` would run to have ``value`` again, were it not kept into the stage.

    Their inputs are there where the stage retains them (S) or, with ``use_computed``, computes them anyway (R); every
    other input has to be had again as well. Persistent values are there from their first computation on.

    >>> from remat_explorer.instances import linear
    >>> graph = linear(2)
    >>> keep = Schedule(graph, np.eye(5), np.tril(np.ones((5, 5)), -1))
    >>> operations_again(keep, 3, 1)
    (1,)
    """
    available = schedule.retained_into(stage)
    if use_computed:
        available |= schedule.computed_in(stage)
    graph, needed, waiting = schedule.graph, set(), [int(schedule.graph.producer[value])]
    while waiting:
        k = waiting.pop()
        if k in needed:
            continue
        needed.add(k)
        waiting += [int(graph.producer[v]) for v in graph.inputs(k) if v == value or not available[v]]
    return tuple(sorted(needed))


def cost_of(graph: Graph, operations: tuple[int, ...]) -> float:
    """Cost of running operations once each, with their default implementations."""
    return float(graph.costs[list(operations)].sum())


def first_stages(schedule: Schedule) -> np.ndarray:
    """The stage that first computes each value, int64 of shape (values,); -1 where none does.

    >>> from remat_explorer.instances import linear
    >>> first_stages(Schedule(linear(1), np.eye(3), np.zeros((3, 3)))).tolist()
    [0, 1, 2]
    """
    first = np.full(len(schedule.graph.values), -1)
    for t, k, code in reversed(schedule.sequence):
        first[list(schedule.graph.outputs(k, code))] = t
    return first


@memoize_by_identity
def first_runs(schedule: Schedule) -> np.ndarray:
    """The stage that first runs each operation, int64 of shape (n,); 0 where none does."""
    first, (stage, operation, _) = np.zeros(schedule.graph.n, dtype=np.int64), schedule.computations
    first[operation[::-1]] = stage[::-1]  # of several entries the last one stays: the earliest stage
    return first


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


def statement_text(plan: Plan | TransferPlan, statement: Any) -> str:
    """A statement as people read it, with the name of its implementation where that is not the default one."""
    said = plan.text(statement)
    name = ""
    if isinstance(statement, Compute):
        name = way_name(plan.graph, statement.operation, statement.implementation)
    return f"{said} · {name}" if name else said
