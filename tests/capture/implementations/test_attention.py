"""Attention by other kernels: pairs of forward and backward passes that belong together, and what they take."""

from typing import Any

import pytest
import torch
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture.implementations import attention_kernels
from remat_explorer.checker import replay
from remat_explorer.graph import Graph, Operation
from remat_explorer.runtime.comparison import compare
from tests.capture.implementations.nets import ROADS, Runner, plan_by, preferring
from tests.capture.implementations.numerics import random, relative, workspace

KINDS = ["flash", "efficient", "cudnn", "math"]


def attentions(graph: Graph) -> list[Operation]:
    return [node for node in graph.operations if "dot_product" in node.name]


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner("attentive", ["attention", "algorithms"])


def test_the_other_kernel_is_offered_forward_and_backward_with_a_stated_tolerance(runner):
    graph = runner.graph
    for node in attentions(graph):
        ways = {way.name: way for way in node.implementations}
        backward = node.phase == "backward"
        assert set(ways) == {"default", "by math"} | ({"recomputed", "by math, recomputed"} if backward else set())
        assert ways["by math"].tolerance > 0
        assert ways["by math"].kinds == ("algorithms",)
    exact = rx.capture(runner.model, runner.args, implementations="exact")
    assert {way.name for node in attentions(exact) for way in node.implementations} == {"default", "recomputed"}


def test_what_the_forward_pass_left_is_what_the_backward_pass_reads(runner):
    graph = runner.graph
    forward, backward = ([n for n in attentions(graph) if n.phase == phase] for phase in ("forward", "backward"))
    for node in backward:
        by_math = next(way for way in node.implementations if way.name == "by math")
        (left,) = [v for v in by_math.inputs if graph.values[v].name.endswith("probabilities")]
        makers = [way for n in forward for way in n.implementations if left in way.outputs]
        assert [way.name for way in makers] == ["by math"]
        assert not set(node.default.inputs[1:-1]) & set(by_math.inputs) - set(makers[0].inputs)


@pytest.mark.parametrize("name", ["by math", "by math, recomputed"])
def test_executed_they_have_the_gradients_of_plain_pytorch(runner, name):
    plan = plan_by(runner.graph, preferring(runner.graph, name))
    replay(plan)
    for road in ROADS:
        comparison = compare(runner.by(plan, road), runner.reference, runner.initial)
        assert 0 < comparison.gradient_difference < 3e-6
        assert comparison.random_state_equal


def test_math_takes_the_scores_of_one_sample_at_a_time():
    q = random(16, 2, 64, 8)
    one_sample = 2 * 64 * 64 * 4
    assert workspace(attention_kernels.attention_by, "math", q, q, q, None, False, None) < 3 * one_sample
    output, saved = attention_kernels.attention_by("math", q, q, q, None, False, None)
    taken = workspace(attention_kernels.attention_gradient_by, "math", q, q, q, q, output, saved, None, False, None)
    assert taken < 6 * one_sample
    again = workspace(attention_kernels.attention_gradient_recomputed, "math", q, q, q, q, None, False, None)
    assert again < saved.nbytes + output.nbytes + 6 * one_sample


def test_attention_that_keeps_nothing_makes_output_and_sums_again():
    q = random(4, 2, 64, 16)
    y, sums = attention_kernels.attention_by("cpu", q, q, q, None, False, None)
    own = workspace(attention_kernels.attention_gradient_by, "cpu", q, q, q, q, y, sums, None, False, None)
    found = workspace(attention_kernels.attention_gradient_recomputed, "cpu", q, q, q, q, None, False, None)
    assert y.nbytes <= found <= own + y.nbytes + sums.nbytes + 64 * 1024  # buffers of the forward kernel's blocks


def test_a_row_that_sees_nothing_is_0():
    q = random(2, 1, 3, 4)
    mask = torch.zeros(3, 3)
    mask[1] = -torch.inf
    output, saved = attention_kernels.attention_by("math", q, q, q, mask, False, None)
    assert output[:, :, 1].eq(0).all()
    found = attention_kernels.attention_gradient_by("math", torch.ones_like(q), q, q, q, None, saved, mask, False, None)
    assert all(bool(t.isfinite().all()) for t in found)


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_the_calls_for_cuda_fit_their_operators(kind):
    q, k = (torch.empty(2, 3, length, 16, dtype=torch.float16, device="meta") for length in (64, 32))
    output, saved = attention_kernels.attention_by(kind, q, k, k, None, False, None, (3072, 16, 48, 1))
    assert output.stride() == (3072, 16, 48, 1)
    assert saved.dtype == torch.float32
    strides = [q.stride(), (1536, 16, 48, 1), k.stride()]
    found = attention_kernels.attention_gradient_by(kind, q, q, k, k, output, saved, None, False, None, strides)
    assert [t.shape for t in found] == [q.shape, k.shape, k.shape]
    assert [t.stride() for t in found] == strides
    again = attention_kernels.attention_gradient_recomputed(kind, q, q, k, k, None, False, None, strides)
    assert [t.stride() for t in again] == strides


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_every_kind_has_the_gradients_of_float64(kind, dtype, causal):
    if dtype == torch.float32 and kind in ("flash", "cudnn"):
        pytest.skip("this kernel takes half precision only")
    given = [random(2, 3, 64, 32, dtype=dtype, seed=seed) for seed in range(4)]
    wide: Any = [t.to(torch.float64, copy=True).requires_grad_() for t in given[:3]]
    exact = functional.scaled_dot_product_attention(wide[0], wide[1], wide[2], is_causal=causal)
    slopes = torch.autograd.grad(exact, wide, given[3].double())
    q, k, v, g = (t.cuda() for t in given)
    setting: Any = None, causal, None
    output, saved = attention_kernels.attention_by(kind, q, k, v, *setting)
    close = 1e-4 if dtype == torch.float32 else 4e-2
    assert relative(output.cpu(), exact.detach()) < close
    found = attention_kernels.attention_gradient_by(kind, g, q, k, v, output, saved, *setting)
    again = attention_kernels.attention_gradient_recomputed(kind, g, q, k, v, *setting)
    for gradients in (found, again):
        assert max(relative(mine.cpu(), right) for mine, right in zip(gradients, slopes, strict=True)) < close
