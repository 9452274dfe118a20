"""Every implementation beside PyTorch's own kernel and float64, in a type and a memory format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from remat_explorer.capture.convolution_arguments import ConvolutionArguments
from remat_explorer.capture.implementations import (
    attention_kernels,
    convolutions,
    cross_entropy,
    dropout,
    masks,
    normalization,
    pooling,
)
from remat_explorer.capture.implementations.call_site import reordered
from tests.capture.implementations.numerics import LAST, random

aten = torch.ops.aten

WIDE = (torch.float32, torch.float64)
ALL = (*WIDE, torch.bfloat16, torch.float16)
EPSILON = 1e-5
Exact = list[torch.Tensor] | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an implementation gives, what PyTorch's kernel gives, and float64, which is None where that says nothing."""

    found: Any
    own: Any
    exact: Any
    tolerance: float


def tensors(*shape: int, dtype: torch.dtype, form: torch.memory_format, count: int = 2) -> list[torch.Tensor]:
    """Random tensors."""
    return [random(*shape, dtype=dtype, form=form, seed=seed) for seed in range(count)]


def given(*arguments: Any) -> Any:
    """Arguments that several calls share, of no type in particular."""
    return arguments


def gradients(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], g: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of float64."""
    wide = [t.to(torch.float64, copy=True).requires_grad_() for t in inputs]
    return list(torch.autograd.grad(function(*wide), wide, g.double()))


def relu(dtype, form, limits=None) -> Iterator[Outcome]:
    x, g = tensors(2, 3, 5, 7, dtype=dtype, form=form)
    x = 4 * x
    forward: Any = (lambda t: t.relu()) if limits is None else (lambda t: functional.hardtanh(t, *limits))
    y, exact = forward(x), gradients(forward, [x], g)[0]
    if limits is None:
        own, packed = aten.threshold_backward(g, y, 0), masks.relu_bits(x)
        others = [aten.threshold_backward(g, x, 0)]
    else:
        own, packed = aten.hardtanh_backward(g, x, *limits), masks.hardtanh_bits(x, *limits)
        others = [aten.hardtanh_backward(g, y, *limits)]
    for found in (masks.masked_gradient(g, packed), *others):
        yield Outcome(found, own, exact, 0.0)


def relu6(dtype, form) -> Iterator[Outcome]:
    yield from relu(dtype, form, (0.0, 6.0))


def drop(dtype, form) -> Iterator[Outcome]:
    x, g = tensors(2, 3, 50, 70, dtype=dtype, form=form)
    torch.manual_seed(3)
    _, state = dropout.dropout_with_state(x, 0.3, True)
    torch.manual_seed(3)
    mask = aten.native_dropout(x, 0.3, True)[1]
    own, exact = aten.native_dropout_backward(g, mask, 1 / 0.7), g.double() * mask / 0.7
    half = 0.0 if dtype in WIDE else reordered(g)
    yield Outcome(dropout.dropout_gradient_from_bits(g, masks.packed_mask(mask), 1 / 0.7), own, exact, half)
    if dtype in WIDE:
        yield Outcome(dropout.dropout_gradient_drawn_again(g, state, 0.3, 1 / 0.7), own, exact, 0.0)


def pool(dtype, form) -> Iterator[Outcome]:
    (x,) = tensors(3, 4, 21, 18, dtype=dtype, form=form, count=1)
    window = given([3, 3], [2, 2], [1, 1], [1, 1], False)
    y, index = aten.max_pool2d_with_indices(x, *window)
    g = torch.empty_like(y).copy_(random(*y.shape, dtype=dtype, seed=1))
    own = aten.max_pool2d_with_indices_backward(g, x, *window, index)
    exact = None  # which of equal entries is largest depends on the type
    maxima, places = pooling.max_pool_with_places(x, *window)
    yield Outcome(maxima, y, y.double(), 0.0)
    yield Outcome(pooling.max_pool_alone(x, *window), y, y.double(), 0.0)
    apart = pooling.packed_places(index, x.shape, *window)
    for made in (apart, pooling.max_pool_places(x, *window)):
        yield Outcome(made, places, places.double(), 0.0)
    for found in (
        pooling.max_pool_gradient_from_places(g, apart, x.shape, *window),
        pooling.max_pool_gradient_from_indices(g, index, x.shape, *window),
        pooling.max_pool_gradient_recomputed(g, x, *window),
    ):
        yield Outcome(found, own, exact, 0.0)


def norm(dtype, form) -> Iterator[Outcome]:
    x, g = tensors(8, 6, 7, 5, dtype=dtype, form=form)
    w, b = random(6, dtype=dtype, seed=2).abs() + 0.5, random(6, dtype=dtype, seed=3)
    y, mean, deviation = aten.native_batch_norm(x, w, b, None, None, True, 0.1, EPSILON)
    exact = gradients(lambda *t: functional.batch_norm(t[0], None, None, t[1], t[2], True, 0.1, EPSILON), [x, w, b], g)
    own = aten.native_batch_norm_backward(g, x, w, None, None, mean, deviation, True, EPSILON, [True, True, True])
    wide = functional.batch_norm(x.double(), None, None, w.double(), b.double(), True, 0.1, EPSILON)
    yield Outcome(normalization.batch_norm_with_statistics(x, mean, deviation, w, b), y, wide, 0.0)
    yield Outcome(normalization.batch_norm_gradient_lean(g, x, w, mean, deviation), own, exact, 2e-6)
    yield Outcome(normalization.batch_norm_gradient_from_output(g, y, w, b, deviation), own, exact, 1e-5)
    yield Outcome(normalization.batch_norm_gradient_from_output_lean(g, y, w, b, deviation), own, exact, 1e-5)


def layer(dtype, form) -> Iterator[Outcome]:
    x, g = tensors(7, 12, dtype=dtype, form=form)
    w, b = random(12, dtype=dtype, seed=2).abs() + 0.5, random(12, dtype=dtype, seed=3)
    y, mean, deviation = aten.native_layer_norm(x, [12], w, b, EPSILON)
    own = aten.native_layer_norm_backward(g, x, [12], mean, deviation, w, b, [True, True, True])
    exact = gradients(lambda *t: functional.layer_norm(t[0], [12], t[1], t[2], EPSILON), [x, w, b], g)
    yield Outcome(normalization.layer_norm_gradient_from_output(g, y, [12], w, b, deviation), own, exact, 1e-5)


def convolution_outcomes(dtype, form, groups=1) -> Iterator[Outcome]:
    (x,) = tensors(9, 8, 10, 9, dtype=dtype, form=form, count=1)
    w = random(8, 8 // groups, 3, 3, dtype=dtype, seed=1, form=form)
    b = random(8, dtype=dtype, seed=2)
    setting = ConvolutionArguments([2, 1], [1, 1], [1, 1], False, [0, 0], groups)
    y = aten.convolution(x, w, b, *setting)
    g = torch.empty_like(y).copy_(random(*y.shape, dtype=dtype, seed=3))
    exact_y = aten.convolution(x.double(), w.double(), b.double(), *setting)
    exact = gradients(lambda *t: aten.convolution(*t, *setting), [x, w, b], g)
    to_input = aten.convolution_backward(g, x, w, [8], *setting, [True, False, False])[0]
    to_weight = aten.convolution_backward(g, x, w, [8], *setting, [False, True, True])[1:]
    near, of_gradient = reordered(x), given(g, w, x.shape, setting)
    apart = groups > 1 and form is LAST
    yield Outcome(convolutions.input_gradient(*of_gradient), to_input, exact[0], near if apart else 0.0)
    for samples in (1, 4):
        yield Outcome(convolutions.convolution_in_chunks(x, w, b, setting, samples=samples), y, exact_y, near)
        yield Outcome(convolutions.input_gradient_in_chunks(*of_gradient, samples=samples), to_input, exact[0], near)
        chunked = convolutions.weight_gradient_in_chunks(
            g, x, w, [8], setting, mask=[False, True, True], samples=samples
        )
        yield Outcome(chunked[1:], to_weight, exact[1:], 10 * near)
    yield Outcome(convolutions.convolution_native(x, w, b, setting), y, exact_y, near)
    yield Outcome(convolutions.input_gradient_native(*of_gradient), to_input, exact[0], near)
    native = convolutions.weight_gradient_native(g, x, w, [8], setting, mask=[False, True, True])
    yield Outcome(native[1:], to_weight, exact[1:], 10 * near)
    if form is not LAST:
        yield Outcome(convolutions.convolution_channels_last(x, w, b, setting), y, exact_y, near)


def grouped(dtype, form) -> Iterator[Outcome]:
    yield from convolution_outcomes(dtype, form, 4)


def depthwise(dtype, form) -> Iterator[Outcome]:
    yield from convolution_outcomes(dtype, form, 8)


def entropy(dtype, form) -> Iterator[Outcome]:
    (z,) = tensors(13, 7, dtype=dtype, form=form, count=1)
    target, one = torch.arange(13) % 7, torch.ones((), dtype=dtype)
    own = z.clone().requires_grad_()
    loss = functional.cross_entropy(own, target)
    wide = z.to(torch.float64, copy=True).requires_grad_()
    exact = functional.cross_entropy(wide, target)
    loss.backward()
    exact.backward()
    sums = cross_entropy.log_sum_exp(z)
    mine, count = cross_entropy.loss_from_log_sum_exp(z, target, sums, cross_entropy.MEAN, -100)
    yield Outcome(mine, loss.detach(), exact.detach(), 1e-5)
    found = cross_entropy.cross_entropy_gradient(one, z, target, sums, count, cross_entropy.MEAN, -100)
    yield Outcome(found, own.grad, wide.grad, 1e-5)


def attend(dtype, form, causal=False) -> Iterator[Outcome]:
    # the strides that a projection to (batch, length, heads, width) leaves
    q, k, v, g = (random(2, 17, 3, 8, dtype=dtype, seed=seed).transpose(1, 2) for seed in range(4))
    if form is not LAST:
        q, k, v = (t.contiguous() for t in (q, k, v))
    mask = None if causal else random(17, 17, dtype=dtype, seed=5)
    setting = mask, causal, 0.3
    y, sums = attention_kernels.attention_by("cpu", q, k, v, *setting)
    own = attention_kernels.attention_gradient_by("cpu", g, q, k, v, y, sums, *setting)
    wide_mask = None if mask is None else mask.double()

    def forward(*inputs: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(*inputs, attn_mask=wide_mask, is_causal=causal, scale=0.3)

    exact_y, exact = forward(q.double(), k.double(), v.double()), gradients(forward, [q, k, v], g)
    near, strides = reordered(q), [t.stride() for t in own]
    yield Outcome(attention_kernels.attention_gradient_recomputed("cpu", g, q, k, v, *setting), own, exact, 0.0)
    found, saved = attention_kernels.attention_by("math", q, k, v, *setting, y.stride())
    yield Outcome(found, y, exact_y, near)
    kept = attention_kernels.attention_gradient_by("math", g, q, k, v, None, saved, *setting, strides)
    yield Outcome(kept, own, exact, near)
    again = attention_kernels.attention_gradient_recomputed("math", g, q, k, v, *setting, strides)
    yield Outcome(again, own, exact, near)


def causal_attention(dtype, form) -> Iterator[Outcome]:
    yield from attend(dtype, form, True)


CASES: dict[str, tuple[Callable[..., Iterator[Outcome]], tuple[torch.dtype, ...]]] = {
    "relu": (relu, ALL),
    "relu6": (relu6, ALL),
    "dropout": (drop, ALL),
    "max pooling": (pool, ALL),
    "batch norm": (norm, WIDE),  # others are not offered
    "layer norm": (layer, WIDE),
    "convolution": (convolution_outcomes, ALL),
    "grouped convolution": (grouped, ALL),
    "depthwise convolution": (depthwise, ALL),
    "cross-entropy": (entropy, WIDE),
    "attention": (attend, ALL),
    "causal attention": (causal_attention, ALL),
}
