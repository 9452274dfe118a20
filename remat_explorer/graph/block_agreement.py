"""Whether copies of a block are alike: their kinds, their costs and their edges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from remat_explorer.graph.backward_rows import backward_rows
from remat_explorer.graph.neighbourhood import Neighbourhood
from remat_explorer.graph.repetitions import LEAST

TOLERANCE = 0.5  # of a cost, in relation to its median over all copies, or to the block's mean if that is more
Rows = np.ndarray  # operations, int of shape (copies, places)


def agreeing(near: Neighbourhood, forward: Rows) -> list[tuple[Rows, Rows]]:
    """The stretches of copies that are alike, with the backward operations of each.

    Args:
        near: the graph.
        forward: operations of the forward pass, a copy a row, which are alike in all but costs and readers.
    """
    ways = sorted(backward_rows(near, forward), key=lambda rows: -_promised(near, rows))
    best: list[tuple[Rows, Rows]] = []
    most = -1
    for rows in ways:
        if most >= _promised(near, rows) + _saved(forward):
            break
        found = _verified(near, forward, rows)
        saved = sum(_saved(*agreed) for agreed in found)
        if saved > most:
            best, most = found, saved
    return best


def _saved(*rows: Rows) -> int:
    return sum((len(some) - 1) * some.shape[1] for some in rows)


def _promised(near: Neighbourhood, backward: list[list[int]]) -> int:
    """How many backward operations would be saved if copies differed in nothing but the kinds of these."""
    numbers: dict[tuple[int, ...], int] = {}
    kinds = [numbers.setdefault(tuple(near.kinds[k] for k in row), len(numbers)) for row in backward]
    return sum((last - first) * len(backward[first]) for first, last in _stretches(kinds))


def _verified(near: Neighbourhood, forward: Rows, backward: list[list[int]]) -> list[tuple[Rows, Rows]]:
    """Stretches of copies without a break, found again and again: what lies outside of them has changed."""
    found, waiting = [], [(first, last) for first, last in _stretches([len(row) for row in backward])]
    while waiting:
        first, last = waiting.pop()
        copies = slice(first, last + 1)
        rows = forward[copies], np.array(backward[copies], dtype=np.int64).reshape(last + 1 - first, -1)
        breaks = _breaks(near, *rows)
        if not breaks:
            found.append(rows)
            continue
        edges = [0, *breaks, last + 1 - first]
        for begin, end in pairwise(edges):
            if end - begin >= LEAST:
                waiting.append((first + begin, first + end - 1))
    return found


def _stretches(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of at least `LEAST` equal numbers in a row."""
    first = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[first]:
            if i - first >= LEAST:
                yield first, i - 1
            first = i


def _breaks(near: Neighbourhood, forward: Rows, backward: Rows) -> list[int]:
    """The copies that are not like the one before."""
    rows = np.hstack([forward, backward])
    where = {k: (copy, place) for copy, row in enumerate(rows.tolist()) for place, k in enumerate(row)}
    kinds = np.array(near.kinds)[rows]
    costs = near.graph.costs[rows]
    median = np.median(costs, axis=0)
    dear = np.any(np.abs(costs - median) > TOLERANCE * np.maximum(median, median.mean()), axis=1)
    unlike = np.any(kinds[1:] != kinds[:-1], axis=1) | dear[1:] | dear[:-1]
    edges = [[_edges(near, where, copy, k) for k in row] for copy, row in enumerate(rows.tolist())]
    for copy in range(1, len(rows)):
        if not unlike[copy - 1]:
            pairs = zip(edges[copy - 1], edges[copy], strict=True)
            unlike[copy - 1] = not all(_same(one, other, copy - 1, len(rows)) for one, other in pairs)
    return (np.flatnonzero(unlike) + 1).tolist()


def _edges(near: Neighbourhood, where: dict[int, tuple[int, int]], copy: int, k: int) -> list[list[Any]]:
    """Where the inputs of an operation come from, each in a list of its own, and then who reads each of its values.

    An end in a copy is (how many copies later, place, slot); one outside is (None, value or operation, 0).
    """

    def end(operation: int, otherwise: int, slot: int) -> tuple[int | None, int, int]:
        if operation not in where:
            return None, otherwise, 0
        other, place = where[operation]
        return other - copy, place, slot

    inputs = [[end(edge.producer, edge.value, edge.slot)] for edge in near.inputs[k]]
    written = dict.fromkeys(v for way in near.graph.operations[k].implementations for v in way.outputs)
    readers = [[end(reader, reader, 0) for reader in near.graph.readers[v]] for v in written]
    return [*inputs, *readers]


def _same(one: list[list[Any]], other: list[list[Any]], copy: int, copies: int) -> bool:
    """Whether the edges of a place of ``copy`` are those of the next copy.

    Where one of both would have to reach behind the last or in front of the first copy, the other may have any edge
    outside.
    """

    def leaves(ends: list[Any], place: int) -> bool:
        return any(by is not None and not 0 <= place + by < copies for by, _, _ in ends)

    for mine, yours in zip(one, other, strict=True):
        loose = leaves(mine, copy + 1) or leaves(yours, copy)
        kept = [
            {(by, *rest) for by, *rest in ends if (not loose if by is None else 0 <= at + by < copies)}
            for ends, at in ((mine, copy + 1), (yours, copy))
        ]
        if kept[0] != kept[1]:
            return False
    return True
