"""Convolutions in chunks that write over what they read, and weight gradients whose input is computed again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.alternatives.kernels import chunks_in_place, chunks_recomputed, convolution
from remat_explorer.capture.model_placement import exact_kernels
from remat_explorer.capture.operations.convolution_arguments import ConvolutionArguments
from remat_explorer.capture.profiling.memory_meter import CpuMeter
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute
from remat_explorer.runtime.interpreter import Interpreter
from tests.capture.alternatives.nets import plan_by, preferring
from tests.capture.alternatives.numerics import FORMATS, random, relative, same_bits, workspace
from tests.runtime.exactness import CPU

aten = torch.ops.aten
SETTING = ConvolutionArguments([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13}
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
@pytest.mark.parametrize("dtype", [*TOLERANCE, torch.bfloat16])
@pytest.mark.parametrize("samples", [1, 2, 8])
def test_chunks_over_their_input_are_chunks_beside_it_bit_for_bit(samples, dtype, form):
    x, w, b = (
        random(5, 4, 7, 6, dtype=dtype, form=form),
        random(4, 4, 3, 3, dtype=dtype, seed=1),
        random(4, dtype=dtype),
    )
    expected = convolution.convolution_in_chunks(x, w, b, SETTING, samples)
    over = x.clone()
    found = chunks_in_place.convolution_in_chunks_in_place(over, w, b, SETTING, samples)
    assert found is over
    assert same_bits(found, expected)
    gradient = convolution.input_gradient_in_chunks(x, w, x.shape, SETTING, samples)
    over = x.clone()
    found = chunks_in_place.input_gradient_in_chunks_in_place(over, w, x.shape, SETTING, samples)
    assert found is over
    assert same_bits(found, gradient)


def test_nan_and_infinity_stay_in_their_sample():
    x, w = random(4, 2, 5, 5), random(2, 2, 3, 3, seed=1)
    x[1, 0, 0, 0], x[2, 0, 0, 0] = float("nan"), float("inf")
    found = chunks_in_place.convolution_in_chunks_in_place(x.clone(), w, None, SETTING, 1)
    assert [bool(sample.isfinite().all()) for sample in found] == [True, False, False, True]


@pytest.mark.parametrize("activated", [True, False])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("samples", [1, 2, 8])
def test_the_weight_gradient_with_its_input_recomputed_is_that_of_float64(samples, dtype, form, activated):
    x, w0, b0 = random(5, 3, 7, 6, dtype=dtype, form=form), random(4, 3, 3, 3, dtype=dtype, seed=1), random(4, seed=2)
    w, g = random(6, 4, 3, 3, dtype=dtype, seed=3), random(5, 6, 7, 6, dtype=dtype, seed=4, form=form)
    wide = [t.double() for t in (x, w0, b0, w, g)]
    source = aten.convolution(wide[0], wide[1], wide[2], *SETTING)
    source = source.relu() if activated else source
    exact = aten.convolution_backward(wide[4], source, wide[3], [6], *SETTING, [False, True, True])
    found = chunks_recomputed.weight_gradient_recomputed(
        g, x, w0, b0.to(dtype), SETTING, activated, w, [6], SETTING, [False, True, True], samples
    )
    assert found[0] is None
    for mine, theirs in zip(found[1:], exact[1:], strict=True):
        assert mine is not None
        assert relative(mine, theirs) <= 10 * TOLERANCE[dtype]


def test_a_weight_gradient_of_no_sample_is_zero():
    x, w0, w = random(0, 3, 7, 6), random(4, 3, 3, 3), random(6, 4, 3, 3)
    found = chunks_recomputed.weight_gradient_recomputed(
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
        return chunks_recomputed.weight_gradient_recomputed(*arguments)[1]

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
