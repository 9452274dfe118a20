"""What implementations need beside their results: of each that is there to need little, that it does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.convolution_arguments import ConvolutionArguments
from remat_explorer.capture.implementations import attention_kernels, convolutions, pooling
from remat_explorer.checker import replay
from remat_explorer.plan import Compute
from tests.capture.implementations.nets import plan_by, pooled, preferring, residual
from tests.capture.implementations.numerics import FORMATS, random, workspace
from tests.capture.implementations.runner import measured

aten = torch.ops.aten

SETTING = ConvolutionArguments([1, 1], [1, 1], [1, 1], False, [0, 0], 1)


@pytest.mark.parametrize("form", FORMATS)
def test_gradients_of_convolutions_in_chunks_need_the_workspace_of_a_chunk(form):
    x, g = random(8, 32, 32, 32, form=form), random(8, 32, 32, 32, seed=1, form=form)
    w = random(32, 32, 3, 3, seed=2, form=form)
    of_gradient: Any = (g, w, x.shape, SETTING)
    whole = workspace(convolutions.input_gradient, *of_gradient)
    part = workspace(convolutions.input_gradient_in_chunks, *of_gradient, 1)
    sample = x[0].nbytes
    assert part <= whole / 8 + 2 * sample
    given, mask = (g, x, w, [32]), [False, True, True]
    whole = workspace(aten.convolution_backward.default, *given, *SETTING, mask)
    part = workspace(convolutions.weight_gradient_in_chunks, *given, SETTING, mask, 1)
    assert part <= whole / 8 + 2 * sample + 2 * w.nbytes


def test_the_input_gradient_without_the_input_needs_no_more_than_with_it():
    x, g, w = random(4, 16, 20, 20), random(4, 16, 20, 20, seed=1), random(16, 16, 3, 3, seed=2)
    own = workspace(aten.convolution_backward.default, g, x, w, [16], *SETTING, [True, False, False])
    found = workspace(convolutions.input_gradient, g, w, x.shape, SETTING)
    assert found <= own + 4096


@pytest.mark.parametrize("form", FORMATS)
def test_max_pooling_needs_indices_of_one_sample_in_any_memory_format(form):
    x, window = random(8, 16, 64, 64, form=form), ([2, 2], [2, 2], [0, 0], [1, 1], False)
    y, places = pooling.max_pool_with_places(x, *window)
    y = y.contiguous(memory_format=form)
    sample = 8 * y[0].numel()
    assert workspace(pooling.max_pool_with_places, x, *window) < 6 * sample
    assert workspace(pooling.max_pool_gradient_from_places, y, places, x.shape, *window) < 6 * sample


def test_attention_that_keeps_nothing_makes_output_and_sums_again():
    q = random(4, 2, 64, 16)
    y, sums = attention_kernels.attention_by("cpu", q, q, q, None, False, None)
    own = workspace(attention_kernels.attention_gradient_by, "cpu", q, q, q, q, y, sums, None, False, None)
    found = workspace(attention_kernels.attention_gradient_recomputed, "cpu", q, q, q, q, None, False, None)
    assert y.nbytes <= found <= own + y.nbytes + sums.nbytes + 64 * 1024  # buffers of the forward kernel's blocks


@pytest.mark.parametrize("make", [pooled, residual])
def test_a_profile_measures_every_implementation(make):
    model, args = make(32, 9)
    predicted = rx.capture(model, args, implementations="all")
    graph = rx.profile(predicted, model, args, repeats=1)
    ways = {way.name: way for node in graph.operations for way in node.implementations}
    assert ways["native"].workspace > 0
    pairs = [
        (way.workspace, node.default.workspace)
        for node in graph.operations
        for way in node.implementations
        if way.name == "in chunks of 1"
    ]
    assert sum(mine for mine, _ in pairs) < sum(theirs for _, theirs in pairs)


def test_an_operation_of_several_results_overwrites_an_input_and_is_metered_so():
    model, args = pooled(40, 9)
    graph = rx.profile(rx.capture(model, args, implementations=["lean"]), model, args, repeats=1)
    lean = [(k, n) for k, n in enumerate(graph.operations) if n.implementations[-1].name == "lean"]
    assert len(lean) == 2
    for _, node in lean:
        way = node.implementations[-1]
        assert len(way.outputs) == 3
        assert way.overwrites is not None
        assert graph.values[way.overwrites].bytes in [graph.values[v].bytes for v in way.outputs]
    plan = plan_by(graph, preferring(graph, "lean"))
    replay(plan)
    taken = [s.overwrites for s in plan.statements if isinstance(s, Compute) and s.operation in dict(lean)]
    assert len(taken) == 2
    assert None not in taken
    program = trace(model, args, options=graph.options)
    assert abs(measured(plan, program, model, args) - plan.peak) <= 0.001 * plan.peak
