"""R, S and U as the bytes that the browser is sent, and the texts of its hover."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from remat_explorer.explanations.choices import kinds_in, kinds_of_codes, label_of
from remat_explorer.figures.implementation_images import implementation_colours
from remat_explorer.figures.schedule_heatmap import difference, kinds_of_computations
from remat_explorer.graph import Graph
from remat_explorer.graph.repeated_blocks import repeated_blocks
from remat_explorer.quantities import format_seconds
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import memory_before

LEVELS = 65535  # U travels as 16 bits: fine enough for three digits, a quarter of int64
COMPUTATIONS = 4  # of computation; a cell of R is its kind plus 4 times the number of the implementation


@dataclass(frozen=True)
class MatrixCells:
    """The matrices of a schedule, as small as they get without losing anything: what is there, row by row.

    Attributes:
        runs, S: what `Schedule.row_lists` says of R and S.
        R: one byte for each computation in order, the kind of `computation_kinds` plus `COMPUTATIONS` times the
            implementation.
        U: of these cells, little-endian 16-bit, the share of ``largest`` times `LEVELS`, at least 1: first the memory
            that is held before each computation, back to the stage's one before, then the memory while each runs.
        largest: bytes of the highest level.
    """

    runs: bytes
    R: bytes
    S: bytes
    U: bytes
    largest: float

    @staticmethod
    def of(schedule: Schedule) -> MatrixCells:
        """The cells of a schedule.

        >>> from remat_explorer.instances import linear
        >>> cells = MatrixCells.of(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)))
        >>> [np.frombuffer(sent, "<u4").tolist() for sent in (cells.runs, cells.S)], list(cells.R)
        ([[3, 1, 1, 1, 0, 1, 2], [3, 0, 1, 1, 0, 1]], [5, 6, 6])
        """
        computations, held = schedule.computations, schedule.held
        shown = np.concatenate([memory_before(computations, held), held.during])
        largest = float(shown.max()) if shown.size else 0.0
        levels = np.maximum(1, np.rint(shown * (LEVELS / max(largest, 1.0))))
        kinds = kinds_of_computations(schedule) + computations.implementation * np.uint8(COMPUTATIONS)
        runs, S = schedule.row_lists()
        return MatrixCells(
            runs=runs,
            R=kinds.tobytes(),
            S=S,
            U=levels.astype("<u2").tobytes(),
            largest=largest,
        )


@dataclass(frozen=True)
class Frame:
    """A schedule of the trade-off curve, as small as it gets: the page draws it without asking for it.

    Attributes:
        peak: bytes; it is shown for budgets from here on.
        rows: stages.
        largest: the attribute of `MatrixCells`.
        lengths: of runs, R, S and U in bytes.
        packed: these, one behind the other, as a zlib stream.
    """

    peak: int
    rows: int
    largest: float
    lengths: tuple[int, int, int, int]
    packed: bytes

    @staticmethod
    def of(schedule: Schedule, peak: int) -> Frame:
        """The frame of a schedule with that peak.

        >>> from remat_explorer.instances import linear
        >>> Frame.of(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)), 3).lengths
        (28, 3, 24, 12)
        """
        cells = MatrixCells.of(schedule)
        parts = (cells.runs, cells.R, cells.S, cells.U)
        runs, R, S, U = map(len, parts)
        return Frame(peak, schedule.stages, cells.largest, (runs, R, S, U), zlib.compress(b"".join(parts)))


def difference_planes(first: Schedule, second: Schedule) -> tuple[bytes, bytes, int]:
    """What `difference` says of R and of S, and the number of stages.

    Each code from 0 to 3 is two bits in two planes, the low one first; rows are padded to bytes.
    """
    cells = difference(first, second)
    return _planes(cells.R), _planes(cells.S), len(cells.R)


def _planes(codes: np.ndarray) -> bytes:
    return b"".join(np.packbits(codes >> bit & 1, axis=1).tobytes() for bit in (0, 1))


def labels(graph: Graph) -> tuple[list[list[Any]], list[list[Any]]]:
    """What the hover says: of operations and of values.

    Returns:
        Operations as (name, phase, cost, first output or -1, names of the implementations where there are several,
        places of their kinds among `kind_colours`), and values as (name, bytes, producer).
    """
    place = {kind: i for i, kind in enumerate(("", *kinds_in(graph)))}
    operations = [
        [
            node.name,
            node.phase,
            _cost(node.default.cost),
            node.default.outputs[0] if node.default.outputs else -1,
            [way.name for way in node.implementations] if len(node.implementations) > 1 else [],
            [place[kind] for kind in kinds] if len(place) > 1 else [],
        ]
        for node, kinds in zip(graph.operations, kinds_of_codes(graph), strict=True)
    ]
    values = [[value.name, value.bytes, int(graph.producer[v])] for v, value in enumerate(graph.values)]
    return operations, values


def folded_blocks(graph: Graph) -> list[dict[str, Any]]:
    """The blocks that a graph repeats: label, the first copy's name, what to call each copy beside the label, and
    operations and values of each copy.

    >>> from remat_explorer.instances import linear
    >>> (block,) = folded_blocks(linear(4))
    >>> block["label"], block["short"], block["operations"]
    ('v1–v3', ['1', '2', '3'], [[1, 7], [2, 6], [3, 5]])
    """
    return [
        {
            "label": blocks.label,
            "name": blocks.names[0],
            "short": list(blocks.short_names),
            "operations": blocks.operations.tolist(),
            "values": blocks.values.tolist(),
        }
        for blocks in repeated_blocks(graph)
    ]


def kind_colours(graph: Graph) -> list[list[str]]:
    """The kinds of a graph's implementations, the default one first: label, colour on light and on dark ground.

    >>> from remat_explorer.instances import linear
    >>> kind_colours(linear(1))
    [['default', '#B5B5B5', '#6B6F76']]
    """
    kinds = ("", *kinds_in(graph))
    light, dark = implementation_colours(kinds, "light"), implementation_colours(kinds, "dark")
    return [[label_of(kind), light[kind], dark[kind]] for kind in kinds]


def _cost(cost: float) -> str:
    """Costs of captured graphs are seconds; those of the teaching graphs are whole units."""
    return f"cost {cost:g}" if cost == int(cost) and cost > 0 else format_seconds(cost)
