"""The independent check of plans with transfers: legal, within both budgets, and as fast as they claim.

It shares nothing with the planner, nor with the clock of `TransferPlan`. Each version of a value on the device is a
record with the ends of the jobs that use it; a job begins when all that it waits for have ended. Bytes are counted
twice: by the list, and by the clock, where memory is taken when a job begins and returned when its last user ends. The
second count must never be above the first, or a wait is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import ScheduleError
from remat_explorer.offload.transfer_plan import Drop, Fetch, Send, TransferPlan, TransferStatement
from remat_explorer.plan import Compute, Free
from remat_explorer.quantities import exact_bytes

_SAME = 1e-9  # relative difference up to which two sums of the same numbers are equal


@dataclass(frozen=True)
class CheckedTransfers:
    """What the check found: the makespan in the unit of the graph's costs, and the peaks in bytes."""

    plan: TransferPlan
    makespan: float
    peak: int
    host_peak: int


@dataclass
class _Copy:
    """One version of a value on the device: since when, when it may be read, and the ends of all jobs that use it."""

    size: int
    taken: float
    ready: float
    ends: list[float]


@dataclass
class _HostCopy:
    ready: float
    ends: list[float] = field(default_factory=list)


def check_transfers(
    plan: TransferPlan, budget: int | None = None, makespan: float | None = None, lower_bound: float | None = None
) -> CheckedTransfers:
    """Replay a plan statement by statement.

    Args:
        plan: statements, stage by stage: each runs operations in ascending order, the last one for the first time.
        budget: bytes that its peak on the device must not exceed, or None.
        makespan: what the plan is said to take, or None.
        lower_bound: what is said to be the least that any plan takes, or None.

    Raises:
        ScheduleError: naming the first violation.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload.transfers import Transfers
    >>> events = [("compute", 0, 0), ("compute", 1, 1), ("compute", 2, 2)]
    >>> plan = TransferPlan.from_events(linear(1), Transfers(1, 1), events)
    >>> check_transfers(plan, budget=3).makespan
    3.0
    >>> check_transfers(plan, budget=2)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ScheduleError: the plan needs 3 B on the device, above the budget of 2 B
    """
    require_arguments(check_transfers, locals())
    replay = _Replay(plan)
    for i, statement in enumerate(plan.statements):
        replay.take(i, statement)
    replay.finish()
    found = CheckedTransfers(plan, replay.compute_end, replay.peak, replay.host_peak)
    if budget is not None and found.peak > budget:
        raise ScheduleError(
            f"the plan needs {exact_bytes(found.peak)} on the device, above the budget of {exact_bytes(budget)}"
        )
    room = plan.transfers.host_bytes
    if room is not None and found.host_peak > room:
        raise ScheduleError(f"the plan needs {exact_bytes(found.host_peak)} on the host, which has {exact_bytes(room)}")
    if makespan is not None and abs(makespan - found.makespan) > _SAME * max(1.0, found.makespan):
        raise ScheduleError(f"the plan takes {found.makespan!r}, not {makespan!r}")
    if lower_bound is not None and lower_bound > found.makespan * (1 + _SAME):
        raise ScheduleError(f"the plan takes {found.makespan!r}, less than its lower bound of {lower_bound!r}")
    return found


class _Replay:
    def __init__(self, plan: TransferPlan) -> None:
        self.plan, self.graph = plan, plan.graph
        self.device: dict[int, _Copy] = {}
        self.host: dict[int, _HostCopy] = {}
        self.compute_end = self.out_end = self.back_end = 0.0
        self.device_barrier = self.host_barrier = 0.0
        self.bytes = self.peak = self.graph.resident_bytes
        self.host_bytes = self.host_peak = 0
        self.stage, self.before = 0, -1  # the stage, and the operation that it ran last
        self.changes: list[tuple[float, int, int]] = []  # time, returned before taken, bytes

    def take(self, i: int, statement: TransferStatement) -> None:
        self.where = f"statement {i}"
        if not isinstance(statement, Compute) and not 0 <= statement.value < len(self.graph.values):
            raise ScheduleError(f"{self.where} names value {statement.value}, which the graph does not have")
        if isinstance(statement, Compute):
            self._compute(statement)
        elif isinstance(statement, Free):
            self._free(statement.value)
        elif isinstance(statement, Send):
            self._send(statement.value)
        elif isinstance(statement, Fetch):
            self._fetch(statement.value)
        elif isinstance(statement, Drop):
            self._drop(statement.value)
        else:
            raise ScheduleError(f"{self.where} is none of a plan: {statement!r}")

    def finish(self) -> None:
        graph = self.graph
        if self.stage != graph.n:
            raise ScheduleError(f"the plan never computes {graph.operations[self.stage].name!r}")
        missing = [v for v in range(len(graph.values)) if graph.persistent[v] and v not in self.device]
        if missing:
            raise ScheduleError(f"at the end, {graph.names(missing)} is not on the device")
        left = [v for v in self.device if not graph.persistent[v]]
        if left:
            raise ScheduleError(f"the plan never frees {graph.names(left)}")
        if self.host:
            raise ScheduleError(f"the plan never drops the copies of {graph.names(list(self.host))}")
        total = graph.resident_bytes
        for _, _, change in sorted(self.changes):
            total += change
            if total > self.peak:
                raise ScheduleError(f"by the clock the plan needs {exact_bytes(total)}, by its list {self.peak}")

    def _name(self, v: int) -> str:
        return repr(self.graph.values[v].name)

    def _copy(self, v: int, verb: str) -> _Copy:
        if v not in self.device:
            raise ScheduleError(f"{self.where} {verb} {self._name(v)}, which is not on the device")
        return self.device[v]

    def _count(self, change: int, above: int = 0) -> None:
        self.bytes += change
        self.peak = max(self.peak, self.bytes + above)

    def _release(self, copy: _Copy) -> None:
        self.changes.append((max(copy.ends), 0, -copy.size))

    def _compute(self, statement: Compute) -> None:
        graph, k = self.graph, statement.operation
        if not 0 <= k < graph.n or statement.implementation != 1:
            raise ScheduleError(f"{self.where} computes what the graph does not have: {statement!r}")
        node = graph.operations[k]
        way = node.default
        first = k == self.stage
        if k > self.stage or statement.stage != self.stage or statement.first != first or k <= self.before:
            raise ScheduleError(f"{self.where} computes {node.name!r} out of the order of stages")
        self.stage, self.before = (self.stage + 1, -1) if first else (self.stage, k)
        inputs = [self._copy(v, f"computes {node.name!r} without") for v in way.inputs]
        begin = max([self.compute_end, self.device_barrier, *(copy.ready for copy in inputs)])
        again = {v for v in way.outputs if v in self.device}
        if any(not graph.persistent[v] for v in again):
            raise ScheduleError(f"{self.where} computes {node.name!r}, whose outputs are still on the device")
        if again != set(statement.drops):
            raise ScheduleError(f"{self.where} computes {node.name!r} with other drops than what is there already")
        taken_over = None
        if statement.overwrites is not None:
            taken_over = self._taken_over(statement)
            begin = max([begin, *taken_over.ends])
        elif way.in_place:
            raise ScheduleError(f"{self.where} computes {node.name!r}, which may run in place only, but not in place")
        end = begin + way.cost
        for copy in inputs:
            copy.ends.append(end)
        new = {v: graph.values[v].bytes for v in way.outputs}
        if taken_over is not None:
            self.bytes -= taken_over.size
            self.changes.append((begin, 0, -taken_over.size))
        self._count(sum(new.values()), way.workspace)
        short = way.workspace + sum(new[v] for v in again)
        self.bytes -= sum(new[v] for v in again)
        self.changes += [(begin, 1, short), (end, 0, -short)]
        if short or again or way.workspace:
            self.device_barrier = max(self.device_barrier, end)
        for v in new.keys() - again:
            self.device[v] = _Copy(new[v], begin, end, [end])
            self.changes.append((begin, 1, new[v]))
        self.compute_end = end

    def _taken_over(self, statement: Compute) -> _Copy:
        graph, v = self.graph, statement.overwrites
        node = graph.operations[statement.operation]
        if v is None or v != node.default.overwrites or graph.persistent[v]:
            raise ScheduleError(f"{self.where} computes {node.name!r} in place of a value that it cannot overwrite")
        kept = [u for u in node.default.outputs if u not in statement.drops]
        if graph.values[v].bytes not in [graph.values[u].bytes for u in kept]:
            raise ScheduleError(f"{self.where} overwrites {self._name(v)} with an output of another size")
        return self.device.pop(v)

    def _free(self, v: int) -> None:
        copy = self._copy(v, "frees")
        if self.graph.persistent[v]:
            raise ScheduleError(f"{self.where} frees the persistent value {self._name(v)}")
        del self.device[v]
        self.bytes -= copy.size
        self._release(copy)
        self.device_barrier = max([self.device_barrier, *copy.ends])

    def _send(self, v: int) -> None:
        copy = self._copy(v, "sends")
        if v in self.host:
            raise ScheduleError(f"{self.where} sends {self._name(v)}, of which the host has a copy")
        if not self.plan.transfers.possible:
            raise ScheduleError(f"{self.where} sends {self._name(v)}, but nothing can be sent")
        end = max(self.out_end, copy.ready, self.host_barrier) + self.plan.transfers.out_seconds(copy.size)
        copy.ends.append(end)
        self.host[v] = _HostCopy(end, [end])
        self.host_bytes += copy.size
        self.host_peak = max(self.host_peak, self.host_bytes)
        self.out_end = end
        if not self.plan.transfers.duplex:
            self.back_end = end

    def _fetch(self, v: int) -> None:
        if v not in self.host:
            raise ScheduleError(f"{self.where} fetches {self._name(v)}, of which the host has no copy")
        if v in self.device:
            raise ScheduleError(f"{self.where} fetches {self._name(v)}, which is on the device")
        size = self.graph.values[v].bytes
        begin = max(self.back_end, self.compute_end, self.device_barrier, self.host[v].ready)
        end = begin + self.plan.transfers.back_seconds(size)
        self.host[v].ends.append(end)
        self._count(size)
        self.device[v] = _Copy(size, begin, end, [end])
        self.changes.append((begin, 1, size))
        self.back_end = end
        if not self.plan.transfers.duplex:
            self.out_end = end

    def _drop(self, v: int) -> None:
        if v not in self.host:
            raise ScheduleError(f"{self.where} drops the copy of {self._name(v)}, which the host does not have")
        self.host_bytes -= self.graph.values[v].bytes
        self.host_barrier = max([self.host_barrier, *self.host.pop(v).ends])
