"""How kernels are judged: against float64, against PyTorch's own kernel, and by the memory that they need."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from remat_explorer.capture.memory_meter import CpuMeter

LAST = torch.channels_last
FORMATS = [torch.contiguous_format, LAST]
SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 6.0, -6.0, 1e-45)
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
INTERPRETED = pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles for the GPU here")
DEVICES = [pytest.param("cpu", marks=INTERPRETED), pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]  # of Triton


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, form: torch.memory_format = FORMATS[0]):
    """Normally distributed entries, the same for every type and memory format."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    return drawn.contiguous(memory_format=form) if len(shape) == 4 else drawn


def with_special(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with NaN, infinities, both zeros and limits of ReLU6 strewn over it, vector and remainder alike."""
    flat = torch.as_strided(tensor, (tensor.numel(),), (1,))
    places = flat[::7]
    places.copy_(torch.tensor(SPECIAL).repeat(len(places) // len(SPECIAL) + 1)[: len(places)])
    return tensor


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal bit for bit, signs of zeros included, with equal strides; every NaN counts as the same."""
    if first.dtype != second.dtype or first.shape != second.shape or first.stride() != second.stride():
        return False
    numbers = ~first.isnan()
    return bool(
        torch.equal(numbers, ~second.isnan())
        and torch.equal(first[numbers], second[numbers])
        and torch.equal(torch.signbit(first[numbers]), torch.signbit(second[numbers]))
    )


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest difference, relative to the largest entry of ``exact``."""
    if exact.numel() == 0:
        return 0.0
    return ((found.double() - exact.double()).abs().max() / exact.double().abs().max().clamp_min(1e-300)).item()


def workspace(function: Callable[..., Any], *arguments: Any, taken_over: int = 0) -> int:
    """Bytes beyond the results while a function runs, after a run that warms up.

    Args:
        function: what to run.
        arguments: its arguments; tensors among them are copied for the first run, in case they are overwritten.
        taken_over: bytes of results that lie where an argument was.
    """
    function(*pytree.tree_map_only(torch.Tensor, torch.clone, arguments))
    with CpuMeter() as meter, meter.section():
        found = function(*arguments)
    storages = [t.untyped_storage() for t in pytree.tree_leaves(found) if t is not None]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
    return meter.readings[0].highest - (sum(sizes.values()) - taken_over)
