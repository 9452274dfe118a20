"""The execution plan: a list of statements that compute operations and free values.

Checkmate's Algorithm 1 (section 4.9) with its code motion taken to the end: the rows of R one after another, each
version of a value freed right after its last use, or overwritten by it. The plan's peak is therefore never above the
schedule's U.

A plan takes milliseconds to make, and many ask for that of the same schedule: the points of a sweep, the reports of a
solve, every picture. `Plan.of` and `Plan.peak_of` remember what they made.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np

from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plain_text import one_line
from remat_explorer.schedule import Schedule

MOST_PLANS, MOST_STATEMENTS = 256, 500_000  # remembered at a time; a statement takes about 130 bytes
_NOTHING: Mapping[int, Iterable[int]] = MappingProxyType({})


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

    def __post_init__(self) -> None:
        require_arguments(Plan.__init__, vars(self), briefly=("statements",))

    @staticmethod
    def of(schedule: Schedule) -> Plan:
        """The plan of a schedule: its computations in order, values freed after, or overwritten by, its last use.

        Plans are remembered by the schedule's identity, for no longer than the schedule lives: up to `MOST_PLANS` with
        `MOST_STATEMENTS` statements in all; those asked for longest ago are forgotten, and made again when somebody
        asks. Any thread may call this; all get the same plan.

        >>> from remat_explorer.instances import linear
        >>> keep = Schedule(linear(1), np.eye(3), [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
        >>> Plan.of(keep) is Plan.of(keep)
        True
        """
        require_arguments(Plan.of, locals())
        return _recent.plan_of(schedule)

    @staticmethod
    def peak_of(schedule: Schedule) -> int:
        """Predicted peak of the schedule's plan in bytes, remembered for as long as the schedule lives.

        >>> from remat_explorer.instances import linear
        >>> Plan.peak_of(Schedule(linear(1), np.eye(3), [[0, 0, 0], [1, 0, 0], [1, 1, 0]]))
        3
        """
        require_arguments(Plan.peak_of, locals())
        return _peak_of(schedule)

    @staticmethod
    def from_sequence(
        graph: Graph, sequence: Iterable[tuple[int, int, int]], held: Mapping[int, Iterable[int]] = _NOTHING
    ) -> Plan:
        """The plan of computations given as (stage, operation, implementation).

        A computation that runs again replaces its outputs: the old version is freed after its own last read. A
        persistent output keeps its first version. A value that the implementation may overwrite is overwritten where
        it would be freed, and then there is no statement that frees it. ``held`` has values that stay until a
        computation is done, beside its inputs, by its place in the sequence.

        Raises:
            ScheduleError: if an operation reads a value that was never computed.
        """
        require_arguments(Plan.from_sequence, locals(), briefly=("sequence",))
        sequence = list(sequence)
        dies_at: list[list[int]] = [[] for _ in sequence]
        drops: list[tuple[int, ...]] = []
        last_use: dict[int, int] = {}
        for i, (_, k, code) in enumerate(sequence):
            for v in (*graph.inputs(k, code), *held.get(i, ())):
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
        """One statement as people read it, on one line."""
        require_arguments(Plan.text, locals())
        if isinstance(statement, Free):
            return one_line(f"free {self.graph.values[statement.value].name}")
        verb = "compute" if statement.first else "recompute"
        place = "" if statement.overwrites is None else f" in place of {self.graph.values[statement.overwrites].name}"
        return one_line(f"{verb} {self.graph.operations[statement.operation].name}{place}")


class _RecentPlans:
    """The plans of the schedules that were asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: WeakKeyDictionary[Schedule, Plan] = WeakKeyDictionary()  # asked for longest ago first

    def plan_of(self, schedule: Schedule) -> Plan:
        with self._lock:
            plan = self._plans.pop(schedule, None)
            if plan is not None:
                self._plans[schedule] = plan
                return plan
        made = Plan.from_sequence(schedule.graph, schedule.sequence)
        with self._lock:
            plan = self._plans.setdefault(schedule, made)  # that of another thread, if it was faster
            statements = sum(len(other.statements) for other in self._plans.values())
            for oldest in list(self._plans)[:-1]:
                if len(self._plans) <= MOST_PLANS and statements <= MOST_STATEMENTS:
                    break
                statements -= len(self._plans.pop(oldest).statements)
        return plan


_recent = _RecentPlans()


@memoize_by_identity
def _peak_of(schedule: Schedule) -> int:
    return Plan.of(schedule).peak
