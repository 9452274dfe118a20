"""Convolutions another way: the input gradient from the gradient alone, batch chunks, layouts and libraries."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from remat_explorer.capture.convolution_arguments import ConvolutionArguments
from remat_explorer.capture.implementations import convolutions
from tests.capture.alternatives.numerics import FORMATS, LAST, random, relative, same_bits, workspace

aten = torch.ops.aten
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-14}
CASES: dict[str, Any] = {  # input, weight, stride, padding, dilation, transposed, output padding, groups
    "plain": ((5, 6, 11, 9), (8, 6, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "strided": ((3, 4, 12, 9), (6, 4, 3, 2), [2, 3], [1, 0], [1, 1], False, [0, 0], 1),
    "dilated": ((2, 4, 13, 13), (4, 4, 3, 3), [1, 2], [2, 2], [2, 3], False, [0, 0], 1),
    "pointwise": ((4, 8, 7, 7), (16, 8, 1, 1), [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
    "grouped": ((3, 8, 9, 9), (12, 2, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
    "depthwise": ((3, 8, 10, 10), (8, 1, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 8),
    "one-dimensional": ((3, 4, 17), (5, 4, 3), [2], [1], [1], False, [0], 1),
    "three-dimensional": ((2, 3, 6, 7, 5), (4, 3, 3, 3, 3), [1, 2, 1], [1, 1, 1], [1, 1, 1], False, [0, 0, 0], 1),
    "transposed": ((3, 6, 7, 6), (6, 4, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
}
PARTS = [1, 2, 4, 8]


class Case:
    """A convolution with the gradients of its output, of PyTorch's kernels and of float64."""

    def __init__(self, name, dtype=torch.float32, form=FORMATS[0]):
        size, kernel, *rest = CASES[name]
        self.arguments = ConvolutionArguments(*rest)
        self.x = random(*size, dtype=dtype, form=form)
        self.w = random(*kernel, dtype=dtype, seed=1, form=form)
        self.b = random(
            kernel[1] * self.arguments.groups if self.arguments.transposed else kernel[0], dtype=dtype, seed=2
        )
        self.y = aten.convolution(self.x, self.w, self.b, *self.arguments)
        self.g = torch.empty_like(self.y).copy_(random(*self.y.shape, dtype=dtype, seed=3))
        wide = [t.to(torch.float64, copy=True).requires_grad_() for t in (self.x, self.w, self.b)]
        result = aten.convolution(*wide, *self.arguments)
        self.exact_y = result.detach()
        self.exact = torch.autograd.grad(result, wide, self.g.double())

    def backward(self, *mask: bool):
        return aten.convolution_backward(self.g, self.x, self.w, [len(self.b)], *self.arguments, list(mask))

    @property
    def of_gradient(self) -> Any:
        return (self.g, self.w, self.x.shape, self.arguments)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [*TOLERANCE, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_the_input_gradient_without_the_input_is_that_of_pytorch_bit_for_bit(name, dtype, form):
    case = Case(name, dtype, form)
    expected = case.backward(True, False, False)[0]
    found = convolutions.input_gradient(*case.of_gradient)
    if name == "grouped" and form is LAST:  # oneDNN takes another kernel for these, see the docstring
        assert found.stride() == expected.stride()
        assert relative(found, case.exact[0]) <= max(TOLERANCE.get(dtype, 0), 2 * relative(expected, case.exact[0]))
    else:
        assert same_bits(found, expected)


@pytest.mark.parametrize("name", CASES)
def test_the_gradients_apart_are_those_of_the_joint_call_bit_for_bit(name):
    case = Case(name)
    joint = case.backward(True, True, True)
    assert same_bits(case.backward(True, False, False)[0], joint[0])
    assert all(map(same_bits, case.backward(False, True, True)[1:], joint[1:]))


@pytest.mark.parametrize("samples", PARTS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_chunks_have_the_results_of_float64(name, dtype, samples):
    case = Case(name, dtype)
    found = convolutions.convolution_in_chunks(case.x, case.w, case.b, case.arguments, samples=samples)
    assert relative(found, case.exact_y) <= TOLERANCE[dtype]
    assert found.stride() == case.y.stride()
    gradient = convolutions.input_gradient_in_chunks(*case.of_gradient, samples=samples)
    assert relative(gradient, case.exact[0]) <= TOLERANCE[dtype]
    assert gradient.stride() == case.x.stride()
    none, weight, bias = convolutions.weight_gradient_in_chunks(
        case.g, case.x, case.w, [len(case.b)], case.arguments, mask=[False, True, True], samples=samples
    )
    assert none is None
    assert weight is not None
    assert bias is not None
    assert relative(weight, case.exact[1]) <= 10 * TOLERANCE[dtype]
    assert relative(bias, case.exact[2]) <= 10 * TOLERANCE[dtype]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["plain", "strided", "depthwise", "transposed"])
def test_chunks_have_the_layout_of_the_whole(name, form):
    case = Case(name, form=form)
    found = convolutions.convolution_in_chunks(case.x, case.w, case.b, case.arguments, samples=2)
    assert found.stride() == case.y.stride()
    expected = case.backward(True, False, False)[0]
    assert convolutions.input_gradient_in_chunks(*case.of_gradient, samples=2).stride() == expected.stride()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_the_native_kernels_have_the_results_of_float64(name, dtype):
    case = Case(name, dtype)
    before = torch.backends.mkldnn.enabled
    found = convolutions.convolution_native(case.x, case.w, case.b, case.arguments)
    assert relative(found, case.exact_y) <= TOLERANCE[dtype]
    assert relative(convolutions.input_gradient_native(*case.of_gradient), case.exact[0]) <= TOLERANCE[dtype]
    gradients = convolutions.weight_gradient_native(
        case.g, case.x, case.w, [len(case.b)], case.arguments, mask=[False, True, True]
    )
    assert gradients[1] is not None
    assert relative(gradients[1], case.exact[1]) <= 10 * TOLERANCE[dtype]
    assert torch.backends.mkldnn.enabled == before


@pytest.mark.parametrize("name", [name for name in CASES if len(CASES[name][0]) == 4])
def test_channels_last_and_back_has_the_result_of_float64(name):
    case = Case(name)
    found = convolutions.convolution_channels_last(case.x, case.w, case.b, case.arguments)
    assert relative(found, case.exact_y) <= TOLERANCE[torch.float32]
    assert found.stride() == case.y.stride()


def test_an_empty_batch_has_empty_results():
    case = Case("plain")
    x, g = case.x[:0], case.g[:0]
    assert convolutions.convolution_in_chunks(x, case.w, case.b, case.arguments, samples=2).shape == g.shape
    arguments: Any = (g, case.w, x.shape, case.arguments)
    assert convolutions.input_gradient_in_chunks(*arguments, samples=2).shape == x.shape


def test_nan_and_infinity_stay_in_their_sample():
    case = Case("plain")
    case.x[1, 0, 0, 0], case.x[2, 0, 0, 0] = float("nan"), float("inf")
    found = convolutions.convolution_in_chunks(case.x, case.w, case.b, case.arguments, samples=1)
    assert [bool(sample.isfinite().all()) for sample in found] == [True, False, False, True, True]


def test_chunks_need_a_fraction_of_the_workspace():
    size = (8, 32, 32, 32)
    x, w, arguments = random(*size), random(32, 32, 3, 3, seed=1), Case("plain").arguments
    whole = workspace(aten.convolution.default, x, w, None, *arguments)
    part = workspace(convolutions.convolution_in_chunks, x, w, None, arguments, 1)
    sample = x[0].nbytes
    assert part <= whole / 8 + 2 * sample
