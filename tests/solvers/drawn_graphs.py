"""Small graphs that hypothesis draws and shrinks: all that a graph file can say, little of each; chains; blocks."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from remat_explorer.graph import Graph, Operation, Value, operation
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.condensed_graph import largest_operation
from tests.thorough import thorough_but

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


@st.composite
def chains(draw: st.DrawFn, most_layers: int = 9, sizes: tuple[int, int] = (0, 9)) -> Graph:
    """A path of forward operations, and backward operations that read a layer's input, its output, or both."""
    values: list[Value] = []
    operations: list[Operation] = []
    size, cost, some = st.integers(*sizes), st.integers(0, 5), st.booleans()

    def add(phase, reads: list[int], writes: int, persistent: bool) -> list[int]:
        made = list(range(len(values), len(values) + writes))
        values.extend(Value(f"v{v}", draw(size)) for v in made)
        if persistent:
            values.append(Value(f"v{len(values)}", draw(size), persistent=True))
        written = [*made, len(values) - 1] if persistent else made
        workspace = draw(st.sampled_from((0, 0, 4)))
        operations.append(operation(f"o{len(operations)}", phase, reads, written, draw(cost), workspace))
        return made

    layers: list[list[int]] = []
    for _ in range(draw(st.integers(1, most_layers))):
        layers.append(add("forward", layers[-1] if layers else [], draw(st.integers(1, 2)), draw(some)))
    gradient: list[int] = []
    for i in reversed(range(len(layers))):
        for _ in range(draw(st.integers(1, 2))):
            saved = [v for layer in layers[max(i - 1, 0) : i + 1] for v in layer if draw(some)]
            made = add("backward", sorted({*gradient, *saved}), 1, draw(some))
        gradient = made
    return Graph("drawn chain", tuple(values), tuple(operations), resident_bytes=draw(size))


def heterogeneous_chain(seed: int, layers: int) -> Graph:
    """Layers of random cost and size; a gradient reads the layer's input, sometimes also its output."""
    random = np.random.default_rng(seed)
    values = [Value(f"v{k}", int(random.integers(1, 6))) for k in range(2 * layers + 1)]
    operations = []
    for k in range(layers):
        operations.append(operation(f"v{k}", "forward", [k - 1] if k else [], [k], int(random.integers(1, 6))))
    operations.append(operation("loss", "backward", [layers - 1], [layers], 1))
    for i in reversed(range(layers)):
        k = 2 * layers - i
        reads = {k - 1} | ({i - 1} if i else set()) | ({i} if random.random() < 0.3 else set())
        operations.append(operation(f"v{k}", "backward", sorted(reads), [k], int(random.integers(1, 8))))
    return Graph(f"chain{seed}", tuple(values), tuple(operations))


@st.composite
def residual_graphs(draw: st.DrawFn, most_blocks: int = 3, most_operations: int = 11) -> Graph:
    """A stem, blocks x + f(x), perhaps with two operations beside each other in f, and the backward pass of all.

    The gradient of a block's result is read where that of f begins and where the two are added.
    """
    values: list[Value] = []
    operations: list[Operation] = []
    size, cost = st.sampled_from((1, 1, 2, 3)), st.sampled_from((0, 1, 1, 2, 4))

    def add(phase, reads: list[int], persistent: bool = False) -> int:
        values.append(Value(f"v{len(values)}", draw(size)))
        writes = [len(values) - 1]
        if persistent:
            values.append(Value(f"v{len(values)}", draw(st.sampled_from((1, 2))), persistent=True))
            writes.append(len(values) - 1)
        operations.append(operation(f"o{len(operations)}", phase, sorted(set(reads)), writes, draw(cost)))
        return writes[0]

    x = add("forward", [])
    blocks: list[tuple[int, list[int]]] = []
    room = most_operations - 2  # the stem, and the loss's gradient
    for _ in range(draw(st.integers(1, most_blocks))):
        count = draw(st.integers(1, 3))  # of operations in f; three: two beside each other, and one that reads both
        skips = draw(st.booleans())
        room -= 2 * count + 2 * skips
        if room < 0:
            break
        inside = [add("forward", [x])]
        if count > 1:
            inside.append(add("forward", [x] if count == 3 else inside))
        if count == 3:
            inside.append(add("forward", inside))
        blocks.append((x, inside))
        x = add("forward", [x, inside[-1]]) if skips else inside[-1]
    gradient = add("backward", [x])
    for before, inside in reversed(blocks):
        skips = x != inside[-1]
        inner = gradient
        for i in reversed(range(len(inside))):
            saved = [inside[i]] * draw(st.booleans()) + [inside[i - 1] if i else before] * draw(st.booleans())
            inner = add("backward", [inner, *saved], draw(st.booleans()))
        gradient = add("backward", [gradient, inner]) if skips else inner
        x = before
    return Graph("residual blocks", tuple(values), tuple(operations), resident_bytes=draw(st.sampled_from((0, 1))))


# the same graphs every time, and no limit on the time for each
DRAWN = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def drawn(graphs: st.SearchStrategy, usual: int = 60, thorough: int = 0) -> Callable[[Callable], Callable[[int], None]]:
    """Decorator of a test that is asked of so many drawn graphs, or problems, and of more in `make thorough`."""

    def decorated(test: Callable) -> Callable[[int], None]:
        def run(examples: int) -> None:
            settings(DRAWN, max_examples=examples)(given(graphs)(test))()

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        cases = [usual, thorough] if thorough else [usual]
        return pytest.mark.parametrize("examples", thorough_but(cases, usual))(run)

    return decorated
