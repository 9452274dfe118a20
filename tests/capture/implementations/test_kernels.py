"""Every implementation beside PyTorch's own kernel and float64, in every type and memory format that it is offered for.

Then normalizations where they are hard: far from zero, without weights, with weights that cannot be divided by.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch.nn import functional

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
from remat_explorer.capture.implementations.chunks import CHUNK
from remat_explorer.capture.predicted_costs import ConvolutionArguments
from remat_explorer.errors import ExecutionError
from tests.capture.implementations.numerics import FORMATS, LAST, random, relative, same_bits, workspace

aten = torch.ops.aten

WIDE = (torch.float32, torch.float64)
ALL = (*WIDE, torch.bfloat16, torch.float16)
EPSILON = 1e-5


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an implementation gives, what PyTorch's kernel gives, and float64, which is None where that says nothing."""

    found: Any
    own: Any
    exact: Any
    tolerance: float


def pair(*shape: int, dtype: torch.dtype, form: torch.memory_format = FORMATS[0]) -> list[torch.Tensor]:
    return [random(*shape, dtype=dtype, form=form, seed=seed) for seed in range(2)]


def given(*arguments: Any) -> Any:
    return arguments


def gradients(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], g: torch.Tensor) -> list[torch.Tensor]:
    wide = [t.to(torch.float64, copy=True).requires_grad_() for t in inputs]
    return list(torch.autograd.grad(function(*wide), wide, g.double()))


def relu(dtype, form, limits=None) -> Iterator[Outcome]:
    x, g = pair(2, 3, 5, 7, dtype=dtype, form=form)
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


def drop(dtype, form) -> Iterator[Outcome]:
    x, g = pair(2, 3, 50, 70, dtype=dtype, form=form)
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
    x = random(3, 4, 21, 18, dtype=dtype, form=form)
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


def over(kernel: Callable[..., Any], beside: Any, first: torch.Tensor, *arguments: Any) -> Outcome:
    """What a kernel writes over its first argument, which has to be what another gives beside it."""
    taken = first.clone()
    found = kernel(taken, *arguments)
    assert (found[0] if isinstance(found, tuple) else found) is taken
    return Outcome(found, beside, None, 0.0)


def norm(dtype, form, shape=(8, 6, 7, 5), near=2e-6) -> Iterator[Outcome]:
    x, g = pair(*shape, dtype=dtype, form=form)
    w, b = random(shape[1], dtype=dtype, seed=2).abs() + 0.5, random(shape[1], dtype=dtype, seed=3)
    y, mean, deviation = aten.native_batch_norm(x, w, b, None, None, True, 0.1, EPSILON)
    exact = gradients(lambda *t: functional.batch_norm(t[0], None, None, t[1], t[2], True, 0.1, EPSILON), [x, w, b], g)
    own = aten.native_batch_norm_backward(g, x, w, None, None, mean, deviation, True, EPSILON, [True, True, True])
    wide = functional.batch_norm(x.double(), None, None, w.double(), b.double(), True, 0.1, EPSILON)
    yield Outcome(normalization.batch_norm_with_statistics(x, mean, deviation, w, b), y, wide, 0.0)
    lean = normalization.batch_norm_gradient_lean(g, x, w, mean, deviation)
    yield Outcome(lean, own, exact, near)
    yield over(normalization.batch_norm_gradient_lean_in_place, lean, g, x, w, mean, deviation)
    arguments, near = (g, y, w, b, deviation), max(near, 1e-5)
    yield Outcome(normalization.batch_norm_gradient_from_output(*arguments), own, exact, near)
    lean = normalization.batch_norm_gradient_from_output_lean(*arguments)
    yield Outcome(lean, own, exact, near)
    yield over(normalization.batch_norm_gradient_from_output_lean_in_place, lean, *arguments)


def layer(dtype, form, shape=(7, 12), normalized=(12,)) -> Iterator[Outcome]:
    x, g = pair(*shape, dtype=dtype)
    w, b = random(*normalized, dtype=dtype, seed=2).abs() + 0.5, random(*normalized, dtype=dtype, seed=3)
    y, mean, deviation = aten.native_layer_norm(x, normalized, w, b, EPSILON)
    own = aten.native_layer_norm_backward(g, x, normalized, mean, deviation, w, b, [True, True, True])
    exact = gradients(lambda *t: functional.layer_norm(t[0], normalized, t[1], t[2], EPSILON), [x, w, b], g)
    found = normalization.layer_norm_gradient_from_output(g, y, list(normalized), w, b, deviation)
    yield Outcome(found, own, exact, 1e-5)


STRIDED = given([2, 1], [1, 1], [1, 1], False, [0, 0])


def convolve(dtype, form, groups=1, size=(9, 8, 10, 9), kernel=(8, 8, 3, 3), rest=STRIDED) -> Iterator[Outcome]:
    x = random(*size, dtype=dtype, form=form)
    setting = ConvolutionArguments(*given(*rest, groups))
    w = random(kernel[0], kernel[1] // groups, *kernel[2:], dtype=dtype, seed=1, form=form)
    b = random(kernel[1] if setting.transposed else kernel[0], dtype=dtype, seed=2)
    y = aten.convolution(x, w, b, *setting)
    g = torch.empty_like(y).copy_(random(*y.shape, dtype=dtype, seed=3))
    exact_y = aten.convolution(x.double(), w.double(), b.double(), *setting)
    exact = gradients(lambda *t: aten.convolution(*t, *setting), [x, w, b], g)
    to_input = aten.convolution_backward(g, x, w, [len(b)], *setting, [True, False, False])[0]
    to_weight = aten.convolution_backward(g, x, w, [len(b)], *setting, [False, True, True])[1:]
    near, of_gradient = reordered(x), given(g, w, x.shape, setting)
    apart = groups > 1 and form is LAST
    yield Outcome(convolutions.input_gradient(*of_gradient), to_input, exact[0], near if apart else 0.0)
    for samples in (1, 4):
        yield Outcome(convolutions.convolution_in_chunks(x, w, b, setting, samples=samples), y, exact_y, near)
        yield Outcome(convolutions.input_gradient_in_chunks(*of_gradient, samples=samples), to_input, exact[0], near)
        chunked = convolutions.weight_gradient_in_chunks(
            g, x, w, [len(b)], setting, mask=[False, True, True], samples=samples
        )
        yield Outcome(chunked[1:], to_weight, exact[1:], 10 * near)
    yield Outcome(convolutions.convolution_native(x, w, b, setting), y, exact_y, near)
    yield Outcome(convolutions.input_gradient_native(*of_gradient), to_input, exact[0], near)
    native = convolutions.weight_gradient_native(g, x, w, [len(b)], setting, mask=[False, True, True])
    yield Outcome(native[1:], to_weight, exact[1:], 10 * near)
    if form is not LAST and x.dim() == 4:
        yield Outcome(convolutions.convolution_channels_last(x, w, b, setting), y, exact_y, near)


def entropy(dtype, form, rows=13, classes=7, reduction=cross_entropy.MEAN, ignored=-100) -> Iterator[Outcome]:
    z = 5 * random(rows, classes, dtype=dtype, form=form) + 20
    target, g = torch.arange(rows) % classes, torch.tensor(1.5, dtype=dtype)
    target[rows // 2 + 1 :] = ignored
    setting: Any = {"reduction": "mean" if reduction == cross_entropy.MEAN else "sum", "ignore_index": ignored}
    own, wide = z.clone().requires_grad_(), z.to(torch.float64, copy=True).requires_grad_()
    losses = [functional.cross_entropy(logits, target, **setting) for logits in (own, wide)]
    for loss in losses:
        loss.backward(g.to(loss.dtype))
    sums = cross_entropy.log_sum_exp(z)
    mine, count = cross_entropy.loss_from_log_sum_exp(z, target, sums, reduction, ignored)
    yield Outcome(mine, losses[0].detach(), losses[1].detach(), 1e-5)
    arguments = target, sums, count, reduction, ignored
    found = cross_entropy.cross_entropy_gradient(g, z, *arguments)
    yield Outcome(found, own.grad, wide.grad, 1e-5)
    yield over(lambda *given: cross_entropy.cross_entropy_gradient_in_place(g, *given), found, z, *arguments)


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


CASES: dict[str, tuple[Callable[..., Iterator[Outcome]], tuple[torch.dtype, ...]]] = {
    "relu": (relu, ALL),
    "relu6": (partial(relu, limits=(0.0, 6.0)), ALL),
    "dropout": (drop, ALL),
    "max pooling": (pool, ALL),
    "batch norm": (norm, WIDE),  # others are not offered
    "layer norm": (layer, WIDE),
    "convolution": (convolve, ALL),
    "grouped convolution": (partial(convolve, groups=4), ALL),
    "depthwise convolution": (partial(convolve, groups=8), ALL),
    "cross-entropy": (entropy, WIDE),
    "attention": (attend, ALL),
    "causal attention": (partial(attend, causal=True), ALL),
}


def of_size(size: tuple[int, ...], kernel: tuple[int, ...], *rest: Any) -> Callable[..., Iterator[Outcome]]:
    return partial(convolve, size=size, kernel=kernel, rest=rest)


FURTHER = {  # shapes and settings, in single precision and memory formats
    "plain convolution": of_size((5, 6, 11, 9), (8, 6, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0]),
    "dilated convolution": of_size((2, 4, 13, 12), (4, 4, 3, 2), [1, 2], [2, 0], [2, 3], False, [0, 0]),
    "pointwise convolution": of_size((4, 8, 7, 7), (16, 8, 1, 1), [2, 2], [0, 0], [1, 1], False, [0, 0]),
    "convolution in one dimension": of_size((3, 4, 17), (5, 4, 3), [2], [1], [1], False, [0]),
    "convolution in three dimensions": of_size(
        (2, 3, 6, 7, 5), (4, 3, 3, 3, 3), [1, 2, 1], [1] * 3, [1] * 3, False, [0] * 3
    ),
    "transposed convolution": of_size((3, 6, 7, 6), (6, 4, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 1]),
    **{f"batch norm of {s}": partial(norm, shape=s) for s in ((33, 5), (4, 3, 11), (2, 3, 4, 5, 2))},
    "batch norm of large images": partial(norm, shape=(1, 2, 300, 300), near=3e-5),  # PyTorch's is as far from float64
    "layer norm of two dimensions": partial(layer, shape=(3, 5, 4, 6), normalized=(4, 6)),
    "layer norm of many rows": partial(layer, shape=(900, 300), normalized=(300,)),
    "sum of many rows": partial(entropy, rows=300, classes=1000, reduction=cross_entropy.SUM, ignored=3),
    "one class": partial(entropy, rows=1, classes=1),
}

# dimensions in which a sum keeps to itself; within it, kernels spoil more or fewer entries
APART = {"cross-entropy": 1, "attention": 2, "causal attention": 2}


def listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, tuple | list) else [given]


def layout(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Sizes and strides, but for sizes of 1, whose strides mean nothing."""
    return [pair for pair in zip(tensor.shape, tensor.stride(), strict=True) if pair[0] > 1]


@pytest.mark.parametrize("name", [*CASES, *FURTHER])
def test_no_result_is_further_from_pytorch_or_float64_than_stated(name):
    make, types = CASES.get(name) or (FURTHER[name], (torch.float32,))
    made = [(dtype, form, *case) for dtype, form in product(types, FORMATS) for case in enumerate(make(dtype, form))]
    for *where, outcome in made:
        exact = listed(outcome.exact) if outcome.exact is not None else [None] * len(listed(outcome.own))
        for found, own, right in zip(listed(outcome.found), listed(outcome.own), exact, strict=True):
            assert found.dtype == own.dtype
            assert layout(found) == layout(own), where
            if outcome.tolerance == 0:
                assert same_bits(found, own), where
            assert relative(found, own) <= outcome.tolerance, where
            if right is not None:
                assert relative(found, right) <= max(outcome.tolerance, 2 * relative(own, right)), where


@pytest.mark.parametrize("name", [name for name in CASES if name != "relu6"])  # of NaN, see `hardtanh_bits`
def test_nan_and_infinity_spoil_what_they_spoil_in_pytorch(name, monkeypatch):
    def sound(tensor: torch.Tensor) -> torch.Tensor:
        finite, dims = tensor.isfinite(), APART.get(name, tensor.dim())
        return finite if dims >= tensor.dim() else finite.flatten(dims).all(-1)

    drawn = random
    for value, form in product((float("nan"), float("inf"), -float("inf")), FORMATS):

        def spoiled(*shape: int, seed: int = 0, value: float = value, **settings: Any) -> torch.Tensor:
            made = drawn(*shape, seed=seed, **settings)
            if seed == 0:  # what the operation reads
                made[(len(made) // 2, 1, *[0] * (made.dim() - 2))] = value
            return made

        monkeypatch.setattr(sys.modules[__name__], "random", spoiled)
        for number, outcome in enumerate(CASES[name][0](torch.float32, form)):
            for found, own in zip(listed(outcome.found), listed(outcome.own), strict=True):
                assert torch.equal(sound(found), sound(own)), (value, form, number)


class Normalized:
    """A batch normalization in training: inputs, what PyTorch saves, and its gradients."""

    def __init__(self, *shape: int, mean: float = 0.0, weight: Any = None, bias: Any = None) -> None:
        self.x, self.g, self.w, self.b = random(*shape) + mean, random(*shape, seed=1), weight, bias
        saved = aten.native_batch_norm(self.x, weight, bias, None, None, True, 0.1, EPSILON)
        self.y, self.mean, self.deviation = saved
        self.lean: Any = self.g, self.x, weight, self.mean, self.deviation
        rest = True, EPSILON, [True, weight is not None, bias is not None]
        self.native = given(*self.lean[:3], None, None, *self.lean[3:], *rest)
        self.own = aten.native_batch_norm_backward(*self.native)

    def errors(self, found: Any) -> list[float]:
        wide = [self.x, self.w, self.b]
        exact = gradients(lambda x, w, b: functional.batch_norm(x, None, None, w, b, True, 0.1, EPSILON), wide, self.g)
        return [relative(mine, right) for mine, right in zip(found, exact, strict=True)]


def test_without_weights_a_recomputed_result_is_the_first_one_and_the_gradient_that_of_float64():
    case = Normalized(5, 3, 8, 8)
    again = normalization.batch_norm_with_statistics(case.x, case.mean, case.deviation, None, None)
    assert same_bits(again, case.y)
    exact = gradients(lambda x: functional.batch_norm(x, None, None, training=True), [case.x], case.g)
    assert relative(normalization.batch_norm_gradient_lean(*case.lean)[0], exact[0]) <= 2e-6


def test_lean_is_as_accurate_as_pytorch_far_from_zero():
    case = Normalized(16, 4, 32, 32, mean=300.0, weight=random(4, seed=2).abs() + 0.5, bias=random(4, seed=3))
    found = normalization.batch_norm_gradient_lean(*case.lean)
    assert max(case.errors(found)) <= 2 * max(case.errors(case.own))


def test_the_error_from_the_output_is_small_within_the_guard():
    case = Normalized(16, 4, 32, 32, weight=torch.full((4,), 0.05), bias=torch.full((4,), 5.0))
    for way in (normalization.batch_norm_gradient_from_output, normalization.batch_norm_gradient_from_output_lean):
        for mine, theirs in zip(way(case.g, case.y, case.w, case.b, case.deviation), case.own, strict=True):
            assert relative(mine, theirs) < 1e-5


@pytest.mark.parametrize(("weight", "bias"), [(0.0, 1.0), (0.0, 0.0), (0.001, 1.0), (float("nan"), 1.0)])
def test_weights_from_which_the_input_cannot_be_found_are_refused(weight, bias):
    w, b = torch.tensor([1.0, weight]), torch.tensor([0.0, bias])
    assert not normalization.is_invertible(w, b)
    with pytest.raises(ExecutionError, match="channel 1 of a normalization"):
        normalization.batch_norm_gradient_from_output(torch.ones(4, 2), torch.ones(4, 2), w, b, torch.ones(2))
    with pytest.raises(ExecutionError, match="channel 1"):
        normalization.layer_norm_gradient_from_output(torch.ones(4, 2), torch.ones(4, 2), [2], w, b, torch.ones(4, 1))


def test_lean_needs_room_for_a_few_samples_only():
    case = Normalized(16, 8, 64, 64, weight=torch.ones(8), bias=torch.ones(8))
    assert workspace(aten.native_batch_norm_backward.default, *case.native) >= case.x.nbytes
    few, lean = 3 * 4 * CHUNK, normalization.batch_norm_gradient_lean_in_place
    assert workspace(normalization.batch_norm_gradient_lean, *case.lean) < few
    assert workspace(lean, *case.lean, taken_over=case.g.nbytes) < few
    output = case.g, case.y, case.w, case.b, case.deviation
    assert workspace(normalization.batch_norm_gradient_from_output_lean, *output) < few
    assert workspace(normalization.batch_norm_with_statistics, case.x, case.mean, case.deviation, case.w, case.b) < 4096
    y = random(2000, 512)
    of_layer = y, y, [512], torch.ones(512), torch.zeros(512), torch.ones(2000, 1)
    assert workspace(normalization.layer_norm_gradient_from_output, *of_layer) < 4 * 4 * CHUNK


def test_an_empty_batch_has_empty_gradients():
    empty, ones = torch.ones(0, 3, 4, 4), torch.ones(3)
    assert normalization.batch_norm_gradient_lean(empty, empty, ones, ones, ones)[0].shape == empty.shape
