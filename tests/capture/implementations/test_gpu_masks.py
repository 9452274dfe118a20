"""The Triton kernels of masks beside their form in PyTorch's operators, compiled for a GPU or interpreted on a CPU."""

from __future__ import annotations

import pytest
import torch

from remat_explorer.capture.implementations import masks
from tests.capture.implementations.numerics import DEVICES, LAST, random, same_bits, with_special
from tests.thorough import thorough_but

pytestmark = pytest.mark.skipif(not masks.HAS_TRITON, reason="Triton is not installed here")
SHAPES = [(0,), (1,), (7,), (9,), (1023,), (1025,), (100_003,), (2, 3, 5, 7)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
PAIRS = [(shape, dtype) for shape in SHAPES for dtype in DTYPES]
QUICK = [(shape, dtype) for shape, dtype in PAIRS if shape != (100_003,) or dtype is torch.bfloat16]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("shape", "dtype"), thorough_but(PAIRS, *QUICK))
def test_both_forms_make_the_same_bytes_and_the_same_gradients(shape, dtype, device, monkeypatch):
    x, g = with_special(random(*shape, dtype=dtype)), with_special(random(*shape, dtype=dtype, seed=1).flip(0))
    for kernel in (masks.relu_bits, lambda t: masks.hardtanh_bits(t, 0.0, 6.0)):
        packed = kernel(x)
        expected = masks.masked_gradient(g, packed)
        with monkeypatch.context() as patch:
            patch.setattr(masks, "runs_in_triton", lambda tensor: True)
            assert torch.equal(kernel(x.to(device)).cpu(), packed)
            assert same_bits(masks.masked_gradient(g.to(device), packed.to(device)).cpu(), expected)
            over = g.to(device, copy=True)
            assert masks.masked_gradient_in_place(over, packed.to(device)) is over
            assert same_bits(over.cpu(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_bits_follow_the_memory_format(device, monkeypatch):
    x, g = random(2, 5, 4, 3, form=LAST), random(2, 5, 4, 3, seed=1, form=LAST)
    expected = torch.ops.aten.threshold_backward(g, x.relu(), 0)
    monkeypatch.setattr(masks, "runs_in_triton", lambda tensor: True)
    found = masks.masked_gradient(g.to(device), masks.relu_bits(x.to(device)))
    assert same_bits(found.cpu(), expected)
