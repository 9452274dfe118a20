"""The Triton kernels of max pooling beside PyTorch's own, compiled for a GPU or interpreted on a CPU."""

from __future__ import annotations

import itertools

import pytest
import torch

from remat_explorer.capture.implementations import pooling
from tests.capture.implementations.numerics import DEVICES, FORMATS, random, same_bits, with_special, workspace
from tests.thorough import thorough_but

aten = torch.ops.aten

pytestmark = pytest.mark.skipif(not pooling.HAS_TRITON, reason="Triton is not installed here")
WINDOWS = [  # kernel, stride, padding, dilation, whether the last window may be cut off
    ([2, 2], [2, 2], [0, 0], [1, 1], False),
    ([3, 3], [2, 2], [1, 1], [1, 1], False),
    ([3, 2], [1, 2], [1, 0], [1, 1], True),
    ([2, 3], [2, 1], [0, 1], [2, 3], False),
]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ALL = [*itertools.product(WINDOWS, DTYPES, FORMATS)]
QUICK = [case for case in ALL if case[1] is torch.float32 or case[0] is WINDOWS[1]]


@pytest.fixture(autouse=True)
def served(monkeypatch):
    """Interpreted, the kernels serve tensors of the CPU as they do those of a GPU."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(pooling, "runs_in_triton", lambda *tensors: True)


def unusual(*shape: int, dtype: torch.dtype, form: torch.memory_format) -> torch.Tensor:
    """Planes of NaN, of ties and of negative infinity beside random ones."""
    x = with_special(random(*shape, dtype=dtype, form=form))
    x[0, 0], x[1, 1], x[2, 2] = float("nan"), 2.0, -float("inf")
    return x


def narrowed(sums: torch.Tensor, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Rounded to a type; Triton's interpreter does not round to bfloat16, it cuts off the lower half."""
    if dtype == torch.bfloat16 and device == "cpu":
        return (sums.view(torch.int32) & -(1 << 16)).view(torch.float32).to(dtype)
    return sums.to(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("window", "dtype", "form"), thorough_but(ALL, *QUICK))
def test_every_way_gives_what_pytorch_gives(window, dtype, form, device):
    x = unusual(3, 4, 9, 10, dtype=dtype, form=form)
    y, index = aten.max_pool2d_with_indices(x, *window)
    g = with_special(random(*y.shape, dtype=dtype, seed=1, form=form))
    wide = torch.promote_types(dtype, torch.float32)  # in which gradients are added up
    exact = narrowed(aten.max_pool2d_with_indices_backward(g.to(wide), x.to(wide), *window, index), dtype, device)
    there, gradient = x.to(device), g.to(device)
    maxima, places = pooling.max_pool_with_places(there, *window)
    assert same_bits(maxima.cpu(), y)
    assert same_bits(pooling.max_pool_alone(there, *window).cpu(), y)
    found = pooling.max_pool_gradient_from_places(gradient, places, x.shape, *window)
    assert same_bits(found.cpu(), exact)
    assert same_bits(pooling.max_pool_gradient_recomputed(gradient, there, *window).cpu(), exact)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("window", WINDOWS)
def test_both_forms_make_the_same_places(window, device, monkeypatch):
    x = unusual(3, 4, 9, 10, dtype=torch.float32, form=FORMATS[0])
    _, places = pooling.max_pool_with_places(x.to(device), *window)
    assert torch.equal(pooling.max_pool_places(x.to(device), *window), places)
    monkeypatch.setattr(pooling, "runs_in_triton", lambda *tensors: False)
    assert torch.equal(places.cpu(), pooling.max_pool_with_places(x, *window)[1])


@pytest.mark.skipif(torch.cuda.is_available(), reason="the meter of this test is the CPU's")
@pytest.mark.parametrize("place", thorough_but(range(len(WINDOWS)), 2))
def test_indices_found_again_need_a_byte_an_output(place):
    window, x = WINDOWS[place], random(3, 4, 40, 40)
    y, _ = aten.max_pool2d_with_indices(x, *window)
    assert workspace(pooling.max_pool_gradient_recomputed, y, x, *window) <= y.numel() + 1024


@pytest.mark.parametrize("device", DEVICES)
def test_sizes_that_no_block_divides_and_single_pixels(device):
    for shape, window in (
        ((1, 3, 37, 41), WINDOWS[1]),
        ((2, 5, 1, 1), WINDOWS[1]),
        ((2, 5, 2, 2), WINDOWS[0]),
        ((0, 5, 4, 4), WINDOWS[0]),
    ):
        for form in FORMATS:
            x = random(*shape, form=form)
            y, index = aten.max_pool2d_with_indices(x, *window)
            found = pooling.max_pool_gradient_recomputed(y.to(device), x.to(device), *window)
            exact = aten.max_pool2d_with_indices_backward(y, x, *window, index)
            assert torch.equal(found.cpu(), exact), (shape, form)
