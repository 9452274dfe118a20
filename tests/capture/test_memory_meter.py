"""What the meter for CUDA reads of an allocator, which is played by a stand-in here."""

from __future__ import annotations

import pytest
import torch

from remat_explorer.capture.memory_meter import (
    AllocatorBytes,
    CudaMeter,
    Reading,
    peaks_of_process,
    released_library_workspaces,
)
from tests.capture.cuda_stand_in import GPU, SEGMENT, StandIn, gpu

__all__ = ["gpu"]


def test_sections_are_read_in_requested_bytes_since_the_start(gpu: StandIn):
    gpu.take(1000)
    with CudaMeter(GPU) as meter:
        with meter.section():
            kept, workspace = gpu.take(100), gpu.take(50)
            gpu.free(workspace)
        with meter.section():
            gpu.free(kept)
    assert meter.readings == [Reading(0, 150, 100), Reading(100, 100, 0)]


def test_the_meter_knows_start_and_peak_of_all_three_counts(gpu: StandIn):
    gpu.take(1000)
    with CudaMeter(GPU) as meter:
        with meter.section():
            gpu.free(gpu.take(SEGMENT))
        with meter.section():
            gpu.take(10)
    assert meter.start == AllocatorBytes(1000, 1024, SEGMENT)
    assert meter.peak == AllocatorBytes(1000 + SEGMENT, 1024 + SEGMENT, 2 * SEGMENT)
    assert meter.peak.since(meter.start, 1000) == AllocatorBytes(1000 + SEGMENT, 1000 + SEGMENT, 1000 + SEGMENT)


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
    assert peaks_of_process(GPU) == AllocatorBytes(8 * SEGMENT, 8 * SEGMENT, 8 * SEGMENT)
    gpu.free(gpu.take(9 * SEGMENT))
    assert peaks_of_process(GPU).requested == 9 * SEGMENT


def test_what_a_meter_sees_is_a_peak_of_the_process(gpu: StandIn):
    metered(gpu, 4 * SEGMENT)
    metered(gpu, SEGMENT)
    assert peaks_of_process(GPU).requested == 4 * SEGMENT


def test_peaks_that_the_person_sets_back_count_anew(gpu: StandIn):
    gpu.free(gpu.take(8 * SEGMENT))
    metered(gpu, 2 * SEGMENT)
    gpu.reset_peak_memory_stats()
    gpu.free(gpu.take(SEGMENT))
    assert [peaks_of_process(GPU).requested for _ in range(2)] == [SEGMENT] * 2


def test_what_cublas_keeps_is_counted_as_it_is_given_up(gpu: StandIn, monkeypatch: pytest.MonkeyPatch):
    gpu.take(1000)
    kept = [gpu.take(32 * 2**20), gpu.take(2**20)]
    clear = lambda: [gpu.free(kept.pop()) for _ in range(len(kept))]  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", clear, raising=False)
    assert released_library_workspaces(GPU) == 33 * 2**20
    assert released_library_workspaces(GPU) == 0
    assert released_library_workspaces(torch.device("cpu")) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_a_gpu_the_backward_pass_has_a_workspace_of_its_own():
    released_library_workspaces(GPU)
    x = torch.ones(512, 512, device=GPU, requires_grad=True)
    y = (x @ x).sum()
    alone = released_library_workspaces(GPU)
    assert alone > 0
    (x @ x).sum().backward()
    del y
    assert released_library_workspaces(GPU) == 2 * alone
