"""Chains that are drawn: by hypothesis, with several outputs, persistent values and workspace, or by a seed."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from remat_explorer.graph import Graph, Operation, Value, operation


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
