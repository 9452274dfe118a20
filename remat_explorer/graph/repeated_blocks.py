"""Blocks that a network repeats, such as the twelve of GPT-2, found by the structure of the graph alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.graph.block_agreement import agreeing
from remat_explorer.graph.graph import Graph
from remat_explorer.graph.neighbourhood import Neighbourhood
from remat_explorer.graph.repetitions import LEAST, repetitions
from remat_explorer.once import once

REACHES = (None, 0, 16, 64, 256, 1024)  # operations that an edge may span to tell operations apart; None is any


@dataclass(frozen=True, eq=False)
class RepeatedBlocks:
    """Copies of a block, in the order of the forward pass: what stands at the same place of each does the same.

    Between two neighbouring copies the k-th operations have the same operator, phase, implementations, bytes and, up to
    a tolerance, costs. They read values of the same places: of their own copy, of the one before or after it, or the
    very same value outside of the blocks; and so do the readers of their values. The first and the last copy may have
    anything outside where others have their neighbour.

    Attributes:
        forward: operations, int of shape (copies, places); each row ascends.
        backward: those of the backward pass that belong to each copy, int of shape (copies, places); a place more or
            less is none of the forward pass, and there may be none.
        values: what they write, int of shape (copies, values of a copy), in the order of the operations.
        names: what to call each copy; the module that it is, where that is known.
        label: what to call them all, such as "blocks.0–11".
    """

    forward: np.ndarray
    backward: np.ndarray
    values: np.ndarray
    names: tuple[str, ...]
    label: str

    @property
    def copies(self) -> int:
        """How many copies there are."""
        return len(self.forward)

    @cached_property
    def short_names(self) -> tuple[str, ...]:
        """What tells the names of copies apart, where it is a number: "3" of "blocks.3"; else their numbers from 0."""
        numbers = [re.findall(r"\d+", name) for name in self.names]
        if len({re.sub(r"\d+", "#", name) for name in self.names}) == 1:
            differing = [i for i, several in enumerate(zip(*numbers, strict=True)) if len(set(several)) > 1]
            if len(differing) == 1:
                return tuple(found[differing[0]] for found in numbers)
        return tuple(map(str, range(self.copies)))

    @cached_property
    def operations(self) -> np.ndarray:
        """Those of both passes, int of shape (copies, operations of a copy); each row ascends."""
        return np.hstack([self.forward, self.backward])

    @property
    def saved(self) -> int:
        """How many operations fewer there are where one copy stands for all."""
        return (self.copies - 1) * self.operations.shape[1]


@once
def repeated_blocks(graph: Graph) -> tuple[RepeatedBlocks, ...]:
    """The blocks that a graph repeats at least three times in a row, in the order of the forward pass.

    Of stretches that overlap, that which saves most operations is taken; the block is the shortest one, and it begins
    where fewest values pass from one copy to the next. Names decide nothing. It takes O(n log² n) steps for a graph of
    n operations, where few stretches overlap.

    Costs of a place may differ from their median by `block_agreement.TOLERANCE`.

    >>> from remat_explorer.instances import linear
    >>> (blocks,) = repeated_blocks(linear(8))  # the first layer reads nothing, and so is another one
    >>> blocks.copies, blocks.forward.tolist(), blocks.backward[0].tolist(), blocks.label
    (7, [[1], [2], [3], [4], [5], [6], [7]], [15], 'v1–v7')
    """
    near = Neighbourhood(graph)
    found: list[RepeatedBlocks] = []
    taken = np.zeros(graph.n, dtype=bool)
    proposed = sorted(_proposals(near), key=lambda rows: (-(len(rows) - 1) * rows.shape[1], rows.shape[1]))
    for forward in proposed:
        if taken[forward].any():
            continue
        for agreed in agreeing(near, forward):
            operations = np.hstack(agreed)
            if taken[operations].any():
                continue
            taken[operations] = True
            found.append(_blocks(graph, *agreed))
    return tuple(sorted(found, key=lambda blocks: int(blocks.forward[0, 0])))


def _proposals(near: Neighbourhood) -> Iterator[np.ndarray]:
    """Stretches of the forward pass that are periodic, as rows of operations."""
    met: set[tuple[int, int]] = set()  # period and first place
    for reach in REACHES:
        names = near.names(reach)
        for first, last, period in repetitions(names):
            place = first
            while place <= last:
                begin, end = near.stretch(place, period)
                if (period, begin) not in met and end - begin >= (LEAST - 1) * period:
                    met.add((period, begin))
                    yield from _cut(near, begin, end, period)
                place = max(place, end - period) + 1


def _cut(near: Neighbourhood, begin: int, end: int, period: int) -> Iterator[np.ndarray]:
    """Places ``begin`` to ``end`` - 1, which are periodic, as rows: as many as there are, and with few values between.

    The first row may reach in front of them, where its edges from outside need not be like those of the others.
    """
    starts = [*near.earlier_starts(begin, period), *range(begin, begin + period)]
    most = max((end - start) // period for start in starts)
    fitting = [start for start in starts if (end - start) // period == most]
    if most >= LEAST:
        start = min(fitting, key=lambda start: (near.crossing[start + period], start))
        yield near.forward[start : start + most * period].reshape(most, period)


def _blocks(graph: Graph, forward: np.ndarray, backward: np.ndarray) -> RepeatedBlocks:
    rows = np.hstack([forward, backward]).tolist()
    written = [[v for k in row for v in dict.fromkeys(_outputs(graph, k))] for row in rows]
    names = _names(graph, forward)
    return RepeatedBlocks(forward, backward, np.array(written, dtype=np.int64), names, _label(names))


def _outputs(graph: Graph, k: int) -> list[int]:
    return [v for way in graph.operations[k].implementations for v in way.outputs]


def _names(graph: Graph, forward: np.ndarray) -> tuple[str, ...]:
    """The module that holds all of a copy, where it differs from copy to copy; else its first operation."""

    def path(k: int) -> list[str]:
        details = graph.operations[k].details
        return (details.module if details and details.module else graph.operations[k].name).split(".")

    modules = []
    for row in forward.tolist():
        paths = [path(k) for k in row]
        shared = 0
        while paths and all(len(path) > shared and path[shared] == paths[0][shared] for path in paths):
            shared += 1
        modules.append(".".join(paths[0][:shared]) if paths else "")
    if all(modules) and len(set(modules)) == len(modules):
        return tuple(modules)
    return tuple(graph.operations[row[0]].name for row in forward.tolist())


def _label(names: tuple[str, ...]) -> str:
    """``blocks.0`` to ``blocks.11`` are "blocks.0–11".

    >>> _label(("a.0.b", "a.1.b", "a.2.b")), _label(("conv", "relu"))
    ('a.0–2.b', 'conv–relu')
    """
    parts = [re.split(r"(\d+)", name) for name in (names[0], names[-1])]
    differing = [i for i, (one, other) in enumerate(zip(*parts, strict=False)) if one != other]
    if len(parts[0]) == len(parts[1]) and len(differing) == 1 and differing[0] % 2 and differing[0] > 0:
        i = differing[0]
        if parts[0][i - 1].endswith("."):
            return "".join([*parts[0][:i], f"{parts[0][i]}–{parts[1][i]}", *parts[0][i + 1 :]])
    return f"{names[0]}–{names[-1]}"
