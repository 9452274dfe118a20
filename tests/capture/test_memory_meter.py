"""Bytes and times of the parts of a run, on CUDA of an allocator and of events that stand-ins play here."""

import contextlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from remat_explorer.capture import stopwatch, trace
from remat_explorer.capture.memory_meter import AllocatorBytes, CudaMeter, Reading
from remat_explorer.capture.memory_meter import peaks_of_process as peaks
from remat_explorer.capture.memory_meter import released_library_workspaces as released
from remat_explorer.capture.profiling import ProfilingRun, everything
from remat_explorer.capture.stopwatch import LEAD, CudaLaps, laps_on
from tests.capture.cuda_stand_in import GPU, SEGMENT, StandIn, gpu

__all__ = ["gpu"]


def test_sections_are_read_in_requested_bytes_since_the_start_and_start_and_peak_in_all_three_counts(gpu: StandIn):
    gpu.take(1000)
    with CudaMeter(GPU) as meter:
        with meter.section():
            kept, workspace = gpu.take(100), gpu.take(SEGMENT)
            gpu.free(workspace)
        with meter.section():
            gpu.free(kept)
    assert meter.readings == [Reading(0, 100 + SEGMENT, 100), Reading(100, 100, 0)]
    assert meter.start == AllocatorBytes(1000, 1024, SEGMENT)
    assert meter.peak == AllocatorBytes(1100 + SEGMENT, 1536 + SEGMENT, 2 * SEGMENT)
    assert meter.peak.since(meter.start, 1000) == AllocatorBytes(1100 + SEGMENT, 1512 + SEGMENT, 1000 + SEGMENT)


def test_what_an_earlier_run_has_left_in_the_cache_is_not_reserved_for_this_one(gpu: StandIn):
    gpu.free(gpu.take(100 * SEGMENT))
    with CudaMeter(GPU) as meter, meter.section():
        gpu.free(gpu.take(2 * SEGMENT))
    assert meter.peak.reserved == 2 * SEGMENT


def metered(gpu: StandIn, size: int) -> None:
    with CudaMeter(GPU) as meter, meter.section():
        gpu.free(gpu.take(size))


def test_peaks_of_the_process_outlast_meters_that_set_the_statistics_back(gpu: StandIn):
    gpu.free(gpu.take(8 * SEGMENT))
    for size in (2 * SEGMENT, SEGMENT):
        metered(gpu, size)
    assert gpu.resets == 2
    assert gpu.memory_stats()["requested_bytes.all.peak"] == SEGMENT
    assert peaks(GPU) == AllocatorBytes(8 * SEGMENT, 8 * SEGMENT, 8 * SEGMENT)
    metered(gpu, 10 * SEGMENT)
    metered(gpu, SEGMENT)
    assert peaks(GPU).requested == 10 * SEGMENT
    gpu.free(gpu.take(11 * SEGMENT))
    assert peaks(GPU).requested == 11 * SEGMENT


def test_peaks_that_the_person_sets_back_count_anew(gpu: StandIn):
    gpu.free(gpu.take(8 * SEGMENT))
    metered(gpu, 2 * SEGMENT)
    gpu.reset_peak_memory_stats()
    gpu.free(gpu.take(SEGMENT))
    assert [peaks(GPU).requested for _ in range(2)] == [SEGMENT] * 2


def test_what_cublas_keeps_is_counted_as_it_is_given_up(gpu: StandIn, monkeypatch: pytest.MonkeyPatch):
    gpu.take(1000)
    kept = [gpu.take(32 * 2**20), gpu.take(2**20)]
    clear = lambda: [gpu.free(kept.pop()) for _ in range(len(kept))]  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", clear, raising=False)
    assert released(GPU) == 33 * 2**20
    assert released(GPU) == 0
    assert released(torch.device("cpu")) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_a_gpu_the_backward_pass_has_a_workspace_of_its_own():
    released(GPU)
    x = torch.ones(512, 512, device=GPU, requires_grad=True)
    y = (x @ x).sum()
    alone = released(GPU)
    assert alone > 0
    (x @ x).sum().backward()
    del y
    assert released(GPU) == 2 * alone


@dataclass
class Stream:
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

    def _take(self, what: str, duration: float) -> None:
        self.free = max(self.free, self.now) + duration
        self.calls.append(what)

    def launch(self, duration: float) -> None:
        """A kernel: the host takes 10 microseconds for it, and the device begins when it is there."""
        self.now += 10
        self._take("kernel", duration)

    def sleep(self, cycles: int) -> None:
        self._take("sleep", cycles / 2000)  # 2 GHz

    def synchronize(self, device: Any = None) -> None:
        self.now, self.waits = max(self.now, self.free) + 10, self.waits + 1

    def event(self, enable_timing: bool = False) -> Any:
        event = SimpleNamespace(at=-1.0)

        def record() -> None:
            self.calls.append("event")
            event.at = max(self.free, self.now)

        event.record, event.elapsed_time = record, lambda end: (end.at - event.at) / 1000  # milliseconds
        return event


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    stream = Stream()
    for name, function in (("Event", stream.event), ("_sleep", stream.sleep), ("synchronize", stream.synchronize)):
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    return stream


def test_a_small_kernel_is_timed_without_its_launch(stream):
    laps = laps_on(GPU)
    for duration in (3, 1000, 3):
        with laps.lap():
            stream.launch(duration)
    assert laps.seconds() == pytest.approx([3e-6, 1e-3, 3e-6])


def test_the_device_waits_before_each_part_and_is_waited_for_once(stream):
    laps = CudaLaps(GPU)
    for _ in range(5):
        with laps.lap():
            stream.launch(1)
    assert stream.waits == 0
    assert stream.calls == ["sleep", "event", "kernel", "event"] * 5
    laps.seconds()
    assert stream.waits == 1


@pytest.mark.parametrize("device", [torch.device("cpu"), GPU], ids=["cpu", "stand-in"])
def test_a_part_that_fails_does_not_count(stream, device):
    laps = laps_on(device)
    with laps.lap():
        pass
    with pytest.raises(ValueError, match="lost"), laps.lap():
        raise ValueError("lost")
    assert len(laps.seconds()) == 1


def test_a_run_of_all_operations_waits_for_the_device_once(stream):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), torch.ones(2, 4)
    program = trace(model, (x,))
    plan = everything(program.graph)
    with torch.no_grad():
        times = ProfilingRun(plan, program, GPU, lambda k: None).timed(program.bind(model, (x,)))
    assert (len(times), stream.waits) == (program.graph.n, 1)
    assert stream.calls == ["sleep", "event", "event"] * program.graph.n


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
