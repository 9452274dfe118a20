"""A graph with choices as the joint problem sees it: fewer values and fewer implementations, same schedules.

As in `remat_explorer.solvers.condensed`, values that the same implementations write and the same implementations read
live and die together, so they are one *group*; outputs that nobody reads are workspace; persistent values depend on
the stage alone, since the first run of an operation writes them. Implementations that read what nothing writes are
impossible, and those that another one beats in everything are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.monet.codes import Codes, possible_codes


@dataclass(frozen=True)
class CondensedImplementation:
    """One implementation of an operation.

    Attributes:
        code: its number in the graph, from 1.
        inputs, outputs: groups that it reads and writes, ascending.
        cost: in the graph's unit.
        transient: bytes beyond the outputs while it runs: workspace, outputs that nobody reads, a new version of its
            persistent outputs.
        overwritten: the group with the value whose storage its output takes over where that value dies, or -1.
        credit: bytes of that value, 0 where there is none.
        persists: whether it writes all persistent values of its operation, as a first run must.
        in_place: whether it may run only where the overwritten value dies.
    """

    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    cost: float
    transient: int
    overwritten: int
    credit: int
    persists: bool
    in_place: bool = False


@dataclass(frozen=True, eq=False)
class CondensedChoices:
    """n operations with their ways, T stages, and groups of values between them.

    Attributes:
        graph: the graph this was made of.
        ways: of each operation; none for an optional operation that serves nothing.
        bytes: M, size of each group, int64 of shape (groups,).
        producer: the operation that writes each group, int of shape (groups,).
        base: resident bytes and persistent values of earlier operations, there all through a stage, int64 (T,).
        beaten: of each operation, the implementations that were left out because a way beats them: its code, by theirs.
    """

    graph: Graph
    ways: tuple[tuple[CondensedImplementation, ...], ...]
    bytes: np.ndarray
    producer: np.ndarray
    base: np.ndarray
    beaten: tuple[dict[int, int], ...]

    @staticmethod
    def of(graph: Graph, codes: Codes | None = None) -> CondensedChoices:
        """Condense ``graph``.

        Args:
            graph: the training graph.
            codes: the implementations that may be chosen; all if None.

        >>> from remat_explorer.instances import linear
        >>> chain = CondensedChoices.of(linear(2))
        >>> chain.ways[3][0].inputs, chain.ways[4][0].transient
        ((1, 2), 1)
        """
        possible = possible_codes(graph, codes)
        groups = _Groups(graph, possible)
        persistent = np.zeros(graph.n, dtype=np.int64)
        np.add.at(persistent, graph.producer[graph.persistent], graph.value_bytes[graph.persistent])
        before = graph.resident_bytes + np.cumsum(persistent) - persistent
        apart = [
            _without_beaten([groups.way(k, code) for code in chosen], groups.sizes) for k, chosen in enumerate(possible)
        ]
        return CondensedChoices(
            graph,
            tuple(tuple(kept) for kept, _ in apart),
            np.array(groups.sizes, dtype=np.int64),
            np.array(groups.producers, dtype=np.int64),
            before[graph.mandatory],
            tuple(beaten for _, beaten in apart),
        )

    @property
    def groups(self) -> int:
        """Number of groups of values."""
        return len(self.bytes)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each group the operations, ascending, that read it in any way."""
        readers: list[set[int]] = [set() for _ in range(self.groups)]
        for k, ways in enumerate(self.ways):
            for way in ways:
                for v in way.inputs:
                    readers[v].add(k)
        return tuple(tuple(sorted(operations)) for operations in readers)

    @cached_property
    def last_read(self) -> np.ndarray:
        """The last stage in which a read of each group can serve anything, int of shape (groups,); -1 if none can."""
        graph = self.graph
        until = np.full(graph.n, -1)
        until[graph.mandatory] = np.arange(graph.stages)
        last = np.full(self.groups, -1)
        for k in range(graph.n - 1, -1, -1):
            for way in self.ways[k]:
                for v in way.outputs:
                    until[k] = max(until[k], last[v])
            for way in self.ways[k]:
                for v in way.inputs:
                    last[v] = max(last[v], until[k])
        return last

    @cached_property
    def least_cost(self) -> float:
        """Cost of every mandatory operation once, in its cheapest way that is left: no schedule costs less."""
        return sum(min(way.cost for way in self.ways[k]) for k in self.graph.mandatory)

    def during(self, way: CondensedImplementation) -> int:
        """Bytes that an operation adds to memory while it runs this way, what it may overwrite not subtracted."""
        return int(self.bytes[list(way.outputs)].sum()) + way.transient

    @cached_property
    def least_memory(self) -> np.ndarray:
        """Memory that each stage needs at least, for its own operation alone, int64 of shape (T,)."""
        need = [
            min(int(self.bytes[list(way.inputs)].sum()) + self.during(way) - way.credit for way in self.ways[k])
            for k in self.graph.mandatory
        ]
        return self.base + np.array(need, dtype=np.int64)

    def schedule(self, R: np.ndarray) -> Schedule:
        """The leanest schedule with these runs: retained is only what is read later.

        Args:
            R: (T, n), 0 or the code of the implementation that runs.
        """
        return Schedule(self.graph, R, np.zeros((self.graph.stages, len(self.graph.values)), dtype=bool)).compact()


class _Groups:
    """Values that the same implementations write and read, numbered in the order of their operations."""

    def __init__(self, graph: Graph, codes: list[list[int]]) -> None:
        self.graph = graph
        reads: dict[int, list[tuple[int, int]]] = {}
        writes: dict[int, list[tuple[int, int]]] = {}
        for k, chosen in enumerate(codes):
            for code in chosen:
                way = graph.operations[k].implementations[code - 1]
                for v in way.inputs:
                    reads.setdefault(v, []).append((k, code))
                for v in way.outputs:
                    writes.setdefault(v, []).append((k, code))
        self.sizes: list[int] = []
        self.producers: list[int] = []
        self.of: dict[int, int] = {}
        numbers: dict[tuple, int] = {}
        for v in sorted(writes, key=lambda v: (graph.producer[v], v)):
            if v not in reads or graph.persistent[v]:
                continue
            self.of[v] = group = numbers.setdefault((tuple(writes[v]), tuple(reads[v])), len(numbers))
            if group == len(self.sizes):
                self.sizes.append(0)
                self.producers.append(int(graph.producer[v]))
            self.sizes[group] += graph.values[v].bytes

    def way(self, k: int, code: int) -> CondensedImplementation:
        """The implementation in terms of groups."""
        graph, made = self.graph, self.graph.operations[k].implementations[code - 1]
        alone = [v for v in made.outputs if v not in self.of]
        persistent = {v for way in graph.operations[k].implementations for v in way.outputs if graph.persistent[v]}
        return CondensedImplementation(
            code,
            tuple(sorted({self.of[v] for v in made.inputs if v in self.of})),
            tuple(sorted({self.of[v] for v in made.outputs if v in self.of})),
            made.cost,
            made.workspace + sum(graph.values[v].bytes for v in alone),
            -1 if made.overwrites is None else self.of[made.overwrites],
            0 if made.overwrites is None else graph.values[made.overwrites].bytes,
            persistent.issubset(made.outputs),
            made.in_place,
        )


def _without_beaten(
    ways: list[CondensedImplementation], sizes: list[int]
) -> tuple[list[CondensedImplementation], dict[int, int]]:
    """The ways that no other beats in everything, and of the others, by their codes, those of ways that beat them."""

    def during(way: CondensedImplementation) -> int:
        return way.transient + sum(sizes[v] for v in way.outputs)

    def beats(one: CondensedImplementation, other: CondensedImplementation) -> bool:
        lighter = set(one.inputs) <= set(other.inputs) and set(one.outputs) >= set(other.outputs)
        in_place = other.overwritten in (-1, one.overwritten) and other.credit <= one.credit
        thrifty = one.cost <= other.cost and during(one) <= during(other)
        anywhere = one.in_place <= other.in_place
        return lighter and in_place and anywhere and thrifty and one.persists >= other.persists

    kept: list[CondensedImplementation] = []
    for way in ways:
        if not any(beats(other, way) for other in kept):
            kept = [other for other in kept if not beats(way, other)] + [way]
    codes = {way.code for way in kept}
    beaten = [way for way in ways if way.code not in codes]
    return kept, {way.code: next(other.code for other in kept if beats(other, way)) for way in beaten}
