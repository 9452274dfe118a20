"""A plan with a third choice: a list of statements that compute, free, send, fetch and drop; and its predicted times.

Device and host bytes follow from the list alone, so the peak does not depend on how fast anything is. Times follow from
three engines, each of which takes its jobs in the order of the list: computing, copies out, copies back. A free waits
for whoever uses the value, and every later allocation waits for the free. So if nothing takes longer than predicted,
neither does the whole.

- compute: when the last one has ended, and the frees before it, and its inputs have arrived
- send: when the last send has ended, the value has arrived, and the host's memory that was dropped before is free
- fetch: when the last fetch and the computations before it have ended, the frees before it, and the value's send
- the makespan is the end of the last computation
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.offload.transfers import Transfers
from remat_explorer.plain_text import one_line
from remat_explorer.plan import Compute, Free, Plan


@dataclass(frozen=True)
class Send:
    """Copy a value from the device to the host; it stays on the device until it is freed."""

    stage: int
    value: int


@dataclass(frozen=True)
class Fetch:
    """Allocate a value on the device, and copy it back from the host, where the copy stays until it is dropped."""

    allocates: ClassVar[bool] = True
    stage: int
    value: int


@dataclass(frozen=True)
class Drop:
    """Release the host's copy of a value."""

    stage: int
    value: int


TransferStatement = Compute | Free | Send | Fetch | Drop
Event = tuple[str, int, int]
"""What a planner decides: "compute", "send" or "fetch", the stage, and the operation or value."""


@dataclass(frozen=True)
class TransferTimeline:
    """Predicted bytes and seconds along a plan, one entry per statement.

    Attributes:
        during: highest bytes on the device while the statement runs, resident bytes included, int64.
        after: bytes on the device once it is done, int64.
        host: bytes of copies on the host once it is done, int64.
        start: when it begins, in the unit of the graph's costs, float; of a free or drop, when it is done.
        end: when it is done, float.
    """

    during: np.ndarray
    after: np.ndarray
    host: np.ndarray
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True)
class TransferPlan:
    """Statements that execute a step of training on a device with a host beside it.

    Raises:
        ScheduleError: if an operation has several implementations, or is optional.

    >>> from remat_explorer.instances import linear
    >>> events = [("compute", 0, 0), ("send", 0, 0), ("compute", 1, 1), ("fetch", 2, 0), ("compute", 2, 2)]
    >>> plan = TransferPlan.from_events(linear(1), Transfers(1, 1), events)
    >>> [type(statement).__name__ for statement in plan.statements]
    ['Compute', 'Send', 'Compute', 'Free', 'Fetch', 'Compute', 'Free', 'Free', 'Free', 'Drop']
    >>> plan.makespan, plan.peak, plan.host_peak
    (4.0, 3, 1)
    """

    graph: Graph
    transfers: Transfers
    statements: tuple[TransferStatement, ...]

    def __post_init__(self) -> None:
        require_arguments(TransferPlan.__init__, vars(self), briefly=("statements",))
        if self.graph.has_choices:
            raise ScheduleError("a plan with transfers is of a graph with one implementation of each operation")

    @staticmethod
    def from_plan(plan: Plan, transfers: Transfers) -> TransferPlan:
        """A plan that sends nothing.

        >>> from remat_explorer.instances import linear
        >>> keep = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
        >>> TransferPlan.from_plan(keep, Transfers(0, 0)).makespan
        3.0
        """
        require_arguments(TransferPlan.from_plan, locals())
        return TransferPlan(plan.graph, transfers, plan.statements)

    @staticmethod
    def from_events(
        graph: Graph, transfers: Transfers, events: Iterable[Event], budget: int | None = None
    ) -> TransferPlan:
        """The plan of computations, sends and fetches in an order, with frees and drops where they delay nothing.

        What was sent is freed when its bytes are needed, those first whose copies are done first. A fetch of what is
        still there is left out. Without a budget, it is freed when its copy is done.

        Raises:
            ScheduleError: if an operation reads what is not there, or the host has no room for a copy.
        """
        require_arguments(TransferPlan.from_events, locals(), briefly=("events",))
        return _Builder(graph, transfers, list(events), budget).build()

    @cached_property
    def timeline(self) -> TransferTimeline:
        """Predicted bytes and seconds along the plan, by the table at the top of this file."""
        graph, clock = self.graph, Clock(self.graph, self.transfers)
        sizes = graph.value_bytes.tolist()
        held, host = graph.resident_bytes, 0
        rows: list[tuple[int, int, int, float, float]] = []
        for statement in self.statements:
            during = held
            if isinstance(statement, Compute):
                way = graph.operations[statement.operation].default
                held += sum(sizes[v] for v in way.outputs)
                held -= 0 if statement.overwrites is None else sizes[statement.overwrites]
                during = held + way.workspace
                held -= sum(sizes[v] for v in statement.drops)
                start, end = clock.compute(statement.operation, statement.overwrites, statement.drops)
            elif isinstance(statement, Free):
                held -= sizes[statement.value]
                start = end = clock.free(statement.value)
            elif isinstance(statement, Send):
                host += sizes[statement.value]
                start, end = clock.send(statement.value)
            elif isinstance(statement, Fetch):
                held += sizes[statement.value]
                during = held
                start, end = clock.fetch(statement.value)
            else:
                host -= sizes[statement.value]
                start = end = clock.drop(statement.value)
            rows.append((during, held, host, start, end))
        columns = list(zip(*rows, strict=True)) if rows else [()] * 5
        bytes_of = [np.array(column, dtype=np.int64) for column in columns[:3]]
        return TransferTimeline(*bytes_of, *(np.array(column, dtype=float) for column in columns[3:]))

    @cached_property
    def makespan(self) -> float:
        """When the last computation ends, in the unit of the graph's costs."""
        ends = self.timeline.end.tolist()
        return max((end for end, one in zip(ends, self.statements, strict=True) if isinstance(one, Compute)), default=0)

    @property
    def peak(self) -> int:
        """Predicted peak on the device in bytes, resident bytes included."""
        return int(self.timeline.during.max(initial=self.graph.resident_bytes))

    @property
    def host_peak(self) -> int:
        """Most bytes of copies that are on the host at a time."""
        return int(self.timeline.host.max(initial=0))

    @property
    def sent_bytes(self) -> int:
        """Bytes of all copies out together."""
        return sum(self.graph.values[one.value].bytes for one in self.statements if isinstance(one, Send))

    @property
    def computing(self) -> float:
        """Cost of all computations together: the makespan without the time that they wait."""
        graph = self.graph
        return sum(float(graph.costs[one.operation]) for one in self.statements if isinstance(one, Compute))

    def text(self, statement: TransferStatement) -> str:
        """One statement as people read it, on one line."""
        require_arguments(TransferPlan.text, locals())
        if isinstance(statement, Compute):
            return Plan(self.graph, ()).text(statement)
        verb = type(statement).__name__.lower()
        return one_line(f"{verb} {self.graph.values[statement.value].name}")


@dataclass
class Clock:
    """The three engines; each method takes a statement in the order of the list, and returns when it runs."""

    graph: Graph
    transfers: Transfers
    computing: float = 0.0  # end of the last job of each engine
    sending: float = 0.0
    fetching: float = 0.0
    device_free: float = 0.0  # when everything freed so far is free
    host_free: float = 0.0
    arrival: dict[int, float] = field(default_factory=dict)
    busy: dict[int, float] = field(default_factory=dict)  # the end of the last job that uses the value
    host: dict[int, float] = field(default_factory=dict)  # the end of the send
    host_busy: dict[int, float] = field(default_factory=dict)

    def compute(self, k: int, overwrites: int | None, drops: Sequence[int]) -> tuple[float, float]:
        way = self.graph.operations[k].default
        waits = [self.computing, self.device_free, *(self.arrival[v] for v in way.inputs)]
        if overwrites is not None:
            waits.append(self.busy[overwrites])
        start = max(waits)
        end = self.computing = start + way.cost
        for v in way.inputs:
            self.busy[v] = max(self.busy[v], end)
        for v in way.outputs:
            if v not in drops:
                self.arrival[v] = self.busy[v] = end
        if way.workspace or drops:
            self.device_free = max(self.device_free, end)
        return start, end

    def send(self, v: int) -> tuple[float, float]:
        start = max(self.sending, self.arrival[v], self.host_free)
        end = start + self.transfers.out_seconds(self.graph.values[v].bytes)
        self.sending = self.host[v] = self.host_busy[v] = end
        self.busy[v] = max(self.busy[v], end)
        if not self.transfers.duplex:
            self.fetching = end
        return start, end

    def fetch(self, v: int) -> tuple[float, float]:
        start = max(self.fetching, self.computing, self.device_free, self.host[v])
        end = start + self.transfers.back_seconds(self.graph.values[v].bytes)
        self.fetching = self.arrival[v] = self.busy[v] = end
        self.host_busy[v] = max(self.host_busy[v], end)
        if not self.transfers.duplex:
            self.sending = end
        return start, end

    def free(self, v: int) -> float:
        self.device_free = max(self.device_free, self.busy[v])
        return self.device_free

    def drop(self, v: int) -> float:
        self.host_free = max(self.host_free, self.host_busy[v])
        return self.host_free


class _Builder:
    """Adds frees and drops to events, with a clock and the bytes that are held beside it."""

    def __init__(self, graph: Graph, transfers: Transfers, events: list[Event], budget: int | None) -> None:
        self.graph, self.transfers, self.events = graph, transfers, events
        self.budget = budget
        self.clock = Clock(graph, transfers)
        self.sizes = graph.value_bytes.tolist()
        self.held, self.host = graph.resident_bytes, 0
        self.statements: list[TransferStatement] = []
        self.present: set[int] = set()
        self.waiting: list[int] = []  # values that were sent and are used no more, until their bytes are needed
        self.spent: list[int] = []  # copies that nobody fetches again
        self.seen: set[int] = set()
        self.dies_at, self.last_fetch = self._lives()
        self.last_send = max((i for i, (verb, _, _) in enumerate(events) if verb == "send"), default=-1)

    def _lives(self) -> tuple[list[list[int]], dict[int, int]]:
        """Values whose version is used last by each event, and the last event that needs each copy on the host."""
        graph, dies_at = self.graph, [[] for _ in self.events]
        last_use: dict[int, int] = {}
        last_fetch: dict[int, int] = {}
        for i, (verb, _, what) in enumerate(self.events):
            if verb == "compute":
                for v in graph.inputs(what):
                    if v not in last_use:
                        name = graph.values[v].name
                        raise ScheduleError(
                            f"event {i} computes {graph.operations[what].name!r} but its input {name!r} is not there"
                        )
                    last_use[v] = i
                begun = graph.outputs(what)
            elif verb == "send":
                last_use[what] = last_fetch[what] = i
                continue
            else:
                begun, last_fetch[what] = (what,), i
            for v in begun:
                if v in last_use:
                    if graph.persistent[v]:
                        continue
                    dies_at[last_use[v]].append(v)
                last_use[v] = i
        for v, i in last_use.items():
            if not graph.persistent[v]:
                dies_at[i].append(v)
        return dies_at, last_fetch

    def build(self) -> TransferPlan:
        stage = 0
        for i, (verb, stage, what) in enumerate(self.events):
            if verb == "compute":
                self._compute(i, stage, what)
            elif verb == "send":
                self._send(stage, what)
            else:
                self._fetch(stage, what)
            for v in self.dies_at[i]:
                if v in self.present:
                    self._let_go(stage, v)
            if verb != "compute" and self.last_fetch[what] == i:
                self.spent.append(what)
            self._drop_spent(i, stage)
        for v in list(self.waiting):
            self._free(stage, v)
        for v in self.spent:
            self._drop(stage, v)
        return TransferPlan(self.graph, self.transfers, tuple(self.statements))

    def _compute(self, i: int, stage: int, k: int) -> None:
        way = self.graph.operations[k].default
        for v in way.outputs:
            if v in self.waiting:
                self._free(stage, v)
        drops = tuple(v for v in way.outputs if self.graph.persistent[v] and v in self.present)
        dying = self.dies_at[i]
        overwrites = way.overwrites if way.overwrites in dying and self.graph.heir(k) not in drops else None
        needed = sum(self.sizes[v] for v in way.outputs) - (0 if overwrites is None else self.sizes[overwrites])
        self._make_room(stage, needed + way.workspace)
        self.clock.compute(k, overwrites, drops)
        self.statements.append(Compute(stage, k, 1, k not in self.seen, drops, overwrites))
        self.seen.add(k)
        self.held += needed - sum(self.sizes[v] for v in drops)
        self.present.update(way.outputs)
        if overwrites is not None:
            self.present.discard(overwrites)

    def _send(self, stage: int, v: int) -> None:
        room = self.transfers.host_bytes
        while room is not None and self.host + self.sizes[v] > room and self.spent:
            self._drop(stage, self.spent.pop(0))
        if room is not None and self.host + self.sizes[v] > room:
            raise ScheduleError(f"the host has no room for a copy of {self.graph.values[v].name!r}")
        self.clock.send(v)
        self.host += self.sizes[v]
        self.statements.append(Send(stage, v))

    def _fetch(self, stage: int, v: int) -> None:
        if v in self.waiting:  # it has never left
            self.waiting.remove(v)
            return
        self._make_room(stage, self.sizes[v])
        self.clock.fetch(v)
        self.held += self.sizes[v]
        self.present.add(v)
        self.statements.append(Fetch(stage, v))

    def _let_go(self, stage: int, v: int) -> None:
        """Free a value at once where that delays nothing."""
        if self.clock.busy[v] <= self.clock.computing:
            self._free(stage, v)
        else:
            self.waiting.append(v)

    def _make_room(self, stage: int, needed: int) -> None:
        self.waiting.sort(key=lambda v: self.clock.busy[v])
        while self.waiting:
            if self.budget is None:
                if self.clock.busy[self.waiting[0]] > self.clock.computing:
                    break
            elif self.held + needed <= self.budget:
                break
            self._free(stage, self.waiting[0])

    def _free(self, stage: int, v: int) -> None:
        if v in self.waiting:
            self.waiting.remove(v)
        self.clock.free(v)
        self.held -= self.sizes[v]
        self.present.discard(v)
        self.statements.append(Free(stage, v))

    def _drop_spent(self, i: int, stage: int) -> None:
        """Drop copies that are back, where no later send waits for that."""
        done = self.clock.computing if i >= self.last_send else self.clock.sending
        for v in [v for v in self.spent if self.clock.host_busy[v] <= done]:
            self.spent.remove(v)
            self._drop(stage, v)

    def _drop(self, stage: int, v: int) -> None:
        self.clock.drop(v)
        self.host -= self.sizes[v]
        self.statements.append(Drop(stage, v))
