"""The execution plan: a list of statements that compute operations and free values.

Checkmate's Algorithm 1 (section 4.9) with its code motion taken to the end: the rows of R one after another, each
version of a value freed right after its last use, or overwritten by it. The plan's peak is therefore never above the
schedule's U.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule


@dataclass(frozen=True)
class Compute:
    """Run an operation.

    Attributes:
        first: whether this is its first run, not a recomputation.
        drops: outputs that are not kept.
        overwrites: the input that dies here and leaves its storage to the output, or None.
    """

    stage: int
    operation: int
    implementation: int
    first: bool
    drops: tuple[int, ...] = ()
    overwrites: int | None = None


@dataclass(frozen=True)
class Free:
    """Release the storage of a value."""

    stage: int
    value: int


Statement = Compute | Free


@dataclass(frozen=True)
class Timeline:
    """Predicted memory in bytes, resident bytes included, one entry per statement.

    Attributes:
        during: highest memory while the statement runs (outputs and workspace included, less what an output takes
            over), int64.
        after: memory once it is done, int64.
        stage: stage of each statement.
    """

    during: np.ndarray
    after: np.ndarray
    stage: np.ndarray

    @property
    def peak(self) -> int:
        """Highest memory over the whole plan, bytes."""
        return int(self.during.max())

    @property
    def peak_statement(self) -> int:
        """Index of the statement at which memory is highest."""
        return int(self.during.argmax())


@dataclass(frozen=True)
class Plan:
    """Statements that execute a schedule, or any sequence of computations.

    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> [type(s).__name__ for s in plan.statements]
    ['Compute', 'Compute', 'Compute', 'Free', 'Free', 'Free']
    >>> plan.timeline.peak
    3
    """

    graph: Graph
    statements: tuple[Statement, ...]

    @staticmethod
    def of(schedule: Schedule) -> Plan:
        """The plan of a schedule: its computations in order, values freed after, or overwritten by, its last use."""
        return Plan.from_sequence(schedule.graph, schedule.sequence)

    @staticmethod
    def from_sequence(graph: Graph, sequence: Iterable[tuple[int, int, int]]) -> Plan:
        """The plan of computations given as (stage, operation, implementation).

        A computation that runs again replaces its outputs: the old version is freed after its own last read. A
        persistent output keeps its first version. A value that the implementation may overwrite is overwritten where
        it would be freed, and then there is no statement that frees it.

        Raises:
            ScheduleError: if an operation reads a value that was never computed.
        """
        sequence = list(sequence)
        dies_at: list[list[int]] = [[] for _ in sequence]
        drops: list[tuple[int, ...]] = []
        last_use: dict[int, int] = {}
        for i, (_, k, code) in enumerate(sequence):
            for v in graph.inputs(k, code):
                if v not in last_use:
                    reader, name = graph.operations[k].name, graph.values[v].name
                    raise ScheduleError(f"statement {i} computes {reader!r} but its input {name!r} was never computed")
                last_use[v] = i
            dropped = []
            for v in graph.outputs(k, code):
                if v in last_use:
                    if graph.persistent[v]:
                        dropped.append(v)
                        continue
                    dies_at[last_use[v]].append(v)
                last_use[v] = i
            drops.append(tuple(dropped))
        for v, i in last_use.items():
            if not graph.persistent[v]:
                dies_at[i].append(v)
        statements: list[Statement] = []
        seen: set[int] = set()
        for (t, k, code), dying, dropped in zip(sequence, dies_at, drops, strict=True):
            overwrites = graph.operations[k].implementations[code - 1].overwrites
            if overwrites not in dying or graph.heir(k, code) in dropped:
                overwrites = None
            statements.append(Compute(t, k, code, k not in seen, dropped, overwrites))
            seen.add(k)
            statements += [Free(t, v) for v in dying if v != overwrites]
        return Plan(graph, tuple(statements))

    @cached_property
    def timeline(self) -> Timeline:
        """Predicted memory along the plan."""
        graph, bytes_of = self.graph, self.graph.value_bytes.tolist()
        held = graph.resident_bytes
        during, after = [], []
        for statement in self.statements:
            if isinstance(statement, Free):
                during.append(held)
                held -= bytes_of[statement.value]
            else:
                way = graph.operations[statement.operation].implementations[statement.implementation - 1]
                held += sum(bytes_of[v] for v in way.outputs)
                if statement.overwrites is not None:
                    held -= bytes_of[statement.overwrites]
                during.append(held + way.workspace)
                held -= sum(bytes_of[v] for v in statement.drops)
            after.append(held)
        stages = np.array([statement.stage for statement in self.statements])
        return Timeline(np.array(during, dtype=np.int64), np.array(after, dtype=np.int64), stages)

    @property
    def peak(self) -> int:
        """Predicted peak memory in bytes, resident bytes included."""
        return self.timeline.peak

    def text(self, statement: Statement) -> str:
        """One statement as people read it."""
        if isinstance(statement, Free):
            return f"free {self.graph.values[statement.value].name}"
        verb = "compute" if statement.first else "recompute"
        place = "" if statement.overwrites is None else f" in place of {self.graph.values[statement.overwrites].name}"
        return f"{verb} {self.graph.operations[statement.operation].name}{place}"
