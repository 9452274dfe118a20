"""Times of the parts of a run: by the clock on the CPU, by events on CUDA, which is played by a stand-in here."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import stopwatch, trace
from remat_explorer.capture.profiling import ChoicesRun, ProfilingRun, everything
from remat_explorer.capture.stopwatch import LEAD, CudaLaps, laps_on
from remat_explorer.capture.storage_census import StorageCensus
from tests.capture.cuda_stand_in import GPU


@dataclass
class StandIn:
    """A device with one stream, and a host that is slow to launch.

    Attributes:
        now: the host's clock, in microseconds.
        free: when the device has done what it was asked for.
        waits: how often the host has waited for the device.
    """

    now: float = 0.0
    free: float = 0.0
    waits: int = 0
    calls: list[str] = field(default_factory=list)

    def launch(self, duration: float) -> None:
        """A kernel: the host takes 10 microseconds for it, and the device begins when it is there."""
        self.now += 10
        self.free = max(self.free, self.now) + duration
        self.calls.append("kernel")

    def sleep(self, cycles: int) -> None:
        self.free = max(self.free, self.now) + cycles / 2000  # 2 GHz
        self.calls.append("sleep")

    def synchronize(self, device: Any = None) -> None:
        self.now, self.waits = max(self.now, self.free) + 10, self.waits + 1

    def event(self, enable_timing: bool = False) -> Any:
        return Event(self)


@dataclass
class Event:
    device: StandIn
    at: float = -1.0

    def record(self) -> None:
        self.at = max(self.device.free, self.device.now)
        self.device.calls.append("event")

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) / 1000  # milliseconds


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    gpu = StandIn()
    for name, function in {"Event": gpu.event, "_sleep": gpu.sleep, "synchronize": gpu.synchronize}.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    return gpu


def test_a_small_kernel_is_timed_without_its_launch(gpu):
    laps = laps_on(GPU)
    for duration in (3, 1000, 3):
        with laps.lap():
            gpu.launch(duration)
    assert laps.seconds() == pytest.approx([3e-6, 1e-3, 3e-6])


def test_kernels_of_one_part_follow_each_other_without_gaps(gpu):
    laps = laps_on(GPU)
    with laps.lap():
        for _ in range(8):
            gpu.launch(2)
    assert laps.seconds() == pytest.approx([16e-6])


def test_the_device_waits_before_each_part_and_is_waited_for_once(gpu):
    laps = CudaLaps(GPU)
    for _ in range(5):
        with laps.lap():
            gpu.launch(1)
    assert gpu.waits == 0
    assert gpu.calls == ["sleep", "event", "kernel", "event"] * 5
    laps.seconds()
    assert gpu.waits == 1


@pytest.mark.parametrize("device", [torch.device("cpu"), GPU], ids=["cpu", "stand-in"])
def test_a_part_that_fails_does_not_count(gpu, device):
    laps = laps_on(device)
    with laps.lap():
        pass
    with pytest.raises(ValueError, match="lost"), laps.lap():
        raise ValueError("lost")
    assert len(laps.seconds()) == 1


def test_the_clock_of_the_cpu_is_read_right_around_a_part(monkeypatch):
    ticks = iter([10.0, 12.5, 20.0, 20.25])
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: next(ticks))
    laps = laps_on(torch.device("cpu"))
    for _ in range(2):
        with laps.lap():
            pass
    assert laps.seconds() == [2.5, 0.25]


def test_a_run_of_all_operations_waits_for_the_device_once(gpu):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), torch.ones(2, 4)
    program = trace(model, (x,))
    plan = everything(program.graph)
    with torch.no_grad():
        times = ProfilingRun(plan, program, GPU, lambda k: None).timed(program.bind(model, (x,)))
    assert (len(times), gpu.waits) == (program.graph.n, 1)
    assert gpu.calls == ["sleep", "event", "event"] * program.graph.n


def test_all_implementations_of_a_walk_are_timed_with_one_wait(gpu, monkeypatch):
    monkeypatch.setattr("remat_explorer.capture.profiling.memory_meter", lambda device: NoMeter())
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), torch.ones(8, 4)
    options = rx.capture(model, (x,), implementations="exact").options
    program = trace(model, (x,), options=options)
    run = ChoicesRun(program, GPU, lambda k: None)
    assert run.choices
    with torch.no_grad():
        found = run.measured(lambda: program.bind(model, (x,)), 2, NoCensus(program, torch.device("cpu")))
    assert list(found) == run.choices
    assert gpu.waits == 3


class NoMeter:
    """A meter that reads nothing."""

    readings: tuple[()] = ()
    section = staticmethod(contextlib.nullcontext)

    def __enter__(self) -> NoMeter:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class NoCensus(StorageCensus):
    """Runs what is metered, and compares nothing."""

    def read(self, readings: object) -> None:
        pass


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_a_gpu_small_operations_take_less_than_a_launch_and_large_ones_what_the_clock_says():
    small, large = torch.ones(16, device="cuda"), torch.ones(8192, 8192, device="cuda")
    laps = laps_on(GPU)
    for x in (small, large) * 5:
        with laps.lap():
            x.mul(2)
    times = laps.seconds()
    wall = min(stopwatch.seconds_of(lambda: large.mul(2), GPU) for _ in range(5))
    assert min(times[0::2]) < 5e-6
    assert min(times[1::2]) == pytest.approx(wall, rel=0.2)
    assert LEAD / torch.cuda.get_device_properties(GPU).clock_rate / 1000 < 1e-3
