"""The snake of a graph in which repeated blocks are folded: one box on either rail for all copies of a block."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

import numpy as np

from remat_explorer.errors import GraphError
from remat_explorer.figures.networks.snake_layout import snake_layout
from remat_explorer.figures.networks.snake_picture import SnakePicture, snake_picture
from remat_explorer.graph import Graph, Operation, Value, operation
from remat_explorer.graph.repeated_blocks import RepeatedBlocks

WIDE = 6  # columns of a folded block


def folded_picture(graph: Graph, blocks: Sequence[RepeatedBlocks]) -> SnakePicture | None:
    """Boxes of all operations, where those of a folded block and pass share one, as high as their largest.

    Args:
        graph: n operations.
        blocks: what is folded.

    Returns:
        The picture; its layout is that of the folded graph, but for ``skips``, which name operations of ``graph``, the
        first of a block for the block. None where operations between the copies of a block read and are read by them.

    >>> from remat_explorer.graph.repeated_blocks import repeated_blocks
    >>> from remat_explorer.instances import linear
    >>> picture = folded_picture(linear(8), repeated_blocks(linear(8)))
    >>> picture.boxes[1].tolist() == picture.boxes[7].tolist() != picture.boxes[0].tolist()
    True
    """
    try:
        folded, nodes = folded_graph(graph, blocks)
    except GraphError:
        return None
    layout = snake_layout(folded)
    drawn = snake_picture(folded, layout)
    first = np.full(folded.n, -1)
    first[nodes[::-1, 0]] = np.arange(graph.n)[::-1]  # the first operation of each node
    boxes = np.stack(
        [
            np.minimum(drawn.boxes[nodes[:, 0], 0], drawn.boxes[nodes[:, 1], 0]),
            drawn.boxes[nodes[:, 0], 1],
            np.maximum(drawn.boxes[nodes[:, 0], 2], drawn.boxes[nodes[:, 1], 2]),
            drawn.boxes[nodes[:, 0], 3],
        ],
        axis=1,
    )
    for a in np.flatnonzero(first < 0):  # the rest of a wide box
        first[a] = first[a - 1]
    skips = np.unique(first[layout.skips], axis=0) if len(layout.skips) else layout.skips
    return replace(drawn, boxes=boxes, layout=replace(layout, skips=skips[skips[:, 0] != skips[:, 1]]))


def folded_graph(graph: Graph, blocks: Sequence[RepeatedBlocks]) -> tuple[Graph, np.ndarray]:
    """A graph whose operations are those of ``graph``, and one or several for a folded block and pass.

    Returns:
        The graph, and the first and the last of its operations that each one of ``graph`` is in, int of shape (n, 2).

    Raises:
        GraphError: if there is no order in which what is folded runs at once.
    """
    block_of, last = np.full((graph.n, 2), -1), {}
    for number, block in enumerate(blocks):
        for phase, operations in enumerate((block.forward, block.backward)):
            block_of[operations] = (number, phase)
            last[number, phase] = int(operations.max(initial=-1))
    values: list[Value] = []
    made: list[Operation] = []
    nodes = np.zeros((graph.n, 2), dtype=np.int64)
    of_value: dict[int, int] = {}
    forward: dict[int, int] = {}  # the value of each block's box in the forward pass

    def add(name: str, phase: int, reads: list[int], size: int) -> None:
        values.append(Value(name, size))
        made.append(operation(name, "backward" if phase else "forward", reads, [len(values) - 1], 1))

    for k, node in enumerate(graph.operations):
        number, phase = block_of[k].tolist()
        if number < 0:
            reads, writes = _read(graph, [k], of_value), graph.outputs(k)
            add(node.name, int(graph.is_backward[k]), reads, int(graph.value_bytes[list(writes)].sum()))
            of_value |= dict.fromkeys(_written(graph, k), len(values) - 1)
            nodes[k] = len(made) - 1
            continue
        if k != last[number, phase]:
            continue
        members = (blocks[number].backward if phase else blocks[number].forward).ravel().tolist()
        size = max(int(graph.value_bytes[list(graph.outputs(member))].sum()) for member in members)
        inside = {v for member in members for v in _written(graph, member)}
        reads = _read(graph, members, of_value, inside)
        begin = len(made)
        for part in range(WIDE if phase else 1):
            under = [forward[number]] if phase else []  # it stands under the block's box of the forward pass
            add(
                f"{blocks[number].label} × {blocks[number].copies}",
                phase,
                sorted({*under, *reads}) if part == 0 else under,
                size,
            )
        forward.setdefault(number, len(values) - 1)
        of_value |= dict.fromkeys(inside, len(values) - 1)
        nodes[members] = begin, len(made) - 1
    return Graph(graph.name, tuple(values), tuple(made)), nodes


def _written(graph: Graph, k: int) -> list[int]:
    return [v for way in graph.operations[k].implementations for v in way.outputs]


def _read(graph: Graph, members: list[int], of_value: dict[int, int], inside: Set[int] = frozenset()) -> list[int]:
    read = {v for k in members for v in graph.inputs(k)} - inside
    if missing := [v for v in read if v not in of_value]:
        raise GraphError(f"{graph.names(sorted(missing)[:1])} is written between copies of a block that is folded")
    return sorted({of_value[v] for v in read})
