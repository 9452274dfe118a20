"""Random plans that send values, and copies that lie in wait: memory that is freed or not filled yet holds NaN."""

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.capture.model_placement import exact_kernels
from remat_explorer.errors import ExecutionError
from remat_explorer.graph import Graph
from remat_explorer.offload import Drop, Fetch, Send, TransferPlan, Transfers, check_transfers
from remat_explorer.offload.transfer_plan import Event
from remat_explorer.plan import Compute, Free
from remat_explorer.runtime.comparison import Comparison, compare
from remat_explorer.runtime.copies import CopyThreads, HostCopy, Tier, open_copies
from remat_explorer.runtime.first_difference import ObservedPlan
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.generated_step import generate
from remat_explorer.runtime.interpreter import Interpreter
from remat_explorer.runtime.training_run import train
from tests.runtime.exactness import CPU, SEED, Exactness
from tests.runtime.random_schedules import random_schedule

NAN = 0xFF  # of every byte: no number in any floating-point type
LATENESS = 0.0005  # seconds that a delayed copy is late, at most


def random_plan(graph: Graph, seed: int, odd: bool = True, costs: bool = True, late: bool = True) -> TransferPlan:
    """A legal plan that recomputes at random and sends at random, with frees late by a clock of random speeds.

    ``odd`` plans also fetch what nobody reads, send a value a second time, and drop copies early. Sends stand right
    behind what computes their values, unless ``late``.
    """
    draw = np.random.default_rng(seed)
    schedule = random_schedule(graph, seed, float(draw.choice([0.0, 0.3, 0.6])), 0.02)
    sequence = [(t, k) for t, k, _ in schedule.sequence]
    if costs:
        ways = [
            replace(op, implementations=(replace(op.default, cost=float(draw.random())),)) for op in graph.operations
        ]
        graph = replace(graph, operations=tuple(ways))
    size = max(1, int(np.mean([v.bytes for v in graph.values])))
    rate = lambda: size * float(draw.choice([0.3, 1.0, 4.0, 1e6]))  # noqa: E731
    transfers = Transfers(rate(), rate(), float(draw.choice([0.0, 0.1])), duplex=bool(draw.random() < 0.6))
    plan = TransferPlan.from_events(graph, transfers, _events(graph, sequence, draw, late))
    statements = list(plan.statements)
    if odd:
        _drop_early(statements, draw)
        _fetch_for_nobody(statements, draw)
        _send_again(statements, draw)
    return check_transfers(replace(plan, statements=tuple(statements))).plan


def _events(graph: Graph, sequence: list[tuple[int, int]], draw: np.random.Generator, late: bool) -> list[Event]:
    uses: dict[int, list[list[int]]] = defaultdict(list)  # of each version: where it is made, and read
    for i, (_, k) in enumerate(sequence):
        for v in graph.inputs(k):
            uses[v][-1].append(i)
        for v in graph.outputs(k):
            uses[v].append([i])
    behind: dict[int, list[tuple[float, str, int]]] = defaultdict(list)  # computation: what follows it, in order
    for v, versions in uses.items():
        if graph.persistent[v] or draw.random() < 0.3:
            continue
        sent = False
        for version in versions:
            for a, b in pairwise(version):
                if b - a < 2 or draw.random() < 0.3:
                    continue
                if not sent:
                    at = int(draw.integers(version[0], b)) if late else version[0]
                    behind[at].append((0.0, "send", v))
                    sent, a = True, max(a, at)
                behind[int(draw.integers(a, b))].append((draw.random() + 1, "fetch", v))
    events: list[Event] = []
    for i, (stage, k) in enumerate(sequence):
        events.append(("compute", stage, k))
        later = sequence[min(i + 1, len(sequence) - 1)][0]
        events += [(verb, stage if verb == "send" else later, v) for _, verb, v in sorted(behind[i])]
    return events


def _drop_early(statements: list[Any], draw: np.random.Generator) -> None:
    for drop in [one for one in statements if isinstance(one, Drop)]:
        if draw.random() < 0.6:
            last = max(i for i, one in enumerate(statements) if _of(one, drop.value) and isinstance(one, Send | Fetch))
            statements.remove(drop)
            statements.insert(last + 1, drop)


def _fetch_for_nobody(statements: list[Any], draw: np.random.Generator) -> None:
    for free in [one for one in statements if isinstance(one, Free)]:
        at = next(i for i, one in enumerate(statements) if one is free)
        before = [one for one in statements[:at] if _of(one, free.value) and isinstance(one, Send | Drop)]
        if before and isinstance(before[-1], Send) and draw.random() < 0.2:
            statements[at + 1 : at + 1] = [Fetch(free.stage, free.value), Free(free.stage, free.value)]


def _send_again(statements: list[Any], draw: np.random.Generator) -> None:
    for fetch in [one for one in statements if isinstance(one, Fetch)]:
        at = next(i for i, one in enumerate(statements) if one is fetch)
        if draw.random() < 0.3 and not any(
            _of(one, fetch.value) and isinstance(one, Drop) for one in statements[: at + 2]
        ):
            statements[at + 1 : at + 1] = [Drop(fetch.stage, fetch.value), Send(fetch.stage, fetch.value)]


def _of(statement: Any, value: int) -> bool:
    return not isinstance(statement, Compute) and statement.value == value


class CaughtError(AssertionError):
    """Memory was used while somebody else could have it."""


class LyingInWait(CopyThreads):
    """Copies that are as late as they may be, over memory that tells who came too early, or too late.

    Memory on the device holds NaN before it is filled and after it is freed; nobody may write to it then, and the host
    never holds more than the list says. Every copy must hold what its value held when it was sent first, and be done
    before its memory is overwritten, be it by the same bytes. The wait
    numbered ``removed``, of those for what is not done yet, is left out; ``waits`` says what each was for. A copy
    begins when somebody waits for it, or for another one behind it; a copy out whose own wait is left out, at once.
    """

    def __init__(self, plan: TransferPlan, tier: Tier, removed: int | None = None) -> None:
        super().__init__(plan, tier)
        self.waits: list[str] = []
        self.removed, self.lost = removed, None  # the number of a wait, and the job that nobody waits for
        self.covered = False  # whether another wait of the same statement does all the same
        self._jobs: list[Any] = []
        self._may_begin: set[int] = set()
        self._after: dict[int, list[Any]] = {}
        self._freed: list[torch.UntypedStorage] = []
        self._too_late: list[Any] = []  # jobs whose memory was overwritten
        self._content: dict[int, np.ndarray] = {}

    def send(self, place: int, value: int, tensor: torch.Tensor) -> None:
        if value not in self._content:
            self._content[value] = _bytes(tensor.untyped_storage()).copy()
        super().send(place, value, tensor)

    def arrive(self, value: int) -> None:
        job = self._arriving.get(value)
        if job is not None and self._left_out("fetch", job):
            del self._arriving[value]
        super().arrive(value)

    def settle(self, value: int) -> None:
        self._leaving[value] = [job for job in self._leaving.get(value, ()) if not self._left_out("send", job)]
        super().settle(value)

    def free(self, value: int, tensor: torch.Tensor) -> None:
        super().free(value, tensor)
        self._freed.append(tensor.untyped_storage())
        _bytes(self._freed[-1]).fill(NAN)

    def finish(self) -> None:
        self._allow(None)
        super().finish()
        if any(storage.tolist() != [NAN] * storage.nbytes() for storage in self._freed):
            raise CaughtError("something was written to memory that was freed")

    def _copy_out(self, place: int, copy: HostCopy, storage: torch.UntypedStorage, after: Any) -> Any:
        waited = {id(job) for jobs in self._after.values() for job in jobs}
        needed = [job for job in after if id(job) in waited or not self._left_out("order", job)]
        job = super()._copy_out(place, copy, storage, needed)
        if len(needed) < len(after):
            self._wait(job)
        return job

    def _copy_back(self, place: int, copy: HostCopy, storage: torch.UntypedStorage) -> Any:
        _bytes(storage).fill(NAN)
        return super()._copy_back(place, copy, storage)

    def _begin(self, lane: Any, job: Any) -> Any:
        self._jobs.append((lane, job))
        self._after[id(job)] = list(job.after)
        return super()._begin(lane, job)

    def _wait(self, job: Any) -> None:
        self._allow(job)
        super()._wait(job)

    def _left_out(self, what: str, job: Any) -> bool:
        if job.done:
            return False
        self.waits.append(what)
        if len(self.waits) - 1 != self.removed:
            return False
        self.lost = job
        return True

    def statement_over(self) -> None:
        """To be called between two statements."""
        if self.lost is not None:
            if not self.lost.done and self.waits[self.removed or 0] == "send":
                self._too_late.append(self.lost)
            self.covered, self.lost = self.covered or self.lost.done, None

    def _allow(self, job: Any) -> None:
        """Let a job begin, all before it in its lane, and what these wait for; all jobs for None."""
        waiting, lanes = [], [one for one, other in self._jobs if other is job]
        for lane, other in self._jobs:
            if job is None or (lane in lanes and id(other) not in self._may_begin):
                self._may_begin.add(id(other))
                waiting += self._after[id(other)]
            if other is job:
                break
        with self._changed:
            self._changed.notify_all()
        for other in waiting:
            if id(other) not in self._may_begin:
                self._allow(other)

    def _run(self, job: Any) -> None:
        with self._changed:
            while id(job) not in self._may_begin and not self._stopping:
                self._changed.wait()
        super()._run(job)
        if job in self._too_late:
            raise CaughtError("a copy is of memory that was overwritten")
        if not self._stopping and not np.array_equal(_bytes(job.storage), self._content[job.copy.value]):
            raise CaughtError("a copy is not what was sent")

    def _take(self, copy: HostCopy) -> None:
        super()._take(copy)
        if self.held > self.plan.timeline.host[copy.sent]:
            raise CaughtError("the host holds more than the list says")


def _bytes(storage: torch.UntypedStorage) -> np.ndarray:
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy()


class Late(CopyThreads):
    """Copies that are late by a random time."""

    def __init__(self, plan: TransferPlan, tier: Tier, seed: int) -> None:
        super().__init__(plan, tier)
        self._draw = np.random.default_rng(seed)

    def _run(self, job: Any) -> None:
        time.sleep(self._draw.random() * LATENESS)
        super()._run(job)


@dataclass(frozen=True)
class Opening(Tier):
    """A tier whose copies are made by a function; ``opened`` has those of the last run."""

    make: Callable[[TransferPlan, Tier], CopyThreads] = CopyThreads
    opened: list[CopyThreads] = field(default_factory=list)

    def open(self, plan: TransferPlan, device: torch.device, cancelled: Any = lambda: False) -> CopyThreads:
        self.opened[:] = [self.make(plan, self)]
        if not isinstance(self.opened[0], LyingInWait):  # which is asked between statements only
            self.opened[0].cancelled = cancelled
        return self.opened[0]


Seen = list[tuple[int, int, Any]]


def watch(exactness: Exactness, plan: TransferPlan, removed: int | None = None) -> tuple[LyingInWait, Seen | None]:
    """A run over lying memory without one wait; all that it computes, by statement and value, None if it was caught."""
    tier = Opening(make=lambda plan, tier: LyingInWait(plan, tier, removed))

    def between() -> bool:
        tier.opened[0].statement_over()  # type: ignore[attr-defined]
        return False

    registers = exactness.program.bind(exactness.model, exactness.tensors)
    seen: Seen | None = None
    with torch.random.fork_rng(), exact_kernels(), contextlib.suppress(CaughtError, ExecutionError):
        torch.manual_seed(SEED)
        observed = ObservedPlan(Interpreter(plan, exactness.program, CPU, tier), registers, between)
        seen = [(version.statement, version.value, version.content) for version in observed.versions]
    copies = tier.opened[0]
    assert isinstance(copies, LyingInWait)
    return copies, seen


def waits_left_out(exactness: Exactness, plan: TransferPlan, most: int | None = None) -> Counter[tuple[str, str]]:
    """For each wait of a plan what becomes of a run without it: "caught", "covered" by another wait, or "missed"."""
    copies, clean = watch(exactness, plan)
    assert clean is not None
    found: Counter[tuple[str, str]] = Counter()
    for number, what in list(enumerate(copies.waits))[:most]:
        without, seen = watch(exactness, plan, number)
        fate = "caught" if seen != clean else "covered" if without.covered else "missed"
        found[what, fate] += 1
    return found


def outcome(exactness: Exactness, plan: TransferPlan, tier: Tier, generated: bool = False) -> Comparison:
    """A run, interpreted or by generated code, compared with plain PyTorch."""
    make = generate if generated else Interpreter
    step = make(plan, exactness.program, exactness.device, tier)
    final = exactness._from_seed(lambda: step.run(exactness.program.bind(exactness.model, exactness.tensors)))
    return compare(final, exactness.reference, exactness.initial)


def trained(exactness: Exactness, plan: TransferPlan, tier: Tier) -> Comparison:
    """A training step by autograd, compared with plain PyTorch."""
    halves = ForwardBackward.of(plan, exactness.program, exactness.device, tier=tier)
    run = partial(train, halves, exactness.model, exactness.tensors, exactness.leaves)
    final = exactness._from_seed(lambda: exactness._trained(run()))
    return compare(final, exactness.reference, exactness.initial)


def readings(exactness: Exactness, plan: TransferPlan, tier: Tier) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measured bytes of a run: on the device during and after each statement, without workspace; on the host after."""
    device = exactness.device
    meter, registers = memory_meter(device), exactness.program.bind(exactness.model, exactness.tensors)
    with torch.random.fork_rng(), meter, open_copies(tier, plan, device) as copies:
        Interpreter(plan, exactness.program, device).run(registers, meter.section, copies=copies)
    assert copies is not None
    resident = plan.graph.resident_bytes
    during, after = ([getattr(one, name) + resident for one in meter.readings] for name in ("highest", "after"))
    return np.array(during), np.array(after), copies.host_bytes
