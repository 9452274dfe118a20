"""Cross-entropy from one number a row, and attention that keeps nothing."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from remat_explorer.capture.implementations import attention_kernels, cross_entropy
from remat_explorer.capture.implementations.chunks import CHUNK
from tests.capture.alternatives.numerics import random, relative, same_bits, workspace

aten = torch.ops.aten
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-14}
REDUCTIONS = {"mean": cross_entropy.MEAN, "sum": cross_entropy.SUM}


@pytest.mark.parametrize("ignored", [-100, 3])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (13, 7), (300, 1000)])
def test_cross_entropy_has_loss_and_gradient_of_float64(rows, classes, dtype, reduction, ignored):
    logits = 5 * random(rows, classes, dtype=dtype) + 20
    target = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(1))
    target[rows // 2 + 1 :] = ignored
    wide = logits.to(torch.float64, copy=True).requires_grad_()
    exact = functional.cross_entropy(wide, target, reduction=reduction, ignore_index=ignored)
    g = torch.tensor(1.5, dtype=dtype)
    (slope,) = torch.autograd.grad(exact, wide, g.double())
    sums = cross_entropy.log_sum_exp(logits)
    assert relative(sums, torch.logsumexp(logits.double(), 1)) <= TOLERANCE[dtype]
    number = REDUCTIONS[reduction]
    loss, count = cross_entropy.loss_from_log_sum_exp(logits, target, sums, number, ignored)
    assert abs(loss.item() - exact.item()) <= TOLERANCE[dtype] * 40 * (1 if reduction == "mean" else rows)
    logarithms = torch.log_softmax(logits, 1)
    assert same_bits(count, aten.nll_loss_forward(logarithms, target, None, number, ignored)[1])
    arguments = target, sums, count, number, ignored
    found = cross_entropy.cross_entropy_gradient(g, logits, *arguments)
    assert relative(found, slope) <= 20 * TOLERANCE[dtype]
    over = logits.clone()
    assert cross_entropy.cross_entropy_gradient_in_place(g, over, *arguments) is over
    assert same_bits(over, found)


def test_infinite_logits_spoil_their_row_alone():
    logits, target = random(4, 5), torch.zeros(4, dtype=torch.int64)
    logits[1, 2], logits[2, 3] = float("inf"), -float("inf")
    sums = cross_entropy.log_sum_exp(logits)
    loss, count = cross_entropy.loss_from_log_sum_exp(logits, target, sums, cross_entropy.MEAN, -100)
    found = cross_entropy.cross_entropy_gradient(torch.ones(()), logits, target, sums, count, cross_entropy.MEAN, -100)
    assert [bool(row.isfinite().all()) for row in found] == [True, False, True, True]
    assert found[2, 3] == 0
    assert not loss.isfinite()


def test_cross_entropy_needs_room_for_a_few_rows_only():
    logits, target = random(500, 2000), torch.zeros(500, dtype=torch.int64)
    sums = cross_entropy.log_sum_exp(logits)
    few = 3 * 4 * CHUNK
    assert workspace(cross_entropy.log_sum_exp, logits) < few
    assert workspace(cross_entropy.loss_from_log_sum_exp, logits, target, sums, 1, -100) < few
    arguments = torch.ones(()), logits, target, sums, torch.tensor(500.0), 1, -100
    assert workspace(cross_entropy.cross_entropy_gradient, *arguments) < few
    assert workspace(cross_entropy.cross_entropy_gradient_in_place, *arguments, taken_over=logits.nbytes) < few


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_that_keeps_nothing_has_the_gradients_of_pytorch_bit_for_bit(dtype, masked, causal):
    if masked and causal:
        pytest.skip("attention takes a mask or is causal")
    q, k, v, g = (random(2, 3, 17, 8, dtype=dtype, seed=seed) for seed in range(4))
    mask = random(17, 17, dtype=dtype, seed=5) if masked else None
    given = {"attn_mask": mask, "scale": 0.3}
    output, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, **given)
    expected = aten._scaled_dot_product_flash_attention_for_cpu_backward(g, q, k, v, output, sums, 0.0, causal, **given)
    found = attention_kernels.attention_gradient_recomputed("cpu", g, q, k, v, mask, causal, 0.3)
    assert all(map(same_bits, found, expected))
    wide = [t.to(torch.float64, copy=True).requires_grad_() for t in (q, k, v)]
    result = functional.scaled_dot_product_attention(
        *wide, attn_mask=None if mask is None else mask.double(), is_causal=causal, scale=0.3
    )
    exact = torch.autograd.grad(result, wide, g.double())
    assert max(map(relative, found, exact)) < 3e-6
