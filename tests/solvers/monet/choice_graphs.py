"""Small graphs with choices: random ones, and the chains of MONeT's reference."""

import random
from collections.abc import Callable
from dataclasses import replace

from remat_explorer.graph import Graph, Implementation, Operation, Value, operation

MIB = 2**20


def monet_chain(layers: int, reads: str) -> Graph:
    """The chain of `monet_chain.json`: a backward operation reads its layer's input, its output, or either."""
    unit, loss = MIB, layers
    values = [Value(f"x{i}", unit) for i in range(layers)] + [Value("loss", 0)]
    values += [Value(f"g{i}", unit if i else 0, persistent=i == 0) for i in range(layers)]
    operations = [operation(f"f{i}", "forward", [i - 1] if i else [], [i], 1.0) for i in range(layers)]
    operations.append(operation("loss", "backward", [layers - 1], [loss], 0.0))
    for i in range(layers - 1, -1, -1):
        after = [loss] if i == layers - 1 else [layers + 2 + i]
        of_input = Implementation((*after, *([i - 1] if i else [])), (layers + 1 + i,), 1.0, name="in")
        of_output = Implementation((*after, i), (layers + 1 + i,), 1.0 if reads == "out" else 1.5, name="out")
        ways = {"in": (of_input,), "out": (of_output,), "both": (of_input, of_output)}[reads]
        operations.append(Operation(f"b{i}", "backward", ways))
    return Graph(f"chain{layers}_{reads}", tuple(values), tuple(operations))


def normalized_chain(layers: int) -> Graph:
    """Convolutions with normalizations whose gradients read the input or the output, which costs the same."""
    size, before = 8, ()
    values: list[Value] = []
    operations: list[Operation] = []
    for i in range(layers):
        x, y, z = len(values), len(values) + 1, len(values) + 2
        values += [Value(f"{name}{i}", size) for name in "xyz"]
        operations.append(operation(f"convolution{i}", "forward", before, [x], 9.0))
        operations.append(operation(f"normalization{i}", "forward", [x], [y], 1.0))
        operations.append(operation(f"activation{i}", "forward", [y], [z], 1.0))
        before = (z,)
    g = len(values)
    values.append(Value("g", size))
    operations.append(operation("loss", "backward", before, [g], 1.0))
    for i in reversed(range(layers)):
        x, y, z = 3 * i, 3 * i + 1, 3 * i + 2
        values += [Value(f"{name}{i}", size) for name in ("gz", "gx")]
        ways = [Implementation((read, g + 1), (g + 2,), 1.0, name=name) for read, name in ((x, "in"), (y, "out"))]
        operations.append(operation(f"gradient{i}", "backward", [z, g], [g + 1], 9.0))
        operations.append(Operation(f"normalization{i} backward", "backward", tuple(ways)))
        g += 2
    return Graph("normalized", tuple(values), tuple(operations))


def changed(graph: Graph, change: Callable[[Implementation], Implementation]) -> Graph:
    """The graph with other implementations."""
    nodes = [replace(node, implementations=tuple(map(change, node.implementations))) for node in graph.operations]
    return replace(graph, operations=tuple(nodes))


def overwriting(graph: Graph) -> Graph:
    """The graph, where each implementation overwrites an input as large as one of its outputs, if it has one."""

    def taken(way: Implementation) -> int | None:
        sizes = {graph.values[v].bytes for v in way.outputs if not graph.values[v].persistent}
        fitting = [v for v in way.inputs if graph.values[v].bytes in sizes and not graph.values[v].persistent]
        return fitting[0] if fitting else None

    return changed(graph, lambda way: replace(way, overwrites=taken(way)))


def anywhere(graph: Graph) -> Graph:
    """The graph without the rule that something may run in place only."""
    return changed(graph, lambda way: replace(way, in_place=False))


def in_place_only(graph: Graph) -> Graph:
    """The graph, where what overwrites may do so only where its input dies; elsewhere it costs half as much again."""
    operations = []
    for node in graph.operations:
        ways = [
            w if w.overwrites is None else replace(w, overwrites=None, cost=1.5 * w.cost) for w in node.implementations
        ]
        only = [
            replace(w, in_place=True, name=f"{w.name} in place")
            for w in node.implementations
            if w.overwrites is not None
        ]
        operations.append(replace(node, implementations=(*ways, *only)))
    return replace(graph, operations=tuple(operations))


KINDS = {"bits": "masks", "renormalize": "statistics", "in": "activations", "fast": "algorithms"}  # of random graphs


def with_kinds(graph: Graph) -> Graph:
    """The same graph, each implementation of a kind by its name."""
    return changed(graph, lambda way: replace(way, kinds=(KINDS[way.name],) if way.name in KINDS else ()))


def random_graph(seed: int, layers: int = 3) -> Graph:
    """A training graph of a few layers with masks, saved statistics, overwriting, and implementations to choose."""
    rng = random.Random(seed)
    values: list[Value] = []
    operations: list[Operation] = []

    def value(name: str, size: int, persistent: bool = False) -> int:
        values.append(Value(name, size, persistent))
        return len(values) - 1

    before, backward = None, []
    for i in range(layers):
        size = rng.choice([4, 4, 8])
        y = value(f"y{i}", size)
        reads = [] if before is None else [before]
        ways = [Implementation(tuple(reads), (y,), float(rng.randint(1, 4)), rng.choice([0, 0, 3]))]
        gradient = [Implementation((y,), (), float(rng.randint(1, 4)), name="out")]
        kind = rng.choice(["plain", "mask", "saved", "either", "fast"])
        if kind == "saved":
            saved = value(f"saved{i}", 1)
            ways[0] = Implementation(tuple(reads), (y, saved), ways[0].cost)
            ways.append(Implementation((*reads, saved), (y,), 0.5, name="renormalize"))
            gradient = [Implementation((y, saved), (), 2.0)]
        if kind == "fast":
            ways.append(Implementation(tuple(reads), (y,), ways[0].cost / 2, ways[0].workspace + 4, name="fast"))
        operations.append(Operation(f"f{i}", "forward", tuple(ways)))
        if kind == "mask":
            mask = value(f"mask{i}", 1)
            makers = [Implementation((y,), (mask,), 0.25, name="from y")]
            if before is not None and rng.random() < 0.5:
                makers.append(Implementation((before,), (mask,), 0.5, name="from x"))
            operations.append(Operation(f"mask{i}", "forward", tuple(makers), optional=True))
            gradient.append(Implementation((mask,), (), float(rng.randint(1, 4)), name="bits"))
        if kind == "either" and before is not None:
            gradient.append(Implementation((before,), (), float(rng.randint(1, 4)), rng.choice([0, 2]), name="in"))
        backward.append((i, size, gradient, before))
        before = y
    after, last = value("loss", 1), before
    operations.append(operation("loss", "backward", [] if last is None else [last], [after], 1.0))
    for i, _, gradient, x in reversed(backward):
        if rng.random() < 0.5:
            kept = value(f"w{i}", rng.choice([1, 2]), persistent=True)
            operations.append(operation(f"w{i}", "backward", [after, *([] if x is None else [x])], [kept], 1.0))
        out = value(f"g{i}", size := rng.choice([2, 4, 8]), persistent=i == 0)
        in_place = rng.random() < 0.5 and values[after].bytes == size
        ways = [
            Implementation((after, *way.inputs), (out,), way.cost, way.workspace, way.name, after if in_place else None)
            for way in gradient
        ]
        operations.append(Operation(f"b{i}", "backward", tuple(ways)))
        after = out
    return Graph(f"random{seed}", tuple(values), tuple(operations), rng.choice([0, 5]))
