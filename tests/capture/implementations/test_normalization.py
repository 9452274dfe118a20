"""Normalizations: lean, from the output, and with known statistics, beside PyTorch's kernels and float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from remat_explorer.capture.implementations import normalization
from remat_explorer.capture.implementations.chunks import CHUNK
from remat_explorer.errors import ExecutionError
from tests.capture.implementations.numerics import FORMATS, LAST, random, relative, same_bits, with_special, workspace

aten = torch.ops.aten

SHAPES = [(8, 6, 7, 5), (33, 5), (4, 3, 11), (2, 3, 4, 5, 2), (1, 2, 300, 300)]
EPSILON = 1e-5
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}


class Case:
    """A batch normalization in training: inputs, what PyTorch saves, and the gradients of float64."""

    def __init__(self, shape, dtype=torch.float32, form=FORMATS[0], shift=0.5, mean=0.0, affine=True):
        channels = shape[1]
        self.x = random(*shape, dtype=dtype, form=form) + mean
        self.g = random(*shape, dtype=dtype, seed=1, form=form)
        self.w: Any = random(channels, dtype=dtype, seed=2).abs() + 0.5 if affine else None
        self.b: Any = shift * random(channels, dtype=dtype, seed=3) if affine else None
        self.y, self.mean, self.deviation = aten.native_batch_norm(
            self.x, self.w, self.b, None, None, True, 0.1, EPSILON
        )
        wide: Any = [
            None if t is None else t.to(torch.float64, copy=True).requires_grad_() for t in (self.x, self.w, self.b)
        ]
        y = functional.batch_norm(wide[0], None, None, wide[1], wide[2], True, 0.1, EPSILON)
        self.exact = torch.autograd.grad(y, [t for t in wide if t is not None], self.g.double())

    def errors(self, found):
        return [relative(mine, exact) for mine, exact in zip(found, self.exact, strict=False)]

    @property
    def native(self):
        given = self.g, self.x, self.w, None, None, self.mean, self.deviation
        return aten.native_batch_norm_backward(*given, True, EPSILON, [True, True, True])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm_with_saved_statistics_is_the_first_result_bit_for_bit(shape, dtype, form):
    case = Case(shape, dtype, form)
    assert same_bits(
        normalization.batch_norm_with_statistics(case.x, case.mean, case.deviation, case.w, case.b), case.y
    )
    bare = Case(shape, dtype, form, affine=False)
    assert same_bits(normalization.batch_norm_with_statistics(bare.x, bare.mean, bare.deviation, None, None), bare.y)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_float64(shape, dtype, form):
    case = Case(shape, dtype, form)
    lean = case.g, case.x, case.w, case.mean, case.deviation
    output = case.g, case.y, case.w, case.b, case.deviation
    ways = {
        "lean": normalization.batch_norm_gradient_lean(*lean),
        "from output": normalization.batch_norm_gradient_from_output(*output),
        "from output, lean": normalization.batch_norm_gradient_from_output_lean(*output),
    }
    for name, found in ways.items():
        pairs = zip(case.errors(found), case.errors(case.native), strict=True)
        assert all(mine <= max(TOLERANCE[dtype], 3 * theirs) for mine, theirs in pairs), name
        assert [t.stride() for t in found] == [t.stride() for t in case.native], name
    over = case.g.clone()
    found = normalization.batch_norm_gradient_lean_in_place(over, *lean[1:])
    assert found[0] is over
    assert all(map(same_bits, found, ways["lean"]))
    over = case.g.clone()
    found = normalization.batch_norm_gradient_from_output_lean_in_place(over, *output[1:])
    assert found[0] is over
    assert all(map(same_bits, found, ways["from output, lean"]))


def test_lean_without_weights_has_the_gradient_of_float64():
    case = Case((5, 3, 8, 8), affine=False)
    found = normalization.batch_norm_gradient_lean(case.g, case.x, None, case.mean, case.deviation)
    assert case.errors(found)[0] <= TOLERANCE[torch.float32]


def test_lean_is_as_accurate_as_pytorch_far_from_zero():
    case = Case((16, 4, 32, 32), mean=300.0)
    found = normalization.batch_norm_gradient_lean(case.g, case.x, case.w, case.mean, case.deviation)
    native = case.errors(case.native)
    assert max(case.errors(found)) <= 2 * max(native)


def test_the_error_from_the_output_is_small_within_the_guard():
    case = Case((16, 4, 32, 32))
    case.w, case.b = torch.full((4,), 0.05), torch.full((4,), 5.0)
    case.y = normalization.batch_norm_with_statistics(case.x, case.mean, case.deviation, case.w, case.b)
    for way in (normalization.batch_norm_gradient_from_output, normalization.batch_norm_gradient_from_output_lean):
        for mine, theirs in zip(way(case.g, case.y, case.w, case.b, case.deviation), case.native, strict=True):
            assert relative(mine, theirs) < 1e-5


@pytest.mark.parametrize(("weight", "bias"), [(0.0, 1.0), (0.0, 0.0), (0.001, 1.0), (float("nan"), 1.0)])
def test_weights_from_which_the_input_cannot_be_found_are_refused(weight, bias):
    w, b = torch.tensor([1.0, weight]), torch.tensor([0.0, bias])
    assert not normalization.is_invertible(w, b)
    with pytest.raises(ExecutionError, match="channel 1 of a normalization"):
        normalization.batch_norm_gradient_from_output(torch.ones(4, 2), torch.ones(4, 2), w, b, torch.ones(2))


def test_infinities_and_nan_spoil_the_same_channels():
    case = Case((4, 8, 9, 9))
    with_special(case.g[:, 2])
    case.x[0, 5, 0, 0] = float("inf")
    case.y, case.mean, case.deviation = aten.native_batch_norm(case.x, case.w, case.b, None, None, True, 0.1, EPSILON)
    spoiled = [~t.isfinite() for t in case.native]
    found = normalization.batch_norm_gradient_lean(case.g, case.x, case.w, case.mean, case.deviation)
    assert all(torch.equal(~mine.isfinite(), theirs) for mine, theirs in zip(found, spoiled, strict=True))


def test_lean_needs_room_for_a_few_samples_only():
    case = Case((16, 8, 64, 64))
    lean = case.g, case.x, case.w, case.mean, case.deviation
    output = case.g, case.y, case.w, case.b, case.deviation
    native = workspace(
        aten.native_batch_norm_backward.default, *lean[:3], None, None, *lean[3:], True, EPSILON, [True, True, True]
    )
    assert native >= case.x.nbytes
    few = 3 * 4 * CHUNK
    assert workspace(normalization.batch_norm_gradient_lean, *lean) < few
    assert workspace(normalization.batch_norm_gradient_from_output_lean, *output) < few
    assert workspace(normalization.batch_norm_gradient_lean_in_place, *lean, taken_over=case.g.nbytes) < few
    assert workspace(normalization.batch_norm_with_statistics, case.x, case.mean, case.deviation, case.w, case.b) < 4096


def test_an_empty_batch_has_empty_gradients():
    empty, ones = torch.ones(0, 3, 4, 4), torch.ones(3)
    found = normalization.batch_norm_gradient_lean(empty, empty, ones, ones, ones)
    assert found[0].shape == empty.shape


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("shape", "normalized"), [((7, 12), [12]), ((3, 5, 4, 6), [4, 6]), ((900, 300), [300])])
def test_layer_norm_from_its_output_has_the_gradients_of_float64(shape, normalized, dtype):
    x, g = random(*shape, dtype=dtype) + 3, random(*shape, dtype=dtype, seed=1)
    w, b = random(*normalized, dtype=dtype, seed=2).abs() + 0.5, random(*normalized, dtype=dtype, seed=3)
    y, _, deviation = aten.native_layer_norm(x, normalized, w, b, EPSILON)
    wide = [t.to(torch.float64, copy=True).requires_grad_() for t in (x, w, b)]
    exact = torch.autograd.grad(functional.layer_norm(wide[0], normalized, wide[1], wide[2], EPSILON), wide, g.double())
    found = normalization.layer_norm_gradient_from_output(g, y, normalized, w, b, deviation)
    assert max(map(relative, found, exact)) <= TOLERANCE[dtype]
    assert [t.shape for t in found] == [x.shape, w.shape, b.shape]


def test_layer_norm_from_its_output_needs_room_for_a_few_rows_only():
    y, w, deviation = random(2000, 512), torch.ones(512), torch.ones(2000, 1)
    arguments = y, y, [512], w, torch.zeros(512), deviation
    assert workspace(normalization.layer_norm_gradient_from_output, *arguments) < 4 * 4 * CHUNK


def test_layer_norm_with_a_zero_weight_is_refused():
    with pytest.raises(ExecutionError, match="channel 0"):
        normalization.layer_norm_gradient_from_output(
            torch.ones(2, 2), torch.ones(2, 2), [2], torch.tensor([0.0, 1.0]), torch.ones(2), torch.ones(2, 1)
        )


def test_channels_last_stays_channels_last():
    case = Case((8, 6, 7, 5), form=LAST)
    found = normalization.batch_norm_gradient_lean(case.g, case.x, case.w, case.mean, case.deviation)
    assert found[0].is_contiguous(memory_format=LAST)
