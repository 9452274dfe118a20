"""The cap on CUDA's allocator, which is played by a stand-in here."""

from __future__ import annotations

import pytest
import torch

from remat_explorer.runtime.plan_bench import MARGIN, hard_cap
from tests.capture.cuda_stand_in import GPU, SEGMENT, StandIn, gpu

__all__ = ["gpu"]


def test_more_than_the_room_is_refused_and_the_room_is_not(gpu: StandIn):
    gpu.take(3 * SEGMENT)
    with hard_cap(GPU, 5 * SEGMENT):
        gpu.free(gpu.take(5 * SEGMENT))
        with pytest.raises(torch.OutOfMemoryError):
            gpu.take(5 * SEGMENT + MARGIN + 1)
    gpu.take(5 * SEGMENT + MARGIN + 1)


def test_blocks_that_are_cached_before_are_no_room(gpu: StandIn):
    gpu.free(gpu.take(50 * SEGMENT))
    with hard_cap(GPU, SEGMENT), pytest.raises(torch.OutOfMemoryError):
        gpu.take(50 * SEGMENT)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_the_fraction_that_was_set_is_set_again_also_after_an_error(gpu: StandIn, fraction: float):
    gpu.fraction = fraction
    with hard_cap(GPU, SEGMENT):
        assert gpu.fraction == pytest.approx((SEGMENT + MARGIN) / gpu.total)
    assert gpu.fraction == fraction
    with pytest.raises(ValueError, match="within"), hard_cap(GPU, SEGMENT):
        raise ValueError("within")
    assert gpu.fraction == fraction


def test_a_fraction_that_allows_less_holds(gpu: StandIn):
    gpu.fraction = 1e-6
    with hard_cap(GPU, 100 * SEGMENT):
        assert gpu.fraction == 1e-6


def test_caps_may_lie_within_each_other(gpu: StandIn):
    with hard_cap(GPU, 4 * SEGMENT):
        outer = gpu.fraction
        with hard_cap(GPU, SEGMENT):
            assert gpu.fraction < outer
        with hard_cap(GPU, 100 * SEGMENT):
            assert gpu.fraction == outer
        assert gpu.fraction == outer
    assert gpu.fraction == 1.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_a_gpu_the_fraction_that_was_set_is_set_again():
    before = torch.cuda.get_per_process_memory_fraction(GPU)
    try:
        torch.cuda.set_per_process_memory_fraction(0.5, GPU)
        with hard_cap(GPU, 2**26):
            torch.empty(2**26, dtype=torch.uint8, device=GPU)
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(2**26 + MARGIN + 2**21, dtype=torch.uint8, device=GPU)
        assert torch.cuda.get_per_process_memory_fraction(GPU) == pytest.approx(0.5)
    finally:
        torch.cuda.set_per_process_memory_fraction(before, GPU)
