"""Chains that hypothesis draws: several outputs, persistent values, workspace, and layers of several gradients."""

from __future__ import annotations

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
