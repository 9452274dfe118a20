"""What stands on the rails of a snake layout: boxes as high as their bytes, arcs over what they skip, and names.

Coordinates: x in columns, y in rows, downwards. In every row forward operations rise from a band of names, and backward
operations hang below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from remat_explorer.figures.networks.snake_layout import SnakeLayout
from remat_explorer.graph import Graph

LEAST = 0.18  # height of the smallest box, as a share of the highest
MANY_ROWS = 5  # from which on rows are low, and arcs leave more of them to the boxes
LETTER, LINE = 5.5, 11.5  # width of a letter and height of a line of names, pixels
ENOUGH = 0.7  # share of a line of names that has to fit before the line is drawn


@dataclass(frozen=True)
class Label:
    """A name in the band of ``row``, from column ``left`` to ``right``; ``line`` 0 is a module, 1 an operator."""

    left: float
    right: float
    row: int
    line: int
    text: str


@dataclass(frozen=True)
class SnakePicture:
    """Boxes and names of a layout.

    Attributes:
        layout: where the operations stand.
        boxes: left, top, right and bottom of each operation, float of shape (n, 4).
        lanes: inside a row of height 1, the y of the highest forward box, the ends of the band of names, and the
            lowest backward box; beyond the first and the last is room for arcs.
        lines: lines of names in the band.
        labels: the names that fit.
    """

    layout: SnakeLayout
    boxes: np.ndarray
    lanes: tuple[float, float, float, float]
    lines: int
    labels: tuple[Label, ...]


def snake_picture(graph: Graph, layout: SnakeLayout, width: float = 1120, height: float = 250) -> SnakePicture:
    """Boxes and names for a picture of ``width`` x ``height`` pixels.

    The height of a box is the square root of the bytes that its operation writes, from a least height on, so that
    small operations can be seen and large ones compared. Each rail has its own scale: where the gradients of large
    parameters dwarf everything, the features can still be compared.

    >>> from remat_explorer.figures.networks.snake_layout import snake_layout
    >>> from remat_explorer.instances import linear
    >>> graph = linear(3)
    >>> [label.text for label in snake_picture(graph, snake_layout(graph)).labels]
    ['v0', 'v1', 'v2']
    """
    labels = _labels(graph, layout, width / layout.columns)
    lines = 2 if {label.line for label in labels} == {0, 1} else 1 if labels else 0
    band = min(0.34, max(lines * LINE + 3, 4) * layout.rows / height)
    lanes = _lanes(layout, band)
    written = np.array([graph.value_bytes[list(node.default.outputs)].sum() for node in graph.operations], dtype=float)
    top, upper, lower, bottom = lanes
    forward = layout.rail == 0
    largest = np.where(forward, written.max(where=forward, initial=1.0), written.max(where=~forward, initial=1.0))
    size = LEAST + (1 - LEAST) * np.sqrt(written / largest)
    boxes = np.stack(
        [
            layout.left,
            layout.row + np.where(forward, upper - size * (upper - top), lower),
            layout.left + layout.width,
            layout.row + np.where(forward, upper, lower + size * (bottom - lower)),
        ],
        axis=1,
    )
    return SnakePicture(layout, boxes, lanes, lines, labels)


def _lanes(layout: SnakeLayout, band: float) -> tuple[float, float, float, float]:
    """Room for arcs only on the sides that have some."""
    same = layout.row[layout.skips[:, 0]] == layout.row[layout.skips[:, 1]]
    rails = set(layout.rail[layout.skips[same, 0]].tolist())
    room = 0.15 if layout.rows < MANY_ROWS else 0.11
    above, below = room if 0 in rails else 0.05, room if 1 in rails else 0.05
    each = (1 - above - below - band) / 2
    return above, above + each, above + each + band, 1 - below


def arc(picture: SnakePicture, a: int, b: int) -> np.ndarray:
    """Control points of a cubic Bezier curve from operation ``a`` to ``b``, float of shape (4, 2).

    On one rail and row it passes outside the boxes, the higher the further it goes; else it runs between them.
    """
    layout, (top, _, _, bottom) = picture.layout, picture.lanes
    box, other, row = picture.boxes[a], picture.boxes[b], float(layout.row[a])
    x, end = (box[0] + box[2]) / 2, (other[0] + other[2]) / 2
    if layout.row[a] == layout.row[b] and layout.rail[a] == layout.rail[b]:
        reach = min(0.9, 0.35 + 2.0 * abs(end - x) / layout.columns)  # of the room outside the boxes
        if layout.rail[a] == 0:
            from_y, to_y, peak = box[1], other[1], row + top * (1 - reach)
        else:
            from_y, to_y, peak = box[3], other[3], row + bottom + (1 - bottom) * reach
        control = (4 * peak - (from_y + to_y) / 2) / 3
        return np.array([(x, from_y), (x, control), (end, control), (end, to_y)])
    down = (box[1] + box[3]) < (other[1] + other[3])
    from_y, to_y = (box[3], other[1]) if down else (box[1], other[3])
    middle = (from_y + to_y) / 2
    return np.array([(x, from_y), (x, middle), (end, middle), (end, to_y)])


def turns(picture: SnakePicture, bulge: float) -> list[tuple[int, np.ndarray]]:
    """Where the rails turn into the next row, and at the end of the forward pass into each other.

    Args:
        picture: of a layout with some rows.
        bulge: how far a turn reaches beyond the boxes, in columns.

    Returns:
        For each turn its rail and the control points of a cubic Bezier curve, float of shape (4, 2).
    """
    layout, (_, upper, lower, _) = picture.layout, picture.lanes
    curves = []
    for row in range(layout.rows - 1):
        edge, outwards = (layout.columns, 1) if row % 2 == 0 else (0, -1)
        for rail, y in enumerate((upper, lower)):
            x = edge + outwards * bulge * 4 / 3 * (1 if rail == 0 else 0.6)
            curves.append((rail, np.array([(edge, row + y), (x, row + y), (x, row + 1 + y), (edge, row + 1 + y)])))
    row, (start, end) = layout.rows - 1, extent(picture, layout.rows - 1)
    edge, x = (end, end + bulge * 2 / 3) if row % 2 == 0 else (start, start - bulge * 2 / 3)
    curves.append((0, np.array([(edge, row + upper), (x, row + upper), (x, row + lower), (edge, row + lower)])))
    return curves


def extent(picture: SnakePicture, row: int) -> tuple[float, float]:
    """The columns between which the rails of ``row`` run: its whole width, but in the last row."""
    layout = picture.layout
    if row < layout.rows - 1:
        return 0.0, float(layout.columns)
    left, _, right, _ = picture.boxes[layout.row == row].T
    return (0.0, float(right.max())) if row % 2 == 0 else (float(left.min()), float(layout.columns))


def kept_share(graph: Graph, kept: np.ndarray) -> np.ndarray:
    """Of what each operation writes, the share of the bytes that is kept, float of shape (n,).

    Args:
        graph: n operations.
        kept: which values are kept, bool of shape (values,).
    """
    held = np.bincount(graph.producer, weights=graph.value_bytes * kept, minlength=graph.n)
    written = np.bincount(graph.producer, weights=graph.value_bytes, minlength=graph.n)
    return held / np.maximum(written, 1)


def module_and_operator(name: str) -> tuple[str, str]:
    """The two parts of an operation's name.

    >>> module_and_operator("layers.0 conv2d + relu"), module_and_operator("log_softmax")
    (('layers.0', 'conv2d + relu'), ('', 'log_softmax'))
    """
    module, _, operator = name.partition(" ")
    return (module, operator) if operator and not operator.startswith(("+", "(")) else ("", name)


def _labels(graph: Graph, layout: SnakeLayout, column: float) -> tuple[Label, ...]:
    """Modules above, as deep as they fit, and operators below, if most of them fit; ``column`` in pixels."""
    forward = np.flatnonzero(layout.rail == 0)
    names = {int(k): module_and_operator(graph.operations[k].name) for k in forward}
    order = list(names)
    depth = max((len(module.split(".")) for module, _ in names.values()), default=0)
    lines = [list(_runs(layout, order, [_module(names[k][0], d) for k in order], 0)) for d in range(depth, 0, -1)]
    modules = next((line for line in lines if _fitting(line, column) >= ENOUGH), lines[-1] if lines else [])
    whole = {k: operator for k, (_, operator) in names.items()}
    operators = [
        Label(layout.left[k], layout.left[k] + layout.width[k], int(layout.row[k]), 1, _shortest(whole[k], room))
        for k in order
        for room in [layout.width[k] * column]
    ]
    shown = operators if _fitting(operators, column) >= ENOUGH else []
    return tuple(label for label in (*modules, *shown) if _fits(label, column))


def _runs(layout: SnakeLayout, order: list[int], texts: list[str], line: int) -> Iterator[Label]:
    """One label for neighbours in a row that have the same text."""
    for (text, row), run in groupby(zip(texts, order, strict=True), lambda pair: (pair[0], int(layout.row[pair[1]]))):
        members = [k for _, k in run]
        left = min(layout.left[k] for k in members)
        yield Label(left, max(layout.left[k] + layout.width[k] for k in members), row, line, text)


def _module(path: str, depth: int) -> str:
    return ".".join(path.split(".")[:depth])


def _shortest(operator: str, room: float) -> str:
    return operator if len(operator) * LETTER + 4 <= room else operator.split(" + ")[0]


def _fits(label: Label, column: float) -> bool:
    return bool(label.text) and len(label.text) * LETTER + 4 <= (label.right - label.left) * column


def _fitting(labels: list[Label], column: float) -> float:
    """Share of the columns under labels with a text whose label fits."""
    columns = dict.fromkeys((True, False), 0.0)
    for label in labels:
        columns[_fits(label, column)] += (label.right - label.left) * bool(label.text)
    return columns[True] / max(sum(columns.values()), 1.0)
