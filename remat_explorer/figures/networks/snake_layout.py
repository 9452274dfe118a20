"""Where the operations of a training graph stand: two rails, forward above backward, that wrap like a snake.

Every forward operation has a slot as wide as the backward operations that belong to it; these stand under it. The
forward pass follows the rail to its end, and the backward pass comes back on the rail below.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

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
