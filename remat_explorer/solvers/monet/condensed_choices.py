"""A graph with choices as the joint problem sees it: fewer values and fewer implementations, same schedules.

As in `condensed_graph`, values that the same implementations write and the same implementations read
live and die together, so they are one *group*; outputs that nobody reads are workspace; persistent values depend on
the stage alone, since the first run of an operation writes them. Implementations that read what nothing writes are
impossible, and those that another one beats in everything are left out.

What must be in memory at some time in an interval between two moments, as sums of columns of a relaxation.

A group v is available in an interval, A(v), if it is in memory at the start, or is written in it by a first run or by
one that runs again. Shares of several ways must not add up to more than the inputs that they have in common allow:
half a run that reads x and half a run that reads y, where y is made of x again, would do with half of x. Two kinds of
rows see to that. Where several ways write v, a column w says whether any of them runs again,

    w[v] <= sum of x over the ways that write v,    w[v] <= A(u)  for what all of them read.

And where each way of a run reads one of some groups U, one of them is available, and the first that is was in memory at
the start, or was written without reading U:

    A(U) = sum over v in U of (s[v] + first runs that write v) + sum of x over the ways that write into U and do not
    read it >= 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.capture_options import KINDS
from remat_explorer.errors import SolverError, UnknownNameError, shown
from remat_explorer.graph import Graph, Implementation, stands_in
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.linear_expression import LinearExpression, require
from remat_explorer.solvers.milp import Milp

Codes = Sequence[Collection[int]]
"""For each operation the numbers, from 1, of the implementations that may be chosen."""


def allowed_codes(graph: Graph, implementations: str | Collection[str]) -> list[list[int]]:
    """The implementations that an option allows; an operation's default always is.

    ``implementations`` is "all"; "exact", those whose results are bit-equal; or names and kinds: one, several with
    commas between them, or a collection. An implementation of several kinds needs all of them.
    """
    if isinstance(implementations, str) and implementations in ("all", "exact"):
        chosen = frozenset()
    else:
        chosen = _named(graph, implementations)

    def allows(way: Implementation) -> bool:
        if implementations == "all":
            return True
        if implementations == "exact":
            return way.tolerance == 0
        return way.name in chosen or (way.kinds != () and chosen.issuperset(way.kinds))

    return [
        [
            code
            for code, way in enumerate(node.implementations, 1)
            if allows(way) or way is node.default or (node.optional and implementations != "exact")
        ]
        for node in graph.operations
    ]


def _named(graph: Graph, implementations: str | Collection[str]) -> frozenset[str]:
    """Names and kinds, once it is known that the graph has them.

    A kind that was captured is known even where no operation has an implementation of it; but graphs that were captured
    before implementations had kinds have none, whatever their options say.
    """
    if not isinstance(implementations, str) and not (
        isinstance(implementations, Collection) and all(isinstance(name, str) for name in implementations)
    ):
        raise SolverError(
            f'implementations is {shown(implementations)}; give "all", "exact", or names or kinds of implementations'
        )
    told = graph.options is not None and (graph.kinds or not graph.has_choices)
    captured = graph.options.implementations if graph.options is not None and told else ()
    names = {way.name for node in graph.operations for way in node.implementations}
    available = {*names, *graph.kinds, *captured}
    if isinstance(implementations, str):
        whole = implementations in available  # names may have commas of their own
        implementations = [implementations] if whole else [part.strip() for part in implementations.split(",")]
    chosen = frozenset(implementations)
    for name in sorted(chosen):
        if name in KINDS and name not in available:
            raise SolverError(
                f"graph {graph.name!r} has no implementations of the kind {name!r}; "
                f"capture the model with implementations=[{name!r}], or with 'all'"
            )
        if name not in available:
            raise UnknownNameError("implementation", name, sorted(available | {"all", "exact"}))
    return chosen


def possible_codes(graph: Graph, codes: Codes | None) -> list[list[int]]:
    """The codes without implementations that read what nothing writes, and without what serves nothing.

    One that may run in place only is left out, too, where nothing that may be chosen stands in for it.
    """
    ways = [node.implementations for node in graph.operations]
    kept = [sorted(codes[k]) if codes is not None else list(range(1, len(ways[k]) + 1)) for k in range(graph.n)]
    for k, chosen in enumerate(kept):
        others = [ways[k][code - 1] for code in chosen]
        kept[k] = [
            code
            for code, way in zip(chosen, others, strict=True)
            if not way.in_place or any(stands_in(other, way) for other in others)
        ]
    while True:
        written = {v for k, chosen in enumerate(kept) for code in chosen for v in ways[k][code - 1].outputs}
        read = {v for k, chosen in enumerate(kept) for code in chosen for v in ways[k][code - 1].inputs}
        before = sum(map(len, kept))
        for k, node in enumerate(graph.operations):
            kept[k] = [
                code
                for code in kept[k]
                if written.issuperset(ways[k][code - 1].inputs)
                and not (node.optional and read.isdisjoint(ways[k][code - 1].outputs))
            ]
        if sum(map(len, kept)) == before:
            return kept


def run_out_of_place(schedule: Schedule, codes: Codes | None = None) -> Schedule:
    """The schedule, with another implementation for each run that may only be in place where its input lives on.

    What stands in reads no more and writes no less, and every graph has it; it may cost more and need more memory.
    """
    graph = schedule.graph
    if not graph.runs_in_place:
        return schedule
    R, read_later = schedule.R.copy(), set[int]()
    for t, k, code in reversed(schedule.sequence):
        way = graph.operations[k].implementations[code - 1]
        if way.in_place and way.overwrites in read_later:
            R[t, k] = code = cheapest_substitute(graph, k, way, codes)
            way = graph.operations[k].implementations[code - 1]
        read_later.difference_update(way.outputs)
        read_later.update(way.inputs)
    return schedule if (R == schedule.R).all() else Schedule(graph, R, schedule.S)


def cheapest_substitute(graph: Graph, k: int, way: Implementation, codes: Codes | None = None) -> int:
    """The cheapest implementation, by its number from 1, that can run instead of one that may run in place only."""
    ways = graph.operations[k].implementations
    able = [code for code, other in enumerate(ways, 1) if stands_in(other, way)]
    allowed = [code for code in able if codes is None or code in codes[k]]
    return min(allowed or able, key=lambda code: (ways[code - 1].cost, ways[code - 1].workspace, code))


@dataclass(frozen=True)
class CondensedImplementation:
    """One implementation of an operation."""

    code: int  # its number in the graph, from 1
    inputs: tuple[int, ...]  # groups, ascending, as outputs
    outputs: tuple[int, ...]
    cost: float
    transient: int  # bytes beside the outputs: workspace, what nobody reads, new versions of persistent outputs
    overwritten: int  # the group with the value whose storage its output takes over where that value dies, or -1
    credit: int  # bytes of that value, 0 where there is none
    persists: bool  # whether it writes all persistent values of its operation, as a first run must
    in_place: bool = False  # whether it may run only where the overwritten value dies


@dataclass(frozen=True, eq=False)
class CondensedChoices:
    """n operations with their ways, T stages, and groups of values between them."""

    graph: Graph
    ways: tuple[tuple[CondensedImplementation, ...], ...]  # none for an optional operation that serves nothing
    bytes: np.ndarray  # M, size of each group, int64 of shape (groups,)
    producer: np.ndarray  # the operation that writes each group, int of shape (groups,)
    base: np.ndarray  # resident bytes and persistent values of earlier operations, there all through a stage, int64
    beaten: tuple[dict[int, int], ...]  # for each implementation that was left out, the code of the way that beats it

    @staticmethod
    def of(graph: Graph, codes: Codes | None = None) -> CondensedChoices:
        """Condense ``graph``."""
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
        """The leanest schedule with runs R, 0 or the code of an implementation: retained is only what is read later."""
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

    kept = _left(ways, beats)
    codes = {way.code for way in kept}
    beaten = [way for way in ways if way.code not in codes]
    return kept, {way.code: next(other.code for other in kept if beats(other, way)) for way in beaten}


class Tables:
    """What every relaxation of a problem needs to know, worked out once.

    By operation: ``first`` has its ways that a first run may take, none for optional operations; ``plain`` those of
    them that no other beats in reads, writes and cost; ``again`` the same for runs again. ``always`` are the groups
    that every first run of their operation writes, ``differ`` the mandatory operations with ways that write different
    groups.
    """

    def __init__(self, problem: CondensedChoices) -> None:
        self.problem, graph = problem, problem.graph
        self.mandatory = np.zeros(graph.n, dtype=bool)
        self.mandatory[graph.mandatory] = True
        self.first: list[list[CondensedImplementation]] = [
            [way for way in ways if way.persists and all(problem.producer[v] != k for v in way.inputs)]
            if self.mandatory[k]
            else []
            for k, ways in enumerate(problem.ways)
        ]
        self.plain = [_unbeaten(ways) for ways in self.first]
        self.again = [_unbeaten(list(ways)) for ways in problem.ways]
        self.reads = [sorted({v for way in ways for v in way.inputs}) for ways in problem.ways]
        self.writes = [sorted({v for way in ways for v in way.outputs}) for ways in problem.ways]
        self.always = np.array(
            [
                self.mandatory[k] and all(v in way.outputs for way in self.first[k])
                for v, k in enumerate(problem.producer)
            ],
            dtype=bool,
        )
        self.differ = [self.mandatory[k] and len({way.outputs for way in self.again[k]}) > 1 for k in range(graph.n)]


def _unbeaten(ways: list[CondensedImplementation]) -> list[CondensedImplementation]:
    """Without the ways that another beats in reads, writes and cost, whatever memory they take while they run."""

    def beats(one: CondensedImplementation, other: CondensedImplementation) -> bool:
        lighter = set(one.inputs) <= set(other.inputs) and set(one.outputs) >= set(other.outputs)
        return lighter and one.cost <= other.cost

    return _left(ways, beats)


def _left(
    ways: list[CondensedImplementation], beats: Callable[[CondensedImplementation, CondensedImplementation], bool]
) -> list[CondensedImplementation]:
    """The ways that no other beats; of those that beat each other the first."""
    kept: list[CondensedImplementation] = []
    for way in ways:
        if not any(beats(other, way) for other in kept):
            kept = [other for other in kept if not beats(way, other)] + [way]
    return kept


class Availability:
    """What is available in one interval.

    ``present`` is None for a group that is always in memory at the start or written by a first run. ``sizes`` are
    bytes, 0 of groups that are taken to be in memory for nothing.
    """

    def __init__(
        self,
        again: Mapping[int, CondensedImplementation],
        present: Callable[[int], LinearExpression | None],
        sizes: np.ndarray,
    ) -> None:
        self._present, self._sizes = present, sizes
        self._writers: dict[int, list[tuple[int, CondensedImplementation]]] = {}
        self._any: dict[int, int] = {}
        for column, way in again.items():
            for v in way.outputs:
                self._writers.setdefault(v, []).append((column, way))

    def add_columns(self, milp: Milp, column: Callable[[], int]) -> None:
        """Add w[v] where several ways write v again and what they read has something in common."""
        for v, writers in sorted(self._writers.items()):
            needs = self.common([way for _, way in writers]) if len(writers) > 1 else []
            allowed = [terms for terms in map(self.of_any, needs) if terms is not None]
            if allowed:
                self._any[v] = column()
                some = LinearExpression.of(self._any[v])
                require(milp, [(1.0, some), *((-1.0, LinearExpression.of(again)) for again, _ in writers)], "<")
                for terms in allowed:
                    require(milp, [(1.0, some), (-1.0, terms)], "<")

    def of(self, v: int) -> LinearExpression | None:
        """A(v); None where it is available always."""
        return self.of_any((v,))

    def of_any(self, groups: Collection[int]) -> LinearExpression | None:
        """A(U); None where one of the groups is available always."""
        constant, columns = 0.0, set[int]()
        for v in groups:
            terms = self._present(v)
            if terms is None:
                return None
            constant += terms.constant
            columns.update(terms.columns)
            writers = self._writers.get(v, ())
            fresh = [column for column, way in writers if not set(groups).intersection(way.inputs)]
            columns.update([self._any[v]] if v in self._any and len(fresh) == len(writers) else fresh)
        return None if constant >= 1 else LinearExpression(constant, tuple(sorted(columns)), (1.0,) * len(columns))

    def common(self, ways: Sequence[CondensedImplementation]) -> list[tuple[int, ...]]:
        """Sets of groups of each of which every way reads one: single ones, and the largest of the rest of each way."""
        reads = [{v for v in way.inputs if self._sizes[v]} for way in ways]
        shared = set.intersection(*reads)
        rest = [read - shared for read in reads]
        sets: list[tuple[int, ...]] = [(v,) for v in sorted(shared)]
        if len(rest) > 1 and all(rest):
            sets.append(tuple(sorted({max(read, key=lambda v: (self._sizes[v], -v)) for read in rest})))
        return sets
