"""A graph as the solvers see it: fewer values, same schedules.

Values with the same producer and the same readers live and die together, so they are one *group*. An output that
nobody reads needs memory only while its operation runs, so it counts as workspace. Persistent values are there from
their first computation to the end, so their bytes depend on the stage alone. None of this changes an optimum; it
halves the number of values of a captured network. A value that an operation may overwrite is one of a group's; where
the group dies with that operation, the operation needs that value's bytes less.

What single operations need for themselves is the first bound on a budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Computations, Schedule


@dataclass(frozen=True, eq=False)
class CondensedGraph:
    """n operations, groups of values between them, and bytes that depend on the stage alone.

    Attributes:
        graph: the graph this was made of.
        inputs: for each operation the groups it reads, ascending: DEPS of Checkmate's section 4.4.
        outputs: for each operation the groups it writes, ascending.
        readers: for each group the operations that read it, ascending: USERS there.
        producer: the operation that writes each group, int of shape (groups,).
        bytes: M, size of each group, int64 of shape (groups,).
        transient: bytes beyond the outputs that an operation needs while it runs (workspace, outputs that nobody
            reads, a new version of its persistent outputs), int64 of shape (n,).
        member: one value of each group, int of shape (groups,).
        base: resident bytes and persistent values of earlier operations, there all through a stage, int64 (n,).
        overwritten: for each operation the group that holds the value it may overwrite, or -1, int of shape (n,).
        credit: bytes of that value, 0 where there is none, int64 of shape (n,).
    """

    graph: Graph
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    readers: tuple[tuple[int, ...], ...]
    producer: np.ndarray
    bytes: np.ndarray
    transient: np.ndarray
    base: np.ndarray
    member: np.ndarray
    overwritten: np.ndarray
    credit: np.ndarray

    @staticmethod
    def of(graph: Graph) -> CondensedGraph:
        """Condense ``graph``.

        Raises:
            SolverError: if an operation has several implementations, or is optional.

        >>> from remat_explorer.instances import linear
        >>> chain = CondensedGraph.of(linear(2))
        >>> chain.inputs, chain.transient.tolist()
        (((), (0,), (1,), (1, 2), (0, 3)), [0, 0, 0, 0, 1])
        """
        for node in graph.operations:
            if node.optional:
                raise SolverError(
                    f"operation {node.name!r} is optional; this strategy schedules graphs in which every operation "
                    "runs: choose one implementation of each with "
                    "remat_explorer.solvers.monet.selections.restricted_to, or use 'monet'"
                )
            if len(node.implementations) > 1:
                raise SolverError(
                    f"operation {node.name!r} has {len(node.implementations)} implementations; this strategy "
                    "schedules graphs with one implementation per operation: choose one of them with "
                    "remat_explorer.solvers.monet.selections.restricted_to, or use 'monet'"
                )
        groups: dict[tuple[int, tuple[int, ...]], int] = {}
        group_of: dict[int, int] = {}
        sizes: list[int] = []
        persistent = np.zeros(graph.n, dtype=np.int64)
        transient = np.zeros(graph.n, dtype=np.int64)
        for k, node in enumerate(graph.operations):
            transient[k] = node.default.workspace
            for v in node.default.outputs:
                if graph.persistent[v]:
                    persistent[k] += graph.values[v].bytes
                elif not graph.readers[v]:
                    transient[k] += graph.values[v].bytes
                else:
                    group_of[v] = group = groups.setdefault((k, graph.readers[v]), len(groups))
                    sizes += [0] * (group + 1 - len(sizes))
                    sizes[group] += graph.values[v].bytes
        outputs: list[list[int]] = [[] for _ in range(graph.n)]
        for (k, _), group in groups.items():
            outputs[k].append(group)
        overwritten = [node.default.overwrites for node in graph.operations]
        return CondensedGraph(
            graph,
            tuple(tuple(sorted({group_of[v] for v in graph.inputs(k) if v in group_of})) for k in range(graph.n)),
            tuple(map(tuple, outputs)),
            tuple(readers for _, readers in groups),
            np.array([k for k, _ in groups], dtype=np.int64),
            np.array(sizes, dtype=np.int64),
            transient + persistent,
            graph.resident_bytes + np.cumsum(persistent) - persistent,
            np.array([v for _, v in sorted({group: v for v, group in group_of.items()}.items())], dtype=np.int64),
            np.array([-1 if v is None else group_of[v] for v in overwritten], dtype=np.int64),
            np.array([0 if v is None else graph.values[v].bytes for v in overwritten], dtype=np.int64),
        )

    @property
    def n(self) -> int:
        """Number of operations and of stages."""
        return self.graph.n

    @property
    def groups(self) -> int:
        """Number of groups of values."""
        return len(self.bytes)

    @property
    def costs(self) -> np.ndarray:
        """C: cost of each operation, float of shape (n,)."""
        return self.graph.costs

    @cached_property
    def output_bytes(self) -> np.ndarray:
        """Bytes of the groups that each operation writes, int64 of shape (n,)."""
        sizes = self.bytes.tolist()
        return np.array([sum(sizes[v] for v in out) for out in self.outputs], dtype=np.int64)

    @cached_property
    def last_reader(self) -> np.ndarray:
        """The last operation that reads each group, int of shape (groups,)."""
        return np.array([readers[-1] for readers in self.readers], dtype=np.int64)

    @cached_property
    def input_groups(self) -> tuple[np.ndarray, ...]:
        """`inputs` as arrays, to index with."""
        return tuple(np.array(read, dtype=np.int64) for read in self.inputs)

    @cached_property
    def reads(self) -> np.ndarray:
        """Which operation reads which group, bool of shape (n, groups)."""
        reads = np.zeros((self.n, self.groups), dtype=bool)
        for k, inputs in enumerate(self.inputs):
            reads[k, list(inputs)] = True
        return reads

    def read_from(self, first: int, last: int) -> np.ndarray:
        """Which groups the operations from ``first`` to ``last`` read, bool of shape (groups,)."""
        read = np.zeros(self.groups, dtype=bool)
        for inputs in self.inputs[first : last + 1]:
            read[list(inputs)] = True
        return read

    def spread(self, S: np.ndarray, stays: np.ndarray) -> np.ndarray:
        """S of values from S of groups; persistent values are there where ``stays`` says so, unread ones nowhere."""
        graph = self.graph
        spread = np.zeros((len(S), len(graph.values)), dtype=S.dtype)
        group_of = {(int(graph.producer[v]), graph.readers[v]): group for group, v in enumerate(self.member)}
        for v in range(len(graph.values)):
            if graph.persistent[v]:
                spread[:, v] = stays[:, v]
            elif graph.readers[v]:
                spread[:, v] = S[:, group_of[int(graph.producer[v]), graph.readers[v]]]
        return spread

    @cached_property
    def operation_bytes(self) -> np.ndarray:
        """Memory that stage k needs at least, for operation k alone: its inputs, outputs and transient bytes.

        What it may overwrite is counted once, with the output that takes its place.
        """
        sizes = self.bytes.tolist()
        inputs = np.array([sum(sizes[v] for v in read) for read in self.inputs], dtype=np.int64)
        return self.base + inputs + self.output_bytes + self.transient - self.credit

    def schedule(self, R: np.ndarray | Computations) -> Schedule:
        """The leanest schedule that computes R: retained is only what is read later.

        Args:
            R: (n, n), nonzero where computed, or its ones; the diagonal is always computed.
        """
        if isinstance(R, Computations):
            return Schedule.leanest(self.graph, self.n, R)
        computed = (np.asarray(R) > 0) | np.eye(self.n, dtype=bool)
        return Schedule.leanest(self.graph, self.n, Computations.of_matrix(computed))


def largest_operation(graph: Graph) -> tuple[int, int]:
    """The operation that needs the most memory for itself, and its bytes: no schedule with stages needs less.

    >>> from remat_explorer.instances import linear
    >>> largest_operation(linear(8))
    (9, 3)
    """
    needed = CondensedGraph.of(graph).operation_bytes
    k = int(needed.argmax())
    return k, int(needed[k])


def smallest_budget_with_stages(graph: Graph) -> int:
    """Bytes below which no schedule with stages fits; resident bytes where operations have several implementations."""
    return graph.resident_bytes if graph.has_choices else largest_operation(graph)[1]


def smallest_budget_without_stages(graph: Graph) -> int:
    """The same without stages: the persistent outputs of earlier operations may still be to come, and do not count."""
    if graph.has_choices:
        return graph.resident_bytes
    condensed = CondensedGraph.of(graph)
    return int((condensed.operation_bytes - condensed.base).max()) + graph.resident_bytes


def one_by_one(condensed: CondensedGraph) -> CondensedGraph:
    """The same with a group for each value: half a group may be sent, so groups do change an optimum with transfers."""
    graph = condensed.graph
    read = [v for v in range(len(graph.values)) if graph.readers[v] and not graph.persistent[v]]
    read.sort(key=lambda v: int(graph.producer[v]))
    group_of = {v: group for group, v in enumerate(read)}
    overwritten = [node.default.overwrites for node in graph.operations]
    return replace(
        condensed,
        inputs=tuple(tuple(sorted(group_of[v] for v in set(graph.inputs(k)) & set(read))) for k in range(graph.n)),
        outputs=tuple(tuple(group_of[v] for v in read if graph.producer[v] == k) for k in range(graph.n)),
        readers=tuple(graph.readers[v] for v in read),
        producer=np.array([graph.producer[v] for v in read], dtype=np.int64),
        bytes=np.array([graph.values[v].bytes for v in read], dtype=np.int64),
        member=np.array(read, dtype=np.int64),
        overwritten=np.array([-1 if v is None else group_of[v] for v in overwritten], dtype=np.int64),
    )
