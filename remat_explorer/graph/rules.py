"""What makes a graph a graph: sizes and costs that are possible, one producer for each value, and no cycle.

Where operations have several implementations, or are optional, plain execution must still be possible: see
`_check_choices`.
"""

from __future__ import annotations

from remat_explorer.entry_checks import require_bytes, require_number, require_text
from remat_explorer.errors import GraphError, shown
from remat_explorer.graph.parts import Contents, Implementation, Operation
from remat_explorer.quantities import MOST_BYTES, MOST_COST, format_bytes

MOST_IMPLEMENTATIONS = 9  # one digit per operation in the solution file


def check_graph(graph: Contents) -> None:
    """Refuse a graph that breaks a rule."""
    require_text(graph.name, "the graph's name", GraphError)
    require_bytes(graph.resident_bytes, "resident_bytes", GraphError)
    if not graph.operations:
        raise GraphError(f"graph {graph.name!r} has no operations")
    for node in graph.operations:
        _check_operation(graph, node)
    _check_values(graph)
    _check_totals(graph)
    if graph.has_choices:
        _check_choices(graph)


def _check_operation(graph: Contents, node: Operation) -> None:
    require_text(node.name, "the name of an operation", GraphError)
    if node.phase not in ("forward", "backward"):
        raise GraphError(f"operation {node.name!r} has phase {shown(node.phase)}; expected 'forward' or 'backward'")
    if not 1 <= len(node.implementations) <= MOST_IMPLEMENTATIONS:
        raise GraphError(f"operation {node.name!r} has {len(node.implementations)} implementations; expected 1 to 9")
    for way in node.implementations:
        require_number(way.cost, f"the cost of operation {node.name!r}", GraphError)
        require_bytes(way.workspace, f"the workspace of operation {node.name!r}", GraphError)
        require_number(way.tolerance, f"the tolerance of operation {node.name!r}", GraphError)
        for text in (way.name, *way.kinds):
            require_text(text, f"a name or kind of an implementation of operation {node.name!r}", GraphError)
        if "" in way.kinds or len(set(way.kinds)) < len(way.kinds):
            raise GraphError(f"operation {node.name!r} has kinds {way.kinds!r}; expected different names, none empty")
        for v in (*way.inputs, *way.outputs):
            if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < len(graph.values):
                raise GraphError(f"operation {node.name!r} names value {v!r}; ids are 0 to {len(graph.values) - 1}")
        if len(set(way.inputs)) < len(way.inputs) or len(set(way.outputs)) < len(way.outputs):
            raise GraphError(f"operation {node.name!r} lists a value twice: {way.inputs} -> {way.outputs}")
        if way.overwrites is not None:
            _check_overwriting(graph, node.name, way)
        if way.in_place is not False:
            _check_in_place(graph, node, way)


def _check_overwriting(graph: Contents, name: str, way: Implementation) -> None:
    """One output can take over the storage of an input that may die, and that is as large as the output."""
    v = way.overwrites
    if isinstance(v, bool) or not isinstance(v, int) or v not in way.inputs:
        raise GraphError(f"operation {name!r} overwrites {v!r}, which is none of its inputs {way.inputs}")
    value = graph.values[v]
    if value.persistent:
        raise GraphError(f"operation {name!r} overwrites the persistent value {value.name!r}")
    sizes = [graph.values[v].bytes for v in way.outputs]
    if value.bytes not in sizes:
        raise GraphError(
            f"operation {name!r} overwrites {value.name!r} of {value.bytes} bytes, but its outputs have {sizes} bytes; "
            "one must have as many, to take over its storage"
        )


def _check_in_place(graph: Contents, node: Operation, way: Implementation) -> None:
    """What may run in place only needs something that runs elsewhere, for less to read and more to write."""
    name = f"implementation {way.name!r} of operation {node.name!r}"
    if way.in_place is not True:
        raise GraphError(f"{name} has in_place {shown(way.in_place)}; expected True or False")
    if way.overwrites is None:
        raise GraphError(f"{name} may run in place only, but overwrites nothing")
    if way is node.default:
        raise GraphError(f"{name} may run in place only; the default implementation must be able to run wherever it is")
    sizes = [(graph.values[v].bytes, graph.values[v].persistent) for v in way.outputs]
    if (graph.values[way.overwrites].bytes, False) not in sizes:
        raise GraphError(f"{name} may run in place only, but only a persistent output could take over the storage")
    if not any(stands_in(other, way) for other in node.implementations):
        raise GraphError(
            f"{name} may run in place only, and no other implementation, of the same kinds or fewer, reads no more and "
            "writes no less; there must be one for where the input lives on"
        )


def stands_in(other: Implementation, way: Implementation) -> bool:
    """Whether an implementation can run instead of one that may run in place only, and is allowed where that is."""
    able = not other.in_place and set(other.inputs) <= set(way.inputs) and set(other.outputs) >= set(way.outputs)
    return able and set(other.kinds) <= set(way.kinds) and other.tolerance <= way.tolerance


def _check_values(graph: Contents) -> None:
    producer: dict[int, int] = {}
    for k, node in enumerate(graph.operations):
        for v in {v for way in node.implementations for v in way.outputs}:
            if v in producer:
                first = graph.operations[producer[v]].name
                raise GraphError(f"value {graph.values[v].name!r} is produced by {first!r} and by {node.name!r}")
            producer[v] = k
    for v, value in enumerate(graph.values):
        if v not in producer:
            raise GraphError(f"value {value.name!r} is produced by no operation")
    for k, node in enumerate(graph.operations):
        for v in {v for way in node.implementations for v in way.inputs}:
            if producer[v] > k or (producer[v] == k and not _reads_an_earlier_run(node, v)):
                late = graph.operations[producer[v]].name
                raise GraphError(
                    f"operation {node.name!r} (number {k}) reads {graph.values[v].name!r}, which {late!r} "
                    f"(number {producer[v]}) produces: a cycle, or operations that are not in topological order"
                )


def _check_totals(graph: Contents) -> None:
    """Bytes and costs must be such that their sums can be calculated with, however often an operation runs again."""
    size = sum(value.bytes for value in graph.values)
    workspace = max(way.workspace for node in graph.operations for way in node.implementations)
    if graph.resident_bytes + size + workspace > MOST_BYTES:
        largest = max(graph.values, key=lambda value: value.bytes, default=None)
        name = "" if largest is None else f", {format_bytes(largest.bytes)} of it for {largest.name!r}"
        raise GraphError(
            f"graph {graph.name!r} has values of {format_bytes(size)} in all{name}, besides "
            f"{format_bytes(graph.resident_bytes)} resident and {format_bytes(workspace)} of workspace; together that "
            f"is more than {format_bytes(MOST_BYTES)}, the largest supported number; give bytes, not bits or such"
        )
    costs = [max(float(way.cost) for way in node.implementations) for node in graph.operations]
    runs = len(costs)  # a stage runs an operation once, and there are no more stages than operations
    if sum(costs) * runs > MOST_COST:
        dearest = sorted(range(runs), key=lambda k: -costs[k])[:3]
        names = ", ".join(f"{graph.operations[k].name!r} {costs[k]:.3g}" for k in dearest)
        raise GraphError(
            f"the costs of graph {graph.name!r} are too large to be added up, with {runs} runs of each operation: "
            f"{names}; give all costs in a larger unit, so that their sum is at most {MOST_COST / runs:.3g}"
        )


def _reads_an_earlier_run(node: Operation, v: int) -> bool:
    """Whether all that read the operation's own value take it from an earlier run, in another implementation.

    So an implementation may compute again with the statistics that the default saved.
    """
    readers = [way for way in node.implementations if v in way.inputs]
    return node.default not in readers and all(v not in way.outputs for way in readers)


def _check_choices(graph: Contents) -> None:
    """Default implementations of mandatory operations must do without anything else, and write what persists."""
    plain = [node for node in graph.operations if not node.optional]
    if not plain:
        raise GraphError(f"graph {graph.name!r} has optional operations only; at least one must be mandatory")
    written = {v for node in plain for v in node.default.outputs}
    for node in plain:
        for v in node.default.inputs:
            if v not in written:
                raise GraphError(
                    f"the default implementation of {node.name!r} reads {graph.values[v].name!r}, which no default "
                    "implementation of a mandatory operation writes"
                )
    for v, value in enumerate(graph.values):
        if value.persistent and v not in written:
            raise GraphError(f"the persistent value {value.name!r} is written by no mandatory operation's default")
