"""Blocks that a network repeats, such as the twelve of GPT-2, found by the structure of the graph alone.

Where a sequence says the same at least three times, one directly after the other, it repeats itself. That is found by
naming windows: those of 2w elements by the names of their halves, as suffix arrays are built by prefix doubling (Manber
and Myers, SIAM Journal on Computing 1993). Where windows that are as long as the period come back after exactly that
many elements, again and again, the sequence is periodic. Copies are then compared by kinds, costs and edges, and each
gets the backward operations that belong to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from remat_explorer.graph.graph import Graph
from remat_explorer.graph.neighbourhood import Neighbourhood
from remat_explorer.memoize import memoize_by_identity

MOST = 12  # operations between two copies of which each is tried as the first one of a copy


def backward_rows(near: Neighbourhood, forward: np.ndarray) -> Iterator[list[list[int]]]:
    """The backward operations of each copy, in every way to tell where one ends and the next one begins.

    An operation belongs to the copy that the last one of the forward values that it reads belongs to: the copy that
    writes the value, or the one that reads it last. Those that read gradients alone, or beside them only what was there
    before the first copy, belong where their neighbours do; of those between two copies, some join the copy before,
    and the others the one after.
    """
    copies = np.full(near.graph.n, -1)
    copies[forward] = np.arange(len(forward))[:, None]
    copy = copies.tolist()
    for ends in (near.written_at, _read_at(near, copy)):
        known: list[tuple[int, int | None]] = []
        for k in np.flatnonzero(near.graph.is_backward).tolist():
            read = [ends[edge.value] for edge in near.inputs[k] if ends[edge.value] >= forward[0, 0]]
            known.append((k, copy[max(read)] if read else None))
        runs = [(owner, [k for k, _ in run]) for owner, run in groupby(known, key=lambda entry: entry[1])]
        gaps = [len(run) for i, (owner, run) in enumerate(runs) if owner is None and _is_between(runs, i)]
        usual = Counter(gaps).most_common(1)[0][0] if gaps else 0
        for first in range(usual + 1) if usual <= MOST else (0, usual):
            yield _trimmed(near, _rows(runs, len(forward), first, usual - first))


def _read_at(near: Neighbourhood, copy: list[int]) -> list[int]:
    """The operation that reads each forward value last, of those in the copy that writes it and in the next one.

    What is written outside counts where it is written, unless one copy alone reads it.
    """
    ends = list(near.written_at)
    for v, k in enumerate(near.written_at):
        readers = near.forward_readers[v] if k >= 0 else []
        if k >= 0 and copy[k] < 0 and len({copy[reader] for reader in readers}) != 1:
            continue
        ends[v] = max([k, *(reader for reader in readers if copy[k] < 0 or copy[reader] in (copy[k], copy[k] + 1))])
    return ends


def _neighbours(runs: list[tuple[int | None, list[int]]], i: int) -> tuple[int, int]:
    """The copies before and after a run that belongs to none by itself, -1 for what is outside."""
    before = runs[i - 1][0] if i > 0 else -1
    after = runs[i + 1][0] if i + 1 < len(runs) else -1
    return -1 if before is None else before, -1 if after is None else after


def _is_between(runs: list[tuple[int | None, list[int]]], i: int) -> bool:
    before, after = _neighbours(runs, i)
    return before != after and before >= 0 and after >= 0


def _rows(runs: list[tuple[int | None, list[int]]], copies: int, first: int, last: int) -> list[list[int]]:
    """Where ``first`` operations between two copies join the one before, and ``last`` the one after."""
    rows: list[list[int]] = [[] for _ in range(copies)]
    for i, (owner, run) in enumerate(runs):
        if owner is not None:
            if owner >= 0:
                rows[owner] += run
            continue
        before, after = _neighbours(runs, i)
        if before == after and before >= 0:
            rows[before] += run
            continue
        taken = 0
        if before >= 0:
            rows[before] += run[:first]
            taken = min(first, len(run))
        if after >= 0:
            rows[after] += run[max(taken, len(run) - last) :]
    return rows


def _trimmed(near: Neighbourhood, rows: list[list[int]]) -> list[list[int]]:
    """Rows without what one of them alone has at an end: what follows the last block reads its values, too."""
    kinds = [tuple(near.kinds[k] for k in row) for row in rows]
    usual, _ = Counter(kinds).most_common(1)[0]
    size = len(usual)
    for row, own in zip(rows, kinds, strict=True):
        places = [at for at in (0, len(own) - size) if len(own) > size and own[at : at + size] == usual]
        if places:
            row[:] = row[places[-1] : places[-1] + size]
    return rows


LEAST = 3  # times that something has to be there


def repetitions(names: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Places of a sequence that are periodic, for the period that is least there, in O(n log² n).

    Every stretch that is at least `LEAST` periods long is met, at least once; neighbours of it may be met, too.
    """
    names = np.unique(names, return_inverse=True)[1].reshape(-1)
    length = 1
    while length <= len(names):
        for first, last, period in _returns(names, length):
            if last - first + 1 >= (LEAST - 1) * period:
                yield first, last, period
        if 2 * length > len(names):
            return
        pairs = names[:-length].astype(np.int64) * len(names) + names[length:]
        names = np.unique(pairs, return_inverse=True)[1].reshape(-1)
        length *= 2


def _returns(names: np.ndarray, length: int) -> Iterator[tuple[int, int, int]]:
    """Stretches in which each window comes back first after the same number of elements, about ``length``."""
    order = np.argsort(names, kind="stable")
    again = names[order[1:]] == names[order[:-1]]
    gap = np.zeros(len(names), dtype=np.int64)
    gap[order[:-1][again]] = (order[1:] - order[:-1])[again]
    gap[(2 * gap <= length) | (gap > 2 * length)] = 0  # shorter ones were met with shorter windows
    edges = np.flatnonzero(np.diff(gap)) + 1
    for first, end in zip([0, *edges.tolist()], [*edges.tolist(), len(gap)], strict=True):
        if gap[first]:
            yield first, end - 1 + length - 1, int(gap[first])


TOLERANCE = 0.5  # of a cost, in relation to its median over all copies, or to the block's mean if that is more
Rows = np.ndarray  # operations, int of shape (copies, places)


def agreeing(near: Neighbourhood, forward: Rows) -> list[tuple[Rows, Rows]]:
    """The stretches of copies that are alike, with the backward operations of each."""
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


@memoize_by_identity
def repeated_blocks(graph: Graph) -> tuple[RepeatedBlocks, ...]:
    """The blocks that a graph repeats at least three times in a row, in the order of the forward pass.

    Of stretches that overlap, that which saves most operations is taken; the block is the shortest one, and it begins
    where fewest values pass from one copy to the next. Names decide nothing. It takes O(n log² n) steps for a graph of
    n operations, where few stretches overlap.

    Costs of a place may differ from their median by `block_agreement.TOLERANCE`.
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
    label = _label(names)
    if backward.size and names == _first(graph, forward):  # no module has a name for both passes
        label += f", {_label(_first(graph, backward[::-1]))}"
    return RepeatedBlocks(forward, backward, np.array(written, dtype=np.int64), names, label)


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
    return _first(graph, forward)


def _first(graph: Graph, rows: np.ndarray) -> tuple[str, ...]:
    """The name of each copy's first operation."""
    return tuple(graph.operations[row[0]].name for row in rows.tolist())


def _label(names: tuple[str, ...]) -> str:
    """``blocks.0`` to ``blocks.11`` are "blocks.0–11"."""
    parts = [re.split(r"(\d+)", name) for name in (names[0], names[-1])]
    differing = [i for i, (one, other) in enumerate(zip(*parts, strict=False)) if one != other]
    if len(parts[0]) == len(parts[1]) and len(differing) == 1 and differing[0] % 2 and differing[0] > 0:
        i = differing[0]
        if parts[0][i - 1].endswith("."):
            return "".join([*parts[0][:i], f"{parts[0][i]}–{parts[1][i]}", *parts[0][i + 1 :]])
    return f"{names[0]}–{names[-1]}"
