"""Max pooling by places in windows, or by indices found again: bit for bit what PyTorch gives."""

from __future__ import annotations

import itertools

import pytest
import torch

from remat_explorer.capture.implementations import pooling
from tests.capture.implementations.numerics import FORMATS, random, same_bits, with_special, workspace

aten = torch.ops.aten

WINDOWS = [  # kernel, stride, padding, dilation, whether the last window may be cut off
    ([2, 2], [2, 2], [0, 0], [1, 1], False),
    ([3, 3], [2, 2], [1, 1], [1, 1], False),
    ([3, 2], [1, 2], [1, 0], [1, 1], True),
    ([2, 3], [2, 1], [0, 1], [2, 3], False),
    ([16, 16], [5, 5], [3, 3], [1, 1], True),
]
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


@pytest.mark.parametrize(("window", "dtype", "form"), [*itertools.product(WINDOWS, DTYPES, FORMATS)])
def test_every_way_gives_what_pytorch_gives(window, dtype, form):
    x = with_special(random(3, 4, 21, 18, dtype=dtype, form=form))
    x[0, 0] = float("nan")
    x[1, 1] = 2.0  # ties everywhere
    x[2, 2] = -float("inf")
    y, index = aten.max_pool2d_with_indices(x, *window)
    g = with_special(random(*y.shape, dtype=dtype, seed=1, form=form))
    exact = aten.max_pool2d_with_indices_backward(g, x, *window, index)
    maxima, places = pooling.max_pool_with_places(x, *window)
    assert places.dtype == torch.uint8
    assert same_bits(maxima, y)
    before = index.clone()
    assert same_bits(pooling.packed_places(index, x.shape, *window), places)
    assert torch.equal(index, before)  # indices may be read again
    assert same_bits(pooling.max_pool_places(x, *window), places)
    assert same_bits(pooling.max_pool_alone(x, *window), y)
    assert same_bits(pooling.max_pool_gradient_from_places(g, places, x.shape, *window), exact)
    assert same_bits(pooling.max_pool_gradient_from_indices(g, index, x.shape, *window), exact)
    assert same_bits(pooling.max_pool_gradient_recomputed(g, x, *window), exact)


@pytest.mark.parametrize("form", FORMATS)
def test_gradients_are_those_of_float64(form):
    x = random(2, 3, 9, 9, form=form)
    wide = x.to(torch.float64, copy=True).requires_grad_()
    y = torch.nn.functional.max_pool2d(wide, 3, 2, 1)
    g = random(*y.shape, seed=1, form=form)
    (exact,) = torch.autograd.grad(y, wide, g.double())
    window = ([3, 3], [2, 2], [1, 1], [1, 1], False)
    _, places = pooling.max_pool_with_places(x, *window)
    found = pooling.max_pool_gradient_from_places(g, places, x.shape, *window)
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-6)  # sums of up to four gradients


def test_an_empty_batch_has_empty_results():
    x, window = torch.ones(0, 3, 8, 8), WINDOWS[0]
    maxima, places = pooling.max_pool_with_places(x, *window)
    assert maxima.shape == places.shape == pooling.max_pool_alone(x, *window).shape == (0, 3, 4, 4)
    assert pooling.max_pool_places(x, *window).shape == (0, 3, 4, 4)
    g = torch.ones(0, 3, 4, 4)
    assert pooling.max_pool_gradient_from_places(g, places, x.shape, *window).shape == x.shape
    assert pooling.max_pool_gradient_recomputed(g, x, *window).shape == x.shape


def test_indices_exist_for_one_sample_at_a_time():
    x, window = random(8, 16, 64, 64), ([2, 2], [2, 2], [0, 0], [1, 1], False)
    y, places = pooling.max_pool_with_places(x, *window)
    sample = 8 * y[0].numel()  # bytes of the indices of one sample
    assert workspace(pooling.max_pool_with_places, x, *window) < 5 * sample
    assert workspace(pooling.max_pool_alone, x, *window) < 3 * sample
    assert workspace(pooling.max_pool_places, x, *window) < 5 * sample
    index = torch.zeros(64, 16, 32, 32, dtype=torch.int64)
    assert workspace(pooling.packed_places, index, [64, 16, 64, 64], *window) < index.nbytes / 5
    assert workspace(pooling.max_pool_gradient_from_places, y, places, x.shape, *window) < 5 * sample
    assert workspace(pooling.max_pool_gradient_recomputed, y, x, *window) < 4 * sample
