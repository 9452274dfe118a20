"""Seconds of a run on a device that may still be computing when a call returns.

A whole run is timed by the clock of the wall, launches of kernels included: that is what a person waits for. Parts of
a run are timed one by one. On CUDA two events around each part, read when all are over, give the time of its kernels
alone: waiting for the device around each part would add the launch of its first kernel and the way back, some ten
microseconds, which for a small operation is more than the operation.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

LEAD = 200_000  # cycles for which the device waits before a part: 0.1 ms at 2 GHz, in which its kernels are launched


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(run: Callable[[], object], device: torch.device) -> float:
    """Wall time of a run; the device is waited for before and after it.

    >>> seconds_of(lambda: torch.ones(8).sum(), torch.device("cpu")) > 0
    True
    """
    synchronize(device)
    begin = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - begin


class Laps(Protocol):
    """Times the parts of a run, each within a context."""

    def lap(self) -> AbstractContextManager[Any]: ...
    def seconds(self) -> list[float]: ...


def laps_on(device: torch.device) -> Laps:
    """The laps of a device.

    >>> laps = laps_on(torch.device("cpu"))
    >>> for _ in range(2):
    ...     with laps.lap():
    ...         x = torch.ones(8)
    >>> [seconds > 0 for seconds in laps.seconds()]
    [True, True]
    """
    return CudaLaps(device) if device.type == "cuda" else CpuLaps()


class CpuLaps:
    """Reads the clock before and after each part."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._begin = 0.0

    def lap(self) -> CpuLaps:
        """One part; it counts once it has ended without an error."""
        return self

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, error: object, *_: object) -> None:
        end = time.perf_counter()
        if error is None:
            self._seconds.append(end - self._begin)

    def seconds(self) -> list[float]:
        """Of each part."""
        return list(self._seconds)


class CudaLaps:
    """Records an event before and one after each part, in the stream where its kernels run.

    The device first waits for a moment, so that the first kernel is there when the first event is over. A part whose
    launches take longer than that still counts the gaps between its kernels.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextlib.contextmanager
    def lap(self) -> Iterator[None]:
        """One part; it counts once it has ended without an error."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(self._device):
            torch.cuda._sleep(LEAD)
            begin.record()
            yield
            end.record()
        self._events.append((begin, end))

    def seconds(self) -> list[float]:
        """Of each part; waits until the device has done all of them."""
        synchronize(self._device)
        return [begin.elapsed_time(end) / 1000 for begin, end in self._events]
