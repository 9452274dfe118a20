"""Meters of allocated memory, cut into sections: one per operation when profiling, one per statement when measuring.

On the CPU every allocation is seen, oneDNN's reorder buffers included, and in order. That takes the events of
torch's thread-local profiler; its successor gives the same events, but writes to stderr and costs a second to start.
On CUDA the caching allocator keeps the numbers itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig
from torch.autograd.profiler import record_function

from remat_explorer.quantities import format_bytes

_SECTION = "remat_explorer.section"


@dataclass(frozen=True)
class Reading:
    """Bytes allocated since the meter started: before a section, at most within it, and after it."""

    before: int
    highest: int
    after: int


class MemoryMeter(Protocol):
    """A context in which sections are metered; ``readings`` holds one entry per section once it is left."""

    readings: list[Reading]

    def __enter__(self) -> MemoryMeter: ...
    def __exit__(self, *_: object) -> None: ...
    def section(self) -> contextlib.AbstractContextManager[Any]: ...


def memory_meter(device: torch.device) -> CpuMeter | CudaMeter:
    """The meter of a device."""
    return CudaMeter(device) if device.type == "cuda" else CpuMeter()


class CpuMeter:
    """Replays the allocations and frees that this thread made."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    def __enter__(self) -> CpuMeter:
        gc.collect()  # garbage of the caller must not be freed while the meter runs
        _pass_first_warning()
        _start_profiler()
        return self

    def __exit__(self, *_: object) -> None:
        for events in _disable_profiler_legacy():
            self.readings += _sections(events)

    def section(self) -> contextlib.AbstractContextManager[Any]:
        """A section of the readings."""
        return record_function(_SECTION)


def _start_profiler() -> None:
    _enable_profiler_legacy(ProfilerConfig(ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig()))


@functools.cache
def _pass_first_warning() -> None:
    """Let PyTorch warn where nobody reads it, once in a process.

    Of every thousand frees of memory that is older than the profiler it warns of the first, on stderr. Readings count
    only what was allocated since the meter started, so nothing is lost to them.
    """
    block = torch.empty(1)
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        _start_profiler()
        del block
        _disable_profiler_legacy()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def _sections(events: list[Any]) -> list[Reading]:
    """Readings from the profiler's flat list of pushes, pops and allocations of one thread.

    A push and its pop have the same handle. The end of a collective may be noted as a pop without a push.
    """
    readings = []
    total = before = highest = 0
    opened = None
    for event in events:
        kind = event.kind()
        if kind == "memory_alloc":
            total += event.cpu_memory_usage()
            highest = max(highest, total)
        elif kind == "push" and event.name() == _SECTION:
            opened, before, highest = event.handle(), total, total
        elif kind == "pop" and event.handle() == opened:
            readings.append(Reading(before, highest, total))
            opened = None
    return readings


@dataclass(frozen=True)
class AllocatorBytes:
    """Bytes of the whole process on a CUDA device, by what is counted.

    Attributes:
        requested: what was asked for; storages and workspaces add up to it.
        allocated: what was handed out, rounded up to the allocator's blocks.
        reserved: what the allocator has taken from the driver, in use or not; memory runs out by it, and other tools
            show it.
    """

    requested: int = 0
    allocated: int = 0
    reserved: int = 0

    @classmethod
    def of(cls, statistics: Mapping[str, int], which: str) -> AllocatorBytes:
        """From what `torch.cuda.memory_stats` gives; ``which`` is "current" or "peak"."""
        return cls(*(statistics[f"{field.name}_bytes.all.{which}"] for field in dataclasses.fields(cls)))

    def most(self, other: AllocatorBytes) -> AllocatorBytes:
        """The larger of each."""
        return AllocatorBytes(*map(max, dataclasses.astuple(self), dataclasses.astuple(other)))

    def since(self, start: AllocatorBytes, more: int = 0) -> AllocatorBytes:
        """By how much each is larger than at the start, and ``more`` bytes added to it.

        >>> print(AllocatorBytes(1100, 1536, 4096).since(AllocatorBytes(100, 512, 2048), more=24))
        requested 1.00 KiB, allocated 1.02 KiB, reserved 2.02 KiB
        """
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(start), strict=True)
        return AllocatorBytes(*(now - then + more for now, then in pairs))

    def __str__(self) -> str:
        return ", ".join(f"{name} {format_bytes(size)}" for name, size in dataclasses.asdict(self).items())


_EARLIER: dict[int, tuple[AllocatorBytes, AllocatorBytes]] = {}  # by device: peaks until a meter ended, and then


def peaks_of_process(device: torch.device) -> AllocatorBytes:
    """Peaks of the process on a CUDA device, which meters keep though they set PyTorch's own statistics back.

    They count from where the person has last called `torch.cuda.reset_peak_memory_stats`, as far as that can be seen.
    """
    now = AllocatorBytes.of(torch.cuda.memory_stats(device), "peak")
    earlier, then = _EARLIER.get(device.index or 0, (now, now))
    if now.most(then) != now:  # peaks only rise: somebody has set them back since then
        del _EARLIER[device.index or 0]
        return now
    return now.most(earlier)


class CudaMeter:
    """Reads the caching allocator's own statistics.

    Readings are requested bytes, which storages add up to. Blocks that earlier runs have left in the allocator's cache
    are given back to the driver before it starts: they would count as reserved.

    The highest bytes within a section are told by peak statistics alone, which are set back before each section and
    cannot be put back: `peaks_of_process` has what they would be. The allocator's history, which needs no such thing,
    knows no allocated bytes.

    Attributes:
        start: of the whole process, when the meter started.
        peak: of the whole process, over all sections.
    """

    def __init__(self, device: torch.device) -> None:
        self.readings: list[Reading] = []
        self.start = self.peak = AllocatorBytes()
        self._device = device
        self._earlier = AllocatorBytes()

    def __enter__(self) -> CudaMeter:
        self._earlier = peaks_of_process(self._device)
        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        self.start = self.peak = AllocatorBytes.of(self._statistics(), "current")
        return self

    def __exit__(self, *_: object) -> None:
        torch.cuda.synchronize(self._device)
        then = AllocatorBytes.of(self._statistics(), "peak")
        _EARLIER[self._device.index or 0] = self._earlier.most(self.peak).most(then), then

    def _statistics(self) -> dict[str, int]:
        return torch.cuda.memory_stats(self._device)

    @contextlib.contextmanager
    def section(self) -> Iterator[None]:
        """A section of the readings."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before, start = AllocatorBytes.of(self._statistics(), "current"), self.start.requested
        yield
        statistics = self._statistics()
        after, peak = (AllocatorBytes.of(statistics, which) for which in ("current", "peak"))
        self.readings.append(Reading(before.requested - start, peak.requested - start, after.requested - start))
        self.peak = self.peak.most(peak)


def released_library_workspaces(device: torch.device) -> int:
    """Let cuBLAS give up the memory that it keeps from its first call on, and count its bytes; 0 on the CPU.

    cuBLAS and cuBLASLt keep one workspace each for every thread and stream that has called them, 32 MiB for cuBLAS on
    Hopper, or what CUBLAS_WORKSPACE_CONFIG and CUBLASLT_WORKSPACE_SIZE say. A backward pass of autograd is a thread of
    its own. They come from PyTorch's allocator, and are there again at the next call.

    Source: PyTorch's notes on CUDA semantics, "cuBLAS workspaces".
    """
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_stats(device)["requested_bytes.all.current"]
    torch._C._cuda_clearCublasWorkspaces()  # type: ignore[attr-defined]
    return before - torch.cuda.memory_stats(device)["requested_bytes.all.current"]
