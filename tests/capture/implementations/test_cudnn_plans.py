"""Execution plans of cuDNN: found, chosen, kept in a file, found again, and run; with a stand-in for the library."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import remat_explorer as rx
from remat_explorer.cache_folder import entry_path
from remat_explorer.capture import trace
from remat_explorer.capture.convolution_arguments import ConvolutionArguments
from remat_explorer.capture.implementations import cudnn_plans
from remat_explorer.capture.implementations.cudnn_plans import ExecutionPlan, best_of
from remat_explorer.errors import ExecutionError, RematError
from remat_explorer.runtime.comparison import compare
from tests.capture.implementations import fake_cudnn
from tests.capture.implementations.nets import NETS, plan_by, preferring
from tests.capture.implementations.numerics import FORMATS, random, relative, workspace
from tests.capture.implementations.runner import Runner, measured

aten = torch.ops.aten

CPU = torch.device("cpu")
SETTING = ConvolutionArguments((2, 1), (1, 2), (1, 2), False, (0, 0), 2)


@pytest.fixture
def library(monkeypatch, tmp_path):
    """The stand-in in place of the package, as if the CPU were a device that it serves; with a cache of its own."""
    monkeypatch.setitem(sys.modules, "cudnn", fake_cudnn.module())
    monkeypatch.setattr(cudnn_plans, "why_not", lambda device: "")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(cudnn_plans, "_KNOWN", {})
    monkeypatch.setattr(cudnn_plans, "_BUILT", {})
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))


def tensors(form: Any = FORMATS[0], groups: int = 2) -> tuple[torch.Tensor, ...]:
    """Source, weight, bias and gradient of a convolution with `SETTING`."""
    x, w, b = random(3, 4, 9, 8, form=form), random(6, 4 // groups, 3, 3, seed=1, form=form), random(6, seed=2)
    y = aten.convolution(x, w, b, *SETTING._replace(groups=groups))
    return x, w, b, torch.empty_like(y).copy_(random(*y.shape, seed=3))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.usefixtures("library")
def test_result_and_gradients_by_a_plan_are_those_of_float64(form, groups):
    x, w, b, g = tensors(form, groups)
    wide = [t.to(torch.float64, copy=True).requires_grad_() for t in (x, w, b)]
    exact_y = aten.convolution(*wide, *SETTING._replace(groups=groups))
    exact = torch.autograd.grad(exact_y, wide, g.double())
    plan = (0, (("TILE_M", 8),), 4096)
    y = cudnn_plans.convolution_by_plan(x, w, b, SETTING, g.shape, g.stride(), *plan)
    assert relative(y, exact_y.detach()) < 1e-6
    assert y.stride() == g.stride()
    assert relative(cudnn_plans.input_gradient_by_plan(g, w, SETTING, x.shape, x.stride(), *plan), exact[0]) < 1e-6
    none, dw, db = cudnn_plans.weight_gradient_by_plan(g, x, True, SETTING, w.shape, w.stride(), *plan)
    assert none is None
    assert db is not None
    assert relative(dw, exact[1]) < 1e-5
    assert relative(db, exact[2]) < 1e-5
    assert cudnn_plans.weight_gradient_by_plan(g, x, False, SETTING, w.shape, w.stride(), *plan)[2] is None


@pytest.mark.usefixtures("library")
def test_the_workspace_is_seen_by_the_meter():
    x, w, _, g = tensors()
    extra = []
    for plan in ((0, (("TILE_M", 8),), 1 << 22), (0, (("TILE_M", 8),), 1 << 23)):
        extra.append(workspace(cudnn_plans.convolution_by_plan, x, w, None, SETTING, g.shape, g.stride(), *plan))
    assert extra[1] - extra[0] == 1 << 22


@pytest.mark.parametrize("part", ["forward", "input", "weight"])
@pytest.mark.usefixtures("library")
def test_plans_that_can_run_are_found_and_others_left_out(part, monkeypatch):
    x, w, _, g = tensors()
    problem = cudnn_plans.problem_of(part, (x, w, g), SETTING)
    found = cudnn_plans.found_plans(problem, CPU)
    assert {plan.name: (plan.engine, plan.knobs, plan.workspace) for plan in found} == {
        "eng0_k1=8": (0, (("TILE_M", 8),), 4096),
        "eng1": (1, (), 0),
    }
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    wider = cudnn_plans.found_plans(cudnn_plans.problem_of(part, (x, w, g), SETTING), CPU)
    assert {plan.name for plan in wider} == {"eng0_k1=8", "eng1", "eng4"}


@pytest.mark.usefixtures("library")
def test_where_no_engine_serves_there_is_no_plan():
    x, w = random(1, 3, 5, 5), random(2, 3, 3, 3)
    arguments = ConvolutionArguments((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    y = arguments.convolution(x, w, None)
    assert cudnn_plans.found_plans(cudnn_plans.problem_of("forward", (x, w, y), arguments), CPU) == []


@pytest.mark.usefixtures("library")
def test_a_plan_that_is_not_there_is_refused():
    x, w, _, g = tensors()
    with pytest.raises(ExecutionError, match=r"no engine 7 with knobs \{'STAGES': 3\}.*capture the model again"):
        cudnn_plans.convolution_by_plan(x, w, None, SETTING, g.shape, g.stride(), 7, (("STAGES", 3),), 0)


def test_a_handle_is_made_once_for_a_device_and_runs_on_pytorchs_stream(monkeypatch):
    made, streams = [], []
    names = {
        "create_handle": lambda: made.append(object()) or made[-1],
        "set_stream": lambda handle, stream: streams.append((handle, stream)),
    }
    monkeypatch.setitem(sys.modules, "cudnn", SimpleNamespace(**names))  # the names of release 1.32
    monkeypatch.setattr(cudnn_plans, "_HANDLES", {})
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=7 + len(streams)))
    handles = [cudnn_plans.handle_of(torch.device("cuda", 0)) for _ in range(2)]
    assert handles == made * 2
    assert streams == [(made[0], 7), (made[0], 8)]


def test_without_cuda_or_the_package_the_reason_is_said(monkeypatch):
    assert "on a CUDA device only, not on cpu" in cudnn_plans.why_not(CPU)
    monkeypatch.setitem(sys.modules, "cudnn", None)
    assert "pip install 'remat-explorer[cudnn]'" in cudnn_plans.why_not(torch.device("cuda"))
    with pytest.raises(ExecutionError, match="takes the package nvidia-cudnn-frontend"):
        cudnn_plans.library()


def plan(name: str, size: int, seconds: float) -> ExecutionPlan:
    """A plan that only has numbers."""
    return ExecutionPlan(0, (), name, size, seconds)


def test_only_plans_that_none_beats_are_kept_the_fastest_and_the_leanest_always():
    plans = [plan("slow", 0, 9.0), plan("fast", 100, 1.0), plan("worse", 100, 2.0), plan("equal", 100, 1.0)]
    plans += [plan(f"between {i}", 90 - i, 2.0 + i) for i in range(5)]
    assert [p.name for p in best_of(plans, 3)] == ["fast", "between 2", "slow"]
    assert [p.name for p in best_of(plans, 2)] == ["fast", "slow"]
    assert [p.name for p in best_of(plans, 1)] == ["slow"]
    assert best_of([], 3) == best_of(plans, 0) == []
    assert len(best_of(plans, 99)) == 7


@pytest.mark.usefixtures("library")
def test_what_was_chosen_once_is_read_from_its_file(monkeypatch):
    x, w, _, g = tensors()
    problem = cudnn_plans.problem_of("forward", (x, w, g), SETTING)
    first = cudnn_plans.plans_of(problem, CPU)
    assert {p.name for p in first} <= {"eng0_k1=8", "eng1"}
    assert first
    monkeypatch.setattr(cudnn_plans, "_KNOWN", {})
    monkeypatch.setattr(cudnn_plans, "found_plans", lambda *_: pytest.fail("they are in the file"))
    assert cudnn_plans.plans_of(problem, CPU) == first


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '"workspace":-1', '"workspace":true', '"seconds":0.0'])
@pytest.mark.usefixtures("library")
def test_a_file_that_cannot_be_trusted_counts_as_none(damage):
    key = {"problem": 1}
    cudnn_plans.store_plans(key, [plan("a", 5, 0.25)])
    assert cudnn_plans.load_plans(key) == [plan("a", 5, 0.25)]
    path = entry_path("cudnn", key)
    text = path.read_text()
    if damage.startswith('"'):
        name = damage.partition(":")[0]
        old = f"{name}:5" if "workspace" in name else f"{name}:0.25"
        assert old in text
        path.write_text(text.replace(old, damage))
    else:
        path.write_text(damage)
    assert cudnn_plans.load_plans(key) is None


def test_a_plan_with_impossible_numbers_is_refused():
    with pytest.raises(RematError, match="bytes of at least 0"):
        plan("a", -1, 1.0)
    with pytest.raises(RematError, match="no execution plan"):
        ExecutionPlan.of({"engine": 1})


@pytest.mark.usefixtures("library")
def test_a_graph_offers_them_and_runs_them(monkeypatch):
    def even(size: int = 10, batch: int = 4):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.ReLU(), torch.nn.Conv2d(6, 2, 3, bias=False))
        return model, (torch.randn(batch, 4, size, size),)

    monkeypatch.setitem(NETS, "even", even)
    runner = Runner("even", ["algorithms"])
    names = {way.name for node in runner.graph.operations for way in node.implementations}
    ours = sorted(name for name in names if name.startswith("cuDNN eng"))
    assert ours
    for node in runner.graph.operations:
        if "conv2d" in node.name:
            assert any(way.name in ours for way in node.implementations)
    for road in ("interpreted", "generated"):
        found = runner.by(plan_by(runner.graph, preferring(runner.graph, *ours)), road)
        comparison = compare(found, runner.reference, runner.initial)
        assert 0 <= comparison.gradient_difference < 1e-5
    again = trace(runner.model, runner.args, options=runner.graph.options).graph
    assert again == runner.graph
    model, args = even(24, 8)
    graph = rx.profile(rx.capture(model, args, implementations=["algorithms"]), model, args, repeats=1)
    used = plan_by(graph, preferring(graph, *ours))
    program = trace(model, args, options=graph.options)
    assert abs(measured(used, program, model, args) - used.peak) <= 0.001 * used.peak


def test_the_key_of_a_file_is_json():
    x, w, _, g = tensors()
    document = cudnn_plans.problem_of("weight", (x, w, g), SETTING).document()
    assert json.loads(json.dumps(document))["sizes"][1] == [6, 2, 3, 3]


@pytest.mark.gpu
@pytest.mark.skipif(
    bool(cudnn_plans.why_not(torch.device("cuda"))), reason="the package nvidia-cudnn-frontend is not here"
)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_every_plan_has_the_result_of_float64(dtype, form, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    device = torch.device("cuda", 0)
    x, w = random(8, 16, 20, 20, dtype=dtype, form=form), random(32, 16, 3, 3, dtype=dtype, seed=1, form=form)
    setting = ConvolutionArguments((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    wide = [t.to(torch.float64, copy=True).requires_grad_() for t in (x, w)]
    y = aten.convolution(*wide, None, *setting)
    g = torch.empty_like(y, dtype=dtype).copy_(random(*y.shape, dtype=dtype, seed=2)).detach()
    exact = (*torch.autograd.grad(y, wide, g.double()), y.detach())
    x, w, g = x.to(device), w.to(device), g.to(device)
    close = 1e-5 if dtype == torch.float32 else 2e-2
    for part in ("forward", "input", "weight"):
        plans = cudnn_plans.found_plans(cudnn_plans.problem_of(part, (x, w, g), setting), device)
        assert plans
        for p in plans:
            rest = p.engine, p.knobs, p.workspace
            if part == "forward":
                found, right = (
                    cudnn_plans.convolution_by_plan(x, w, None, setting, g.shape, g.stride(), *rest),
                    exact[2],
                )
            elif part == "input":
                found, right = cudnn_plans.input_gradient_by_plan(g, w, setting, x.shape, x.stride(), *rest), exact[0]
            else:
                found = cudnn_plans.weight_gradient_by_plan(g, x, False, setting, w.shape, w.stride(), *rest)[1]
                right = exact[1]
            assert relative(found.cpu(), right) <= close, p.name
