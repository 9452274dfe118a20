"""Copies of values on the host while a plan runs: who makes them, and what waits for what.

The thread that computes takes the statements of a `TransferPlan` in their order; copies go on beside it, each way in
the order of the list. There are five waits, and each is needed:

- `arrive`: whoever reads a value waits for its fetch
- `settle`: before its memory is freed or overwritten, a value's sends and its fetch are done
- a fetch begins when everything listed before it is computed, and its memory is taken in the order of the list
- a send begins when the value's fetch is done
- a send begins when the host's memory that was dropped before it is free, which the last fetch of it may still read

That a fetch waits for its send follows: a value is fetched after it was freed, and the free has waited.

`CopyThreads` copy into the host's memory, or into files, on the CPU; `CopyStreams` into pinned memory, on CUDA. Memory
on the device is PyTorch's and is counted by its meters; copies are not, and count themselves.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remat_explorer.errors import ArgumentError, ExecutionError, shown
from remat_explorer.offload import Drop, Send, TransferPlan
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import exact_bytes

HOST, DISK = TIERS = "host", "disk"
CHUNK = 8 << 20  # bytes that are copied between two looks at whether to stop
POLL = 0.05  # seconds between two questions whether a run is cancelled
PATIENCE = 0.5  # seconds that a run which ends waits for a thread; the system may hold a write for ever
AnyPlan = Plan | TransferPlan


@dataclass(frozen=True)
class Tier:
    """Where copies lie: in the host's memory, or in files of a folder, the system's for temporary files by default.

    Raises:
        ArgumentError: if there is no such tier, or a folder is given for copies in memory, or one that is not there.
    """

    name: str = HOST
    folder: str | Path | None = None
    _idle: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)  # `_Engines` of no run

    def __post_init__(self) -> None:
        if self.name not in TIERS:
            raise ArgumentError(f"tier={shown(self.name)} is neither 'host' nor 'disk'")
        if self.folder is not None and self.name != DISK:
            raise ArgumentError(f"folder={shown(str(self.folder))} is for tier='disk', whose copies are files")
        if self.folder is not None and not (os.path.isdir(self.folder) and os.access(self.folder, os.W_OK | os.X_OK)):
            raise ArgumentError(f"folder={shown(str(self.folder))} is no folder that can be written; give one that is")

    def open(self, plan: TransferPlan, device: torch.device, cancelled: Callable[[], bool] = lambda: False) -> Copies:
        """Copies for one run of a plan; to be closed."""
        if device.type == "cpu":
            return CopyThreads(plan, self, cancelled)
        if self.name == DISK or device.type != "cuda":
            raise ExecutionError(f"tier={self.name!r} is not for a model on {device}; copies are made on CPU and CUDA")
        return CopyStreams(plan, device, self._idle)


def statement_text(plan: AnyPlan, place: int) -> str:
    """A statement of a plan as people read it."""
    statement: Any = plan.statements[place]
    return plan.text(statement)


@contextlib.contextmanager
def open_copies(
    tier: Tier, plan: AnyPlan, device: torch.device, cancelled: Callable[[], bool] = lambda: False
) -> Iterator[Copies | None]:
    """Copies for one run of a plan, None where it sends nothing; all of them are done, or given up, when it ends."""
    if not isinstance(plan, TransferPlan):
        yield None
        return
    copies = tier.open(plan, device, cancelled)
    try:
        yield copies
        copies.finish()
    finally:
        copies.close()


@dataclass(eq=False)
class HostCopy:
    """One copy of a value: its layout, where it lies, and the jobs that use it."""

    value: int
    sent: int  # index of the statement
    size: int
    dtype: torch.dtype
    layout: tuple[int, torch.Size, tuple[int, ...]]  # offset in the storage, shape, strides
    buffer: Any = None
    taken: int = 0  # bytes that the buffer or the file has
    dropped: int | None = None  # index of the statement
    users: list[Any] = field(default_factory=list)  # jobs: its send, and fetches


class Copies(ABC):
    """The copies of one run. ``place`` is the index of a statement, ``value`` an id of the graph."""

    def __init__(self, plan: TransferPlan, device: torch.device) -> None:
        self.plan, self.device = plan, device
        self.changes: list[tuple[int, int]] = []  # statement, bytes that it took on the host
        self._host: dict[int, HostCopy] = {}
        self._arriving: dict[int, Any] = {}  # fetches that nobody has waited for
        self._leaving: dict[int, list[Any]] = {}  # sends of what is on the device now
        self._dropped: list[Any] = []  # fetches of what was dropped, until a send has waited for them

    def send(self, place: int, value: int, tensor: torch.Tensor) -> None:
        """Begin to copy a value to the host."""
        storage = tensor.untyped_storage()
        layout = int(tensor.storage_offset()), tensor.shape, tensor.stride()
        copy = self._host[value] = HostCopy(value, place, storage.nbytes(), tensor.dtype, layout)
        after, self._dropped = self._dropped, []
        if value in self._arriving and self._arriving[value] not in after:
            after.append(self._arriving[value])
        job = self._copy_out(place, copy, storage, after if self.plan.transfers.duplex else ())
        copy.users.append(job)
        self._leaving.setdefault(value, []).append(job)

    def fetch(self, place: int, value: int) -> torch.Tensor:
        """Memory for a value, into which it begins to be copied."""
        copy = self._host[value]
        storage = torch.UntypedStorage(copy.size, device=self.device)
        self._arriving[value] = job = self._copy_back(place, copy, storage)
        copy.users.append(job)
        return torch.empty(0, dtype=copy.dtype, device=self.device).set_(storage, *copy.layout)

    def arrive(self, value: int) -> None:
        """To be called before a value is read."""
        if (job := self._arriving.pop(value, None)) is not None:
            self._wait(job)

    def settle(self, value: int) -> None:
        """To be called before an operation takes a value's memory over."""
        for job in self._leaving.pop(value, ()):
            self._wait(job)
        self.arrive(value)

    def free(self, value: int, tensor: torch.Tensor) -> None:
        """To be called before a value is freed: until then, ``tensor`` is its memory."""
        self.settle(value)

    def drop(self, place: int, value: int) -> None:
        """Give up the host's copy of a value, as soon as the jobs that use it are done."""
        copy = self._host.pop(value)
        copy.dropped = place
        self._dropped += copy.users[1:][-1:]
        self._release(copy)

    def _failure(self, place: int, error: Exception, where: str, advice: str) -> ExecutionError:
        copy, count = self.plan.statements[place], len(self.plan.statements)
        size = 0 if isinstance(copy, Compute) else self.plan.graph.values[copy.value].bytes
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        return ExecutionError(
            f"{self.plan.text(copy)!r} (statement {place + 1} of {count}) could not copy {exact_bytes(size)}{where}: "
            f"{reason.splitlines()[0]}; the step has ended there, and its copies are removed. {advice}"
        )

    @property
    def host_bytes(self) -> np.ndarray:
        """Bytes of copies on the host after each statement, by the sizes that buffers and files have had; int64."""
        changes = np.zeros(len(self.plan.statements), dtype=np.int64)
        for place, change in self.changes:
            changes[place] += change
        return np.cumsum(changes)

    @abstractmethod
    def finish(self) -> None:
        """Wait for what is still under way. An ExecutionError if a copy has failed."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is still under way, and every copy; nothing goes on afterwards."""

    @abstractmethod
    def _copy_out(self, place: int, copy: HostCopy, storage: torch.UntypedStorage, after: Sequence[Any]) -> Any: ...
    @abstractmethod
    def _copy_back(self, place: int, copy: HostCopy, storage: torch.UntypedStorage) -> Any: ...
    @abstractmethod
    def _wait(self, job: Any) -> None: ...
    @abstractmethod
    def _release(self, copy: HostCopy) -> None: ...


@dataclass(eq=False)
class _Job:
    """A copy that a thread makes; it holds the device's memory until it is done."""

    place: int
    copy: HostCopy
    storage: torch.UntypedStorage | None
    out: bool
    after: Sequence[_Job] = ()
    done: bool = False


@dataclass(eq=False)
class _Lane:
    """An engine: its jobs in order, and the thread that does them while there are any."""

    jobs: deque[_Job] = field(default_factory=deque)
    thread: threading.Thread | None = None


class CopyThreads(Copies):
    """Copies by a thread for each way, or one for both; a thread ends when it has nothing to do.

    What waits for them asks ``cancelled`` every `POLL` seconds.
    """

    def __init__(self, plan: TransferPlan, tier: Tier, cancelled: Callable[[], bool] = lambda: False) -> None:
        super().__init__(plan, torch.device("cpu"))
        self.tier, self.cancelled = tier, cancelled
        self.held = self.most_held = 0  # bytes on the host by the clock
        self._changed = threading.Condition()
        self._out = _Lane()
        self._back = _Lane() if plan.transfers.duplex else self._out
        self._stopping = False
        self._failed: tuple[int, Exception] | None = None
        self._folder: Path | None = None

    def finish(self) -> None:
        self._wait_until(lambda: self._out.thread is None and self._back.thread is None)

    def close(self) -> None:
        with self._changed:
            self._stopping = True
            threads = [lane.thread for lane in (self._out, self._back) if lane.thread is not None]
            self._changed.notify_all()
        for thread in threads:
            thread.join(PATIENCE)  # one that is stuck holds the memory that it copies
        self._host.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _copy_out(self, place: int, copy: HostCopy, storage: torch.UntypedStorage, after: Sequence[_Job]) -> _Job:
        return self._begin(self._out, _Job(place, copy, storage, True, after))

    def _copy_back(self, place: int, copy: HostCopy, storage: torch.UntypedStorage) -> _Job:
        return self._begin(self._back, _Job(place, copy, storage, False))

    def _begin(self, lane: _Lane, job: _Job) -> _Job:
        with self._changed:
            self._raise_if_failed()
            lane.jobs.append(job)
            if lane.thread is None:
                lane.thread = threading.Thread(target=self._work, args=(lane,), name="remat_explorer copy", daemon=True)
                lane.thread.start()
        return job

    def _wait(self, job: _Job) -> None:
        self._wait_until(lambda: job.done)

    def _wait_until(self, over: Callable[[], bool]) -> None:
        with self._changed:
            while not over() and self._failed is None:
                if self.cancelled():
                    raise ExecutionError("execution was cancelled while a copy was waited for")
                self._changed.wait(POLL)
            self._raise_if_failed()

    def _raise_if_failed(self) -> None:
        if self._failed is None:
            return
        where = f" in {str(self._folder or self.tier.folder)!r}" if self.tier.name == DISK else ""
        raise self._failure(*self._failed, where, _ADVICE[self.tier.name])

    def _work(self, lane: _Lane) -> None:
        """Do the jobs of a lane, in a thread of its own."""
        while (job := self._next(lane)) is not None:
            try:
                self._run(job)
            except Exception as error:
                self._fail(job.place, error)
            job.storage, job.after = None, ()  # before anybody is told: whoever waited frees the memory
            with self._changed:
                job.done = not self._stopping
                self._give_back(job.copy)
                self._changed.notify_all()

    def _fail(self, place: int, error: Exception) -> None:
        with self._changed:
            self._failed = self._failed or (place, error.with_traceback(None))  # locals hold memory
            self._stopping = True

    def _next(self, lane: _Lane) -> _Job | None:
        """The next job, when it may begin; None if there is none."""
        with self._changed:
            while not self._stopping and lane.jobs:
                if all(job.done for job in lane.jobs[0].after):
                    return lane.jobs.popleft()
                self._changed.wait()
            lane.jobs.clear()
            lane.thread = None
            self._changed.notify_all()
            return None

    def _run(self, job: _Job) -> None:
        assert job.storage is not None
        copy, there = job.copy, torch.empty(0, dtype=torch.uint8).set_(job.storage).numpy()
        if job.out:
            self._take(copy)
        if isinstance(copy.buffer, Path):
            self._copy_file(copy.buffer, there, job.out)
        else:
            source, target = (there, copy.buffer) if job.out else (copy.buffer, there)
            for begin in self._chunks(len(there)):
                target[begin : begin + CHUNK] = source[begin : begin + CHUNK]
        if job.out:
            copy.taken = copy.buffer.stat().st_size if isinstance(copy.buffer, Path) else copy.buffer.nbytes
            self.changes.append((copy.sent, copy.taken))

    def _take(self, copy: HostCopy) -> None:
        """The buffer of a copy, or the name of its file."""
        if self.tier.name == DISK:
            copy.buffer = self._own_folder() / f"{copy.sent}"
        else:
            copy.buffer = np.empty(copy.size, dtype=np.uint8)
        with self._changed:
            self.held += copy.size
            self.most_held = max(self.most_held, self.held)

    def _own_folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="remat_explorer-", dir=self.tier.folder))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)  # of a run that nobody ends
        return self._folder

    def _copy_file(self, path: Path, there: np.ndarray, out: bool) -> None:
        with open(path, "xb" if out else "rb", buffering=0) as file:
            for begin in self._chunks(len(there)):
                part, done = there[begin : begin + CHUNK].data, 0
                while done < len(part):
                    moved = file.write(part[done:]) if out else file.readinto(part[done:])
                    if not moved:
                        raise OSError(errno.EIO, "the file is shorter than what was written to it")
                    done += moved

    def _chunks(self, size: int) -> Iterator[int]:
        for begin in range(0, size, CHUNK):
            if self._stopping:
                return
            yield begin

    def _release(self, copy: HostCopy) -> None:
        with self._changed:
            self._give_back(copy)

    def _give_back(self, copy: HostCopy) -> None:
        """Release a copy that was dropped, when nobody uses it."""
        if copy.dropped is None or copy.buffer is None or not all(job.done for job in copy.users):
            return
        if isinstance(copy.buffer, Path):
            try:
                copy.buffer.unlink()
            except OSError as error:
                self._fail(copy.dropped, error)
        copy.buffer = None
        self.held -= copy.size
        self.changes.append((copy.dropped, -copy.taken))


_ADVICE = {
    HOST: "Give less host memory, as in Transfers(..., host_bytes=...), or tier='disk'",
    DISK: "Make room there, or give another folder=...",
}


@dataclass(eq=False)
class _Engines:
    """Streams and pinned buffers; one run has them at a time, and the next one takes them over.

    Making a pinned buffer stops the device, and PyTorch rounds its bytes up to a power of two.
    """

    device: torch.device
    out: Any
    back: Any
    buffers: dict[int, list[torch.Tensor]] = field(default_factory=dict)  # free ones, by their bytes


@dataclass(eq=False)
class _Flight:
    """A copy under way: what tells that it is done, and the device's memory, which it holds until somebody waits."""

    done: Any
    storage: torch.UntypedStorage | None


class CopyStreams(Copies):
    """Copies by two CUDA streams beside the one that computes, or by one for both ways.

    Memory is taken and freed on the stream that computes, in the order of the list. Before a value is freed, that
    stream waits for its copies: nobody else has to know, as `torch.Tensor.record_stream` would ask for, after which the
    peak depends on time. A copy back waits for all that was computed before: its memory may have been somebody's. A
    copy out does, too, so plans list it right behind what computes the value, or it begins later than predicted.

    The host waits for nothing. Autograd's engine runs a backward pass on the stream of its forward pass, where memory
    of both is freed. A run that nobody ends, whose backward pass is never asked for, lets that stream wait before the
    memory of its copies is somebody else's.
    """

    _engines: _Engines | None = None

    def __init__(self, plan: TransferPlan, device: torch.device, idle: list[_Engines] | None = None) -> None:
        super().__init__(plan, device)
        self._idle = [] if idle is None else idle
        self._begun_on = self._main()
        engines = self._take_engines()
        before, engines.buffers = engines.buffers, {}
        for place, size in buffers_of(plan):
            kept = before.get(size)
            engines.buffers.setdefault(size, []).append(kept.pop() if kept else self._made_before(place, size))
        self._out, self._back, self._buffers = engines.out, engines.back, engines.buffers
        self._engines = engines

    def finish(self) -> None:
        """Nothing: all that the plan reads has been waited for, and `close` waits for the rest."""

    def close(self) -> None:
        engines, self._engines = self._engines, None
        if engines is None:
            return
        for main in (self._begun_on, self._main()):
            main.wait_stream(engines.out)
            main.wait_stream(engines.back)
        for copy in self._host.values():
            engines.buffers[copy.size].append(copy.buffer)
        self._host.clear()
        self._arriving.clear()
        self._leaving.clear()
        self._idle.append(engines)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the process may be ending
            self.close()

    def _take_engines(self) -> _Engines:
        try:
            engines = self._idle.pop()
        except IndexError:
            return _Engines(self.device, *self._copy_streams())
        if engines.device != self.device or (engines.out is engines.back) == self.plan.transfers.duplex:
            return _Engines(self.device, *self._copy_streams())
        engines.out.wait_stream(engines.back)  # which may still read the buffers
        return engines

    def _copy_streams(self) -> tuple[Any, Any]:
        """Streams of their own: PyTorch has 32, and gives them out in turns."""
        found: list[Any] = [self._main()]
        while len(found) < 2 + self.plan.transfers.duplex:
            stream = torch.cuda.Stream(self.device)
            if stream not in found:
                found.append(stream)
        return found[1], found[-1]

    def _main(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def _made_before(self, place: int, size: int) -> torch.Tensor:
        try:
            return self._new_buffer(size)
        except RuntimeError as error:
            statement = self.plan.statements[place]
            raise ExecutionError(
                f"there is no pinned memory of {exact_bytes(size)} for {self.plan.text(statement)!r} (statement "
                f"{place + 1} of {len(self.plan.statements)}): {str(error).splitlines()[0]}; no statement has run. "
                "Give less host memory, as in Transfers(..., host_bytes=...)"
            ) from None

    def _new_buffer(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def _copy(self, stream: Any, target: torch.Tensor, source: torch.Tensor) -> None:
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)

    def _fly(
        self, place: int, stream: Any, after: Sequence[Any], copy: HostCopy, storage: torch.UntypedStorage, out: bool
    ) -> _Flight:
        there = torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage)
        target, source = (copy.buffer, there) if out else (there, copy.buffer)
        try:
            for event in (self._main().record_event(), *after):
                stream.wait_event(event)
            self._copy(stream, target, source)
            return _Flight(stream.record_event(), storage)
        except RuntimeError as error:
            raise self._failure(place, error, "", _ADVICE[HOST]) from None

    def _copy_out(self, place: int, copy: HostCopy, storage: torch.UntypedStorage, after: Sequence[_Flight]) -> _Flight:
        free = self._buffers.setdefault(copy.size, [])
        copy.buffer = free.pop() if free else self._made_before(place, copy.size)
        self.changes.append((place, copy.buffer.nbytes))
        return self._fly(place, self._out, [flight.done for flight in after], copy, storage, True)

    def _copy_back(self, place: int, copy: HostCopy, storage: torch.UntypedStorage) -> _Flight:
        return self._fly(place, self._back, (), copy, storage, False)

    def _wait(self, job: _Flight) -> None:
        self._main().wait_event(job.done)
        job.storage = None

    def _release(self, copy: HostCopy) -> None:
        self.changes.append((copy.dropped or 0, -copy.buffer.nbytes))
        self._buffers[copy.size].append(copy.buffer)


def buffers_of(plan: TransferPlan) -> list[tuple[int, int]]:
    """The buffers that a plan needs where one serves copies of its size alone: the first statement, and bytes."""
    found: list[tuple[int, int]] = []
    free: Counter[int] = Counter()
    for place, statement in enumerate(plan.statements):
        if isinstance(statement, Send | Drop):
            size = plan.graph.values[statement.value].bytes
            if isinstance(statement, Drop):
                free[size] += 1
            elif free[size]:
                free[size] -= 1
            else:
                found.append((place, size))
    return found
