"""Small graphs that hypothesis draws and shrinks: everything that a graph file can say, and little of each."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from remat_explorer.graph import Graph, Operation, Value, operation
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.condensed import largest_operation

SHARES = (0, 1, 2, 3, 4)  # fourths of the way from the largest operation to one byte less than keeping everything


@st.composite
def training_graphs(draw: st.DrawFn, most_layers: int = 4) -> Graph:
    """A forward pass with skips, a loss, and gradients that read what was saved, 2 layers + 1 operations.

    Several outputs, persistent and unread values, workspace, resident bytes, free operations, empty values, and outputs
    that take over the storage of an input.
    """
    small, cost = st.sampled_from((0, 0, 1, 3)), st.sampled_from((0, 1, 2, 5))
    size = st.sampled_from((0, 1, 2, 3, 4, 5))
    values: list[Value] = []
    operations: list[Operation] = []
    saved: list[list[int]] = []

    def value(persistent: bool = False) -> int:
        values.append(Value(f"v{len(values)}", draw(size), persistent))
        return len(values) - 1

    def chance(share: int) -> bool:
        return draw(st.sampled_from(range(5))) >= 5 - share

    def add(phase, reads: set[int], writes: list[int]) -> None:
        a = draw(st.sampled_from(sorted(reads))) if reads and len(writes) == 1 and chance(3) else None
        if a is not None and not values[a].persistent:
            values[writes[0]] = replace(values[writes[0]], bytes=values[a].bytes)
        else:
            a = None
        operations.append(operation(f"o{len(operations)}", phase, sorted(reads), writes, draw(cost), draw(small), a))

    layers = draw(st.sampled_from((most_layers, most_layers - 1, 2)))
    for i in range(layers):
        reads = {saved[i - 1][0]} if i else set()
        if i > 1 and chance(2):
            reads.add(draw(st.sampled_from(saved[: i - 1]))[0])
        writes = [value() for _ in range(1 + chance(1))]
        saved.append(writes)
        add("forward", reads, writes + [value(persistent=True) for _ in range(chance(1))])
    gradient = value(persistent=chance(1))
    add("backward", {saved[-1][0]}, [gradient])
    for i in reversed(range(layers)):
        reads = {gradient} | {v for v in saved[i] if chance(4)}
        if i and chance(3):
            reads.add(saved[i - 1][0])
        gradient = value()
        add("backward", reads, [gradient] + [value(persistent=True) for _ in range(chance(2))])
    return Graph("drawn", tuple(values), tuple(operations), resident_bytes=draw(small))


@st.composite
def loose_graphs(draw: st.DrawFn, most_operations: int = 5) -> Graph:
    """Operations that read any values before them, or none, so that the order of their first runs matters."""
    values: list[Value] = []
    operations: list[Operation] = []
    for k in range(draw(st.sampled_from(range(2, most_operations + 1)))):
        reads = draw(st.sets(st.sampled_from(range(len(values))), max_size=2)) if values else set()
        writes = range(len(values), len(values) + draw(st.sampled_from((1, 1, 2))))
        for v in writes:
            size, persistent = draw(st.sampled_from((1, 2, 3, 5))), draw(st.sampled_from((False, False, True)))
            values.append(Value(f"v{v}", size, persistent))
        cost, workspace = draw(st.sampled_from((1, 2, 5))), draw(st.sampled_from((0, 0, 3, 6)))
        operations.append(operation(f"o{k}", "forward", sorted(reads), writes, cost, workspace))
    return Graph("loose", tuple(values), tuple(operations))


@st.composite
def problems(draw: st.DrawFn, graphs: st.SearchStrategy[Graph]) -> tuple[Graph, int]:
    """A graph and a budget: mostly too little to keep everything, sometimes too little for one operation."""
    graph, share = draw(graphs), draw(st.sampled_from(SHARES))
    low, high = largest_operation(graph)[1], checkpoint_all_peak(graph) - 1
    assume(low <= high or share == 4)  # where one operation is the peak there is nothing to trade
    return graph, max(0, low + (high - low) * share // 4)
