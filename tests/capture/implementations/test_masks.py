"""Masks in bits: what is packed comes out again, and gradients are those of PyTorch's kernels bit for bit."""

from __future__ import annotations

import pytest
import torch

from remat_explorer.capture.implementations import dropout, masks
from remat_explorer.capture.implementations.chunks import CHUNK, flat, is_dense
from remat_explorer.errors import ExecutionError
from tests.capture.implementations.numerics import (
    FORMATS,
    LAST,
    MASK_TEMPORARIES,
    random,
    relative,
    same_bits,
    with_special,
    workspace,
)

aten = torch.ops.aten

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [(0,), (1,), (7,), (8,), (9,), (2, 3, 5, 7), (CHUNK - 1,), (CHUNK + 1,), (2 * CHUNK + 8,)]


@pytest.mark.parametrize("entries", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_what_is_packed_comes_out_again(entries):
    mask = torch.rand(entries) < 0.5
    packed = masks.packed_mask(mask)
    assert packed.numel() == masks.mask_bytes(entries)
    again = torch.empty(8 * packed.numel(), dtype=torch.bool)
    masks.unpack(packed, again)
    assert torch.equal(again[:entries], mask)
    assert not again[entries:].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_relu_by_bits_is_the_kernel_of_pytorch(shape, dtype):
    x, g = with_special(random(*shape, dtype=dtype)), with_special(random(*shape, dtype=dtype, seed=1).flip(0))
    y = x.relu()
    packed = masks.relu_bits(x)
    assert torch.equal(packed, masks.relu_bits(y))
    expected = aten.threshold_backward(g, y, 0)
    assert same_bits(masks.masked_gradient(g, packed), expected)
    over = g.clone()
    assert masks.masked_gradient_in_place(over, packed) is over
    assert same_bits(over, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_relu6_by_bits_is_the_kernel_of_pytorch_where_the_input_is_a_number(shape, dtype):
    x = (4 * with_special(random(*shape, dtype=dtype))).nan_to_num(2.0)
    g = with_special(random(*shape, dtype=dtype, seed=1).flip(0))
    packed = masks.hardtanh_bits(x, 0.0, 6.0)
    assert torch.equal(packed, masks.hardtanh_bits(aten.hardtanh(x, 0.0, 6.0), 0.0, 6.0))
    assert same_bits(masks.masked_gradient(g, packed), aten.hardtanh_backward(g, x, 0.0, 6.0))


def test_relu6_of_nan_lets_no_gradient_pass():
    packed = masks.hardtanh_bits(torch.full((8,), float("nan")), 0.0, 6.0)
    assert masks.masked_gradient(torch.ones(8), packed).tolist() == [0.0] * 8


@pytest.mark.parametrize("form", FORMATS)
def test_bits_follow_the_memory_format(form):
    x, g = random(2, 5, 4, 3, form=form), random(2, 5, 4, 3, seed=1, form=form)
    assert same_bits(masks.masked_gradient(g, masks.relu_bits(x)), aten.threshold_backward(g, x.relu(), 0))


def test_gradients_of_relu_are_those_of_float64():
    x, g = random(1000).requires_grad_(), random(1000, seed=1)
    exact = torch.autograd.grad(x.double().relu(), x, g.double())[0]
    assert relative(masks.masked_gradient(g, masks.relu_bits(x.detach())), exact) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_by_bits_is_the_kernel_of_pytorch(shape, dtype):
    x, g = with_special(random(*shape, dtype=dtype)), with_special(random(*shape, dtype=dtype, seed=1).flip(0))
    mask = aten.native_dropout(x, 0.3, True)[1]
    packed = masks.packed_mask(mask)
    exact = aten.native_dropout_backward(g, mask, 1 / 0.7)
    assert same_bits(dropout.dropout_gradient_from_bits(g, packed, 1 / 0.7), exact)
    over = g.clone()
    assert dropout.dropout_gradient_from_bits_in_place(over, packed, 1 / 0.7) is over
    assert same_bits(over, exact)


def test_masks_need_little_room():
    x, g = random(8, 64, 64, 64), random(8, 64, 64, 64, seed=1)
    packed = masks.relu_bits(x)
    assert workspace(masks.relu_bits, x) < MASK_TEMPORARIES
    assert workspace(masks.packed_mask, x > 0) < MASK_TEMPORARIES
    assert workspace(lambda t: masks.hardtanh_bits(t, 0.0, 6.0), x) < MASK_TEMPORARIES
    assert workspace(masks.masked_gradient, g, packed) < MASK_TEMPORARIES
    assert workspace(dropout.dropout_gradient_from_bits, g, packed, 1.25) < MASK_TEMPORARIES
    assert workspace(masks.masked_gradient_in_place, g, packed, taken_over=g.nbytes) < MASK_TEMPORARIES


def test_tensors_with_gaps_or_overlaps_are_refused():
    for tensor in (torch.ones(4, 4)[:, :2], torch.ones(1, 4).expand(4, 4)):
        assert not is_dense(tensor)
        with pytest.raises(ExecutionError, match="dense"):
            masks.relu_bits(tensor)
    assert flat(random(2, 3, 4, 5, form=LAST)).numel() == 120


def test_a_mask_of_another_tensor_is_refused():
    with pytest.raises(ExecutionError, match="does not belong"):
        masks.masked_gradient(torch.ones(100), torch.zeros(3, dtype=torch.uint8))
