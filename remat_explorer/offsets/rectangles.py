"""Lifetimes and sizes of what a plan holds in memory: one rectangle for each storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from remat_explorer.errors import ScheduleError, shown
from remat_explorer.plan import Free, Plan
from remat_explorer.quantities import MOST_BYTES

_NOTHING: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Rectangles:
    """Storages with their lifetimes. Empty ones are left out.

    Attributes:
        begin, end: lifetime of each in statements, half-open, int64 of shape (rectangles,).
        size: bytes of each, int64 of shape (rectangles,).
        values: the values that each holds, one after another; none for resident bytes and workspace.
        since: the statements from which on it holds each of them.
    """

    begin: np.ndarray
    end: np.ndarray
    size: np.ndarray
    values: tuple[tuple[int, ...], ...]
    since: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(plan: Plan, arrivals: Mapping[int, int] = _NOTHING) -> Rectangles:
        """The rectangles of a plan.

        Resident bytes are one over the whole time. A value lives from the statement that computes it up to the one
        that frees it, or to the end; computed again, it is another rectangle. Workspace, and an output that is
        dropped, last for their statement. An output that overwrites takes over the rectangle of its input. Where
        ``arrivals`` names a value for a statement, that begins to hold it, and does nothing else.

        Raises:
            ScheduleError: if a statement computes a value that is in memory.

        >>> from remat_explorer.instances import linear
        >>> found = Rectangles.of(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))
        >>> found.begin.tolist(), found.end.tolist(), found.size.tolist(), found.values
        ([0, 1, 2], [3, 4, 5], [1, 1, 1], ((0,), (1,), (2,)))
        """
        graph, bytes_of = plan.graph, plan.graph.value_bytes.tolist()
        last = max(len(plan.statements), 1)
        rows: list[tuple[int, int, int]] = []  # begin, end, bytes
        values: list[tuple[int, ...]] = []
        since: list[tuple[int, ...]] = []
        held: dict[int, int] = {}  # the rectangle of each value in memory

        def add(begin: int, end: int, size: int, *inside: int) -> None:
            if size:
                rows.append((begin, end, size))
                values.append(inside)
                since.append((begin,) * len(inside))

        add(0, last, graph.resident_bytes)
        for i, statement in enumerate(plan.statements):
            if i in arrivals:
                if bytes_of[arrivals[i]]:
                    held[arrivals[i]] = len(rows)
                    add(i, last, bytes_of[arrivals[i]], arrivals[i])
                continue
            if isinstance(statement, Free):
                if statement.value in held:
                    begin, _, size = rows[held[statement.value]]
                    rows[held.pop(statement.value)] = begin, i, size
                continue
            way = graph.operations[statement.operation].implementations[statement.implementation - 1]
            add(i, i + 1, way.workspace)
            heir = None
            if statement.overwrites is not None:
                heir = graph.heir(statement.operation, statement.implementation)
                if heir is not None and statement.overwrites in held:
                    held[heir] = held.pop(statement.overwrites)
                    values[held[heir]] += (heir,)
                    since[held[heir]] += (i,)
            for v in way.outputs:
                if v == heir or not bytes_of[v]:
                    continue
                if v in statement.drops:
                    add(i, i + 1, bytes_of[v], v)
                elif v in held:
                    name = shown(graph.values[v].name)
                    raise ScheduleError(f"statement {i} computes {name}, which is still in memory; free it before")
                else:
                    held[v] = len(rows)
                    add(i, last, bytes_of[v], v)
        begins, ends, sizes = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
        return Rectangles(begins, ends, sizes, tuple(values), tuple(since))

    @staticmethod
    def from_rows(rows: Sequence[tuple[int, int, int]]) -> Rectangles:
        """Rectangles that are given as (begin, end, bytes).

        Raises:
            ScheduleError: if one has no lifetime, or a number of bytes that cannot be calculated with.

        >>> Rectangles.from_rows([(0, 2, 10), (1, 3, 5)]).peak
        15
        """
        for begin, end, size in rows:
            if not begin < end or not 0 <= size <= MOST_BYTES:
                raise ScheduleError(
                    f"a rectangle from {shown(begin)} to {shown(end)} of {shown(size)} bytes is none; expected a "
                    "beginning below its end, and a number of bytes"
                )
        begins, ends, sizes = np.array([row for row in rows if row[2]], dtype=np.int64).reshape(-1, 3).T.copy()
        nothing = ((),) * len(sizes)
        return Rectangles(begins, ends, sizes, nothing, nothing)

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def peak(self) -> int:
        """Most bytes that live at a time."""
        return self.peak_of(self.size)

    def peak_of(self, size: np.ndarray) -> int:
        """The same if the rectangles had other sizes, int64 of shape (rectangles,)."""
        if not len(size):
            return 0
        times = np.concatenate([self.end, self.begin])
        changes = np.concatenate([-size, size])
        return int(np.cumsum(changes[np.argsort(times, kind="stable")]).max())  # what ends goes before what begins
