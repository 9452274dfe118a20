"""Convolutions another way: the input gradient from the gradient alone, chunks that may write over what they read,
weight gradients whose input is computed again, layouts and libraries.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.convolution_arguments import ConvolutionArguments
from remat_explorer.capture.implementations import convolutions
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.capture.model_placement import exact_kernels
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute
from remat_explorer.runtime.interpreter import Interpreter
from tests.capture.implementations.nets import plan_by, preferring
from tests.capture.implementations.numerics import FORMATS, LAST, random, relative, same_bits, workspace
from tests.runtime.exactness import CPU

aten = torch.ops.aten

SETTING = ConvolutionArguments([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
NEAR = {torch.float32: 3e-6, torch.float64: 1e-13}
KINDS = ["chunks", "masks", "input-gradients"]


class Stacked(nn.Module):
    """Two convolutions of the same width after each other, as VGG begins, and a loss."""

    def __init__(self, activated: bool = True) -> None:
        super().__init__()
        middle = [nn.ReLU()] if activated else []
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *middle, nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).square().mean()


def stacked(activated: bool = True, size: int = 12) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Stacked(activated), (torch.randn(11, 3, size, size),)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [*NEAR, torch.bfloat16])
@pytest.mark.parametrize("samples", [1, 2, 8])
def test_chunks_over_their_input_are_chunks_beside_it_bit_for_bit(samples, dtype, form):
    x, w, b = (
        random(5, 4, 7, 6, dtype=dtype, form=form),
        random(4, 4, 3, 3, dtype=dtype, seed=1),
        random(4, dtype=dtype),
    )
    expected = convolutions.convolution_in_chunks(x, w, b, SETTING, samples)
    over = x.clone()
    found = convolutions.convolution_in_chunks_in_place(over, w, b, SETTING, samples)
    assert found is over
    assert same_bits(found, expected)
    gradient = convolutions.input_gradient_in_chunks(x, w, x.shape, SETTING, samples)
    over = x.clone()
    found = convolutions.input_gradient_in_chunks_in_place(over, w, x.shape, SETTING, samples)
    assert found is over
    assert same_bits(found, gradient)


def test_nan_and_infinity_stay_in_their_sample_in_place():
    x, w = random(4, 2, 5, 5), random(2, 2, 3, 3, seed=1)
    x[1, 0, 0, 0], x[2, 0, 0, 0] = float("nan"), float("inf")
    found = convolutions.convolution_in_chunks_in_place(x.clone(), w, None, SETTING, 1)
    assert [bool(sample.isfinite().all()) for sample in found] == [True, False, False, True]


@pytest.mark.parametrize("activated", [True, False])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("samples", [1, 2, 8])
def test_the_weight_gradient_with_its_input_recomputed_is_that_of_float64(samples, dtype, form, activated):
    x, w0, b0 = random(5, 3, 7, 6, dtype=dtype, form=form), random(4, 3, 3, 3, dtype=dtype, seed=1), random(4, seed=2)
    w, g = random(6, 4, 3, 3, dtype=dtype, seed=3), random(5, 6, 7, 6, dtype=dtype, seed=4, form=form)
    wide = [t.double() for t in (x, w0, b0, w, g)]
    source = aten.convolution(wide[0], wide[1], wide[2], *SETTING)
    source = source.relu() if activated else source
    exact = aten.convolution_backward(wide[4], source, wide[3], [6], *SETTING, [False, True, True])
    found = convolutions.weight_gradient_recomputed(
        g, x, w0, b0.to(dtype), SETTING, activated, w, [6], SETTING, [False, True, True], samples
    )
    assert found[0] is None
    for mine, theirs in zip(found[1:], exact[1:], strict=True):
        assert mine is not None
        assert relative(mine, theirs) <= 10 * NEAR[dtype]


def test_a_weight_gradient_of_no_sample_is_zero():
    x, w0, w = random(0, 3, 7, 6), random(4, 3, 3, 3), random(6, 4, 3, 3)
    found = convolutions.weight_gradient_recomputed(
        random(0, 6, 7, 6), x, w0, None, SETTING, True, w, [6], SETTING, [False, True, True], 2
    )
    assert [None if t is None else (tuple(t.shape), t.any().item()) for t in found] == [
        None,
        ((6, 4, 3, 3), False),
        ((6,), False),
    ]


def test_the_recomputed_input_never_exists_as_a_whole():
    x, w0, w, g = random(16, 3, 32, 32), random(16, 3, 3, 3), random(16, 16, 3, 3), random(16, 16, 32, 32)
    tail: Any = (w, None, SETTING, [False, True, False])

    def gradient(g: torch.Tensor, x: torch.Tensor, w0: torch.Tensor) -> torch.Tensor | None:
        arguments: Any = (g, x, w0, None, SETTING, True, *tail, 1)
        return convolutions.weight_gradient_recomputed(*arguments)[1]

    def whole(g: torch.Tensor, x: torch.Tensor, w0: torch.Tensor) -> torch.Tensor:
        source = aten.convolution(x, w0, None, *SETTING).relu_()
        return aten.convolution_backward(g, source, w, None, *SETTING, tail[-1])[1]

    assert workspace(gradient, g, x, w0) < workspace(whole, g, x, w0) / 2


@pytest.mark.parametrize("activated", [True, False])
def test_a_plan_in_chunks_has_the_gradients_of_plain_pytorch_and_the_peak_that_it_says(
    activated, tmp_path, monkeypatch
):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    model, args = stacked(activated, size=64)
    program = trace(model, args, options=rx.capture(model, args, implementations=KINDS).options)
    graph = rx.profile(program.graph, model, args, repeats=1)
    wanted = ("in chunks of 1 with input recomputed", "in chunks of 1", "from bits")
    plans = {
        name: plan_by(graph, preferring(graph, *names)) for name, names in {"default": (), "chunks": wanted}.items()
    }
    chosen = [s for s in plans["chunks"].statements if isinstance(s, Compute)]
    ways = [(s, graph.operations[s.operation].implementations[s.implementation - 1].name) for s in chosen]
    assert {name for _, name in ways} >= set(wanted)
    phases = [graph.operations[s.operation].phase for s, name in ways if name == wanted[1] and s.overwrites is not None]
    assert phases == ["forward", "backward"]  # the second convolution over its input, its input gradient likewise
    model(*args).backward()
    for name, plan in plans.items():
        registers = program.bind(model, TrainingStep(model, args).tensors(args, {}))
        with exact_kernels(), CpuMeter() as meter, meter.section():
            outcome = Interpreter(plan, program, CPU).run(registers)
        peak = meter.readings[0].highest - meter.readings[0].before + graph.resident_bytes
        assert abs(peak - plan.peak) <= 0.001 * plan.peak, name
        for key, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert relative(outcome.gradients[key], parameter.grad) <= 3e-5, (name, key)


def test_chunks_take_the_largest_tensors_of_vgg16_below_half_without_allocating_them():
    def least(graph: Graph, k: int) -> int:
        sizes, node = graph.value_bytes, graph.operations[k]
        ways = node.implementations
        taken = [0 if way.overwrites is None else sizes[way.overwrites] for way in ways]
        return min(
            int(sizes[[*way.inputs, *way.outputs]].sum() + way.workspace - over)
            for way, over in zip(ways, taken, strict=True)
        )

    with torch.device("meta"):
        body = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())
        images = torch.empty(176, 3, 224, 224)
    sizes: dict[bool, list[int]] = {}
    for chunked in (False, True):
        kinds = [kind for kind in KINDS if chunked or kind != "chunks"]
        graph = rx.capture(body, (images,), loss=lambda y: y.sum(), device="P100", implementations=kinds)
        sizes[chunked] = [least(graph, k) for k, node in enumerate(graph.operations) if node.name.startswith("2 ")]
    tensor = 4 * 176 * 64 * 224 * 224
    assert max(sizes[False]) >= 2 * tensor
    assert max(sizes[True]) <= 1.1 * tensor


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
