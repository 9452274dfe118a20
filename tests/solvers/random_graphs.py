"""Random training graphs, the same for the same seed: any layers, and layers that overwrite."""

from dataclasses import replace

import numpy as np

from remat_explorer.graph import Graph, Phase, Value, operation


def random_graph(seed: int, layers: int) -> Graph:
    """Several outputs, skip connections, persistent values, workspace, resident bytes."""
    random = np.random.default_rng(seed)
    values: list[Value] = []
    operations = []
    saved: list[list[int]] = []

    def value(most: int, persistent: bool = False) -> int:
        values.append(Value(f"v{len(values)}", int(random.integers(1, most + 1)), persistent))
        return len(values) - 1

    def add(phase: Phase, reads: set[int], writes: list[int], cost: int, workspace: int = 0) -> None:
        operations.append(operation(f"o{len(operations)}", phase, sorted(reads), writes, cost, workspace))

    for i in range(layers):
        reads = {saved[i - 1][0]} if i else set()
        if i > 1 and random.random() < 0.4:
            reads.add(saved[int(random.integers(0, i - 1))][0])
        writes = [value(5)]
        if random.random() < 0.4:
            writes.append(value(3))
        saved.append(writes)
        statistics = [value(1, persistent=True)] if random.random() < 0.25 else []
        workspace = int(random.integers(0, 3)) if random.random() < 0.4 else 0
        add("forward", reads, writes + statistics, int(random.integers(1, 6)), workspace)
    gradient = value(1)
    add("backward", {saved[-1][0]}, [gradient], 1)
    for i in reversed(range(layers)):
        reads = {gradient} | {v for v in saved[i] if random.random() < 0.8}
        if i and random.random() < 0.6:
            reads.add(saved[i - 1][0])
        gradient = value(5)
        writes = [gradient] + ([value(1, persistent=True)] if random.random() < 0.6 else [])
        add("backward", reads, writes, int(random.integers(1, 8)))
    return Graph(f"random{seed}", tuple(values), tuple(operations), resident_bytes=int(random.integers(0, 4)))


def overwriting_graph(seed: int, layers: int) -> Graph:
    """Most operations of one output may overwrite an input."""
    graph, random = random_graph(seed, layers), np.random.default_rng(seed)
    values, operations = list(graph.values), []
    for node in graph.operations:
        way = node.default
        dying = [v for v in way.inputs if not values[v].persistent]
        if len(way.outputs) == 1 and dying and random.random() < 0.8:
            (output,), a = way.outputs, int(random.choice(dying))
            persistent = not graph.readers[output] and random.random() < 0.5
            values[output] = replace(values[output], bytes=values[a].bytes, persistent=persistent)
            way = replace(way, overwrites=a)
        operations.append(replace(node, implementations=(way,)))
    return replace(graph, values=tuple(values), operations=tuple(operations))
