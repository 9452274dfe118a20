"""A training graph on two rails, forward above backward, that wrap like a snake: where operations stand, and how drawn.

Every forward operation has a slot as wide as the backward operations that belong to it; these stand under it. The
forward pass follows the rail to its end, and the backward pass comes back on the rail below.

Boxes are as high as their bytes, and arcs lead over what they skip. Coordinates: x in columns, y in rows, downwards. In
every row forward operations rise from a band of names, and backward operations hang below it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from remat_explorer.graph import Graph

SHAPE = 5.0  # a row is about this many times as high as a column is wide: two rails, their arcs and names
LONG = 22.5  # a row is at most about this many times as wide as it is high
NEAR = 2  # an edge that reaches as many slots or more passes over an operation, and is worth drawing


@dataclass(frozen=True)
class SnakeLayout:
    """Places in columns and rows; even rows run to the right, odd rows to the left.

    Attributes:
        columns, rows: size of the whole.
        left: left edge of each operation, float of shape (n,), in columns.
        width: float of shape (n,), in columns; 1 for backward operations.
        row: int of shape (n,).
        rail: 0 for forward and 1 for backward operations, int of shape (n,).
        belongs: the forward operation that each operation stands by, itself if it is forward, int of shape (n,).
        skips: pairs (producer, last reader on the same rail) that pass over other operations, int of shape (m, 2).
    """

    columns: int
    rows: int
    left: np.ndarray
    width: np.ndarray
    row: np.ndarray
    rail: np.ndarray
    belongs: np.ndarray
    skips: np.ndarray

    @property
    def positions(self) -> np.ndarray:
        """Centres, float of shape (n, 2): x in columns, y in rails, two to a row."""
        return np.stack([self.left + self.width / 2, 2.0 * self.row + self.rail], axis=1)


def snake_layout(graph: Graph, columns: int | None = None, aspect: float = 4.5) -> SnakeLayout:
    """Lay out ``graph`` in rows.

    Args:
        graph: n operations.
        columns: columns in a row, or None for as many as suit ``aspect``; never less than the widest slot.
        aspect: width of the picture through its height.

    A backward operation belongs to the forward operation whose result it reads, the last one if it reads several.
    The backward rail runs in the order of execution, so where these disagree the order decides, and so it does for
    operations that read no forward value.

    >>> from remat_explorer.instances import linear
    >>> layout = snake_layout(linear(3), columns=2)
    >>> layout.rows, layout.positions[:3].tolist(), layout.belongs.tolist()
    (2, [[0.5, 0.0], [1.5, 0.0], [1.0, 2.0]], [0, 1, 2, 2, 2, 1, 0])
    """
    backward = graph.is_backward
    forward = np.flatnonzero(~backward)
    slot = np.full(graph.n, -1)
    slot[forward] = np.arange(len(forward))
    slot[backward] = _slots_of_backward(graph, slot)
    count = max(1, len(forward))
    widths = np.maximum(1, np.bincount(slot[backward], minlength=count))
    if columns is None:
        wanted = min((int(widths.sum()) / (SHAPE * aspect)) ** 0.5, LONG / aspect)
        columns = _least_columns(widths, max(1, round(wanted)))
    columns = max(columns, int(widths.max()))
    row_of, start = _wrap(widths, columns)

    left, width = start[slot].astype(float), np.where(backward, 1, widths[slot]).astype(float)
    behind = np.flatnonzero(backward)[::-1]  # the last to run stands first on the way of the forward pass
    behind = behind[np.argsort(slot[behind], kind="stable")]
    first = np.searchsorted(slot[behind], slot[behind])
    left[behind] += np.arange(len(behind)) - first
    row = row_of[slot]
    left = np.where(row % 2 == 1, columns - left - width, left)
    belongs = forward[slot] if len(forward) else np.arange(graph.n)
    skips = _skips(graph, slot)
    return SnakeLayout(columns, int(row_of[-1]) + 1, left, width, row, backward.astype(int), belongs, skips)


def _slots_of_backward(graph: Graph, slot: np.ndarray) -> np.ndarray:
    """The slot of each backward operation, in order of execution: never rising.

    The slots of the values that they read would rise in places, and one operation that reads an early value alone
    would pull all later ones with it. The longest sequence that never rises keeps its slots; others join the last.
    """
    producer_slot = slot[graph.producer] if len(graph.values) else slot[:0]
    operations = np.flatnonzero(graph.is_backward).tolist()
    last = max(0, int(slot.max(initial=0)))
    read = [max((int(producer_slot[v]) for v in graph.inputs(k)), default=-1) for k in operations]
    readers = [i for i, s in enumerate(read) if s >= 0]
    kept = {readers[i] for i in _longest_rising([-read[i] for i in readers])}
    slots = np.empty(len(operations), dtype=np.int64)
    current = last
    for i, s in enumerate(read):
        current = s if i in kept else current
        slots[i] = current
    return slots


def _longest_rising(numbers: Sequence[int]) -> list[int]:
    """Indices of a longest subsequence that never falls, by patience sorting."""
    ends: list[int] = []  # the smallest last number of a subsequence of each length
    at: list[int] = []
    before = [-1] * len(numbers)
    for i, number in enumerate(numbers):
        length = bisect_right(ends, number)
        before[i] = at[length - 1] if length else -1
        ends[length : length + 1] = [number]
        at[length : length + 1] = [i]
    chain, i = [], at[-1] if at else -1
    while i >= 0:
        chain.append(i)
        i = before[i]
    return chain[::-1]


def _wrap(widths: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Row of each slot, and columns before it in its row: each row takes what fits."""
    before = np.concatenate([[0], np.cumsum(widths)])
    row, start, first = np.empty(len(widths), dtype=np.int64), np.empty(len(widths), dtype=np.int64), 0
    rows = 0
    while first < len(widths):
        end = max(first + 1, int(np.searchsorted(before, before[first] + columns, side="right")) - 1)
        row[first:end], start[first:end] = rows, before[first:end] - before[first]
        first, rows = end, rows + 1
    return row, start


def _least_columns(widths: np.ndarray, rows: int) -> int:
    """The fewest columns with which ``rows`` rows hold every slot."""
    low, high = max(int(widths.max()), -(-int(widths.sum()) // rows)), int(widths.sum())
    while low < high:
        middle = (low + high) // 2
        if _wrap(widths, middle)[0][-1] < rows:
            high = middle
        else:
            low = middle + 1
    return low


def _skips(graph: Graph, slot: np.ndarray) -> np.ndarray:
    """One edge for each value that is read far away on its own rail: to the last reader there."""
    producer, backward = graph.producer.tolist(), graph.is_backward.tolist()
    for pass_ in (graph.is_backward, ~graph.is_backward):  # slots that are empty on the rail do not count
        slot = np.where(pass_, np.searchsorted(np.unique(slot[pass_]), slot), slot)
    slots = slot.tolist()
    edges = set()
    for v, readers in enumerate(graph.readers):
        maker = producer[v]
        last = next((k for k in reversed(readers) if backward[k] == backward[maker]), maker)
        if abs(slots[last] - slots[maker]) >= NEAR:
            edges.add((maker, last))
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


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

    >>> from remat_explorer.figures.snake import snake_layout
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
