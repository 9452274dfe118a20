"""The Triton kernels of masks beside their form in PyTorch's operators."""

from __future__ import annotations

import pytest
import torch
from numerics import LAST, random, same_bits, with_special

from remat_explorer.capture.alternatives.kernels import activations, gpu_masks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here"),
    pytest.mark.skipif(not gpu_masks.HAS_TRITON, reason="Triton is not installed here"),
]
SHAPES = [(0,), (1,), (7,), (9,), (1023,), (1025,), (100_003,), (2, 3, 5, 7)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_forms_make_the_same_bytes_and_the_same_gradients(shape, dtype):
    x, g = with_special(random(*shape, dtype=dtype)), with_special(random(*shape, dtype=dtype, seed=1).flip(0))
    for kernel in (activations.relu_bits, lambda t: activations.hardtanh_bits(t, 0.0, 6.0)):
        packed = kernel(x)
        assert torch.equal(kernel(x.cuda()).cpu(), packed)
        expected = activations.masked_gradient(g, packed)
        assert same_bits(activations.masked_gradient(g.cuda(), packed.cuda()).cpu(), expected)
        over = g.cuda()
        assert activations.masked_gradient_in_place(over, packed.cuda()) is over
        assert same_bits(over.cpu(), expected)


def test_bits_follow_the_memory_format():
    x, g = random(2, 5, 4, 3, form=LAST), random(2, 5, 4, 3, seed=1, form=LAST)
    found = activations.masked_gradient(g.cuda(), activations.relu_bits(x.cuda()))
    assert same_bits(found.cpu(), torch.ops.aten.threshold_backward(g, x.relu(), 0))
