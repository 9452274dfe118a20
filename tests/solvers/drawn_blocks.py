"""Residual blocks that hypothesis draws: operations beside each other, skips, and gradients that bypass a block."""

from __future__ import annotations

from hypothesis import strategies as st

from remat_explorer.graph import Graph, Operation, Value, operation


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
