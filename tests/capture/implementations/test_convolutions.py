"""Convolutions another way: in chunks, with an input computed again, in other layouts, by execution plans of cuDNN."""

import sys
from contextlib import nullcontext
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.cache_folder import entry_path
from remat_explorer.capture import trace
from remat_explorer.capture.implementations import convolutions, cudnn_plans
from remat_explorer.capture.implementations.cudnn_plans import ExecutionPlan, best_of
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.capture.model_placement import exact_kernels
from remat_explorer.capture.predicted_costs import ConvolutionArguments
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.errors import ExecutionError
from remat_explorer.graph import Graph, Operation
from remat_explorer.plan import Compute
from remat_explorer.runtime.comparison import compare
from remat_explorer.runtime.interpreter import Interpreter
from tests.capture.implementations import fake_cudnn
from tests.capture.implementations.nets import Runner, measured, plan_by, preferring
from tests.capture.implementations.numerics import FORMATS, random, relative, same_bits, workspace
from tests.runtime.exactness import CPU
from tests.runtime.kinds_of_models import Made

aten = torch.ops.aten

SETTING = ConvolutionArguments([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
GROUPED = ConvolutionArguments((2, 1), (1, 2), (1, 2), False, (0, 0), 2)
NEAR = {torch.float32: 3e-6, torch.float64: 1e-13}
KINDS = ["chunks", "masks", "input-gradients"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_chunks_over_their_input_are_chunks_beside_it_bit_for_bit(dtype, form):
    x, w = random(5, 4, 7, 6, dtype=dtype, form=form), random(4, 4, 3, 3, dtype=dtype, seed=1)
    ways: list[Any] = [
        (convolutions.convolution_in_chunks, convolutions.convolution_in_chunks_in_place, w[0, :, 0, 0]),
        (convolutions.input_gradient_in_chunks, convolutions.input_gradient_in_chunks_in_place, x.shape),
    ]
    for samples, (beside, in_place, given) in product((1, 2, 8), ways):
        over = x.clone()
        assert in_place(over, w, given, SETTING, samples) is over
        assert same_bits(over, beside(x, w, given, SETTING, samples))


@pytest.mark.parametrize("activated", [True, False])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", NEAR)
def test_the_weight_gradient_with_its_input_recomputed_is_that_of_float64(dtype, form, activated):
    x, w0, b0 = random(5, 3, 7, 6, dtype=dtype, form=form), random(4, 3, 3, 3, dtype=dtype, seed=1), random(4, seed=2)
    w, g = random(6, 4, 3, 3, dtype=dtype, seed=3), random(5, 6, 7, 6, dtype=dtype, seed=4, form=form)
    wide = [t.double() for t in (x, w0, b0, w, g)]
    source = aten.convolution(wide[0], wide[1], wide[2], *SETTING)
    source = source.relu() if activated else source
    exact = aten.convolution_backward(wide[4], source, wide[3], [6], *SETTING, [False, True, True])
    for samples in (1, 2, 8):
        found = convolutions.weight_gradient_recomputed(
            g, x, w0, b0.to(dtype), SETTING, activated, w, [6], SETTING, [False, True, True], samples
        )
        assert found[0] is None
        for mine, theirs in zip(found[1:], exact[1:], strict=True):
            assert mine is not None
            assert relative(mine, theirs) <= 10 * NEAR[dtype]


def test_the_recomputed_input_never_exists_as_a_whole():
    x, w0, w, g = random(16, 3, 32, 32), random(16, 3, 3, 3), random(16, 16, 3, 3), random(16, 16, 32, 32)
    mask = [False, True, False]

    def gradient(g: torch.Tensor, x: torch.Tensor, w0: torch.Tensor) -> Any:
        rest: Any = True, w, None, SETTING, mask, 1
        return convolutions.weight_gradient_recomputed(g, x, w0, None, SETTING, *rest)[1]

    def whole(g: torch.Tensor, x: torch.Tensor, w0: torch.Tensor) -> torch.Tensor:
        source = aten.convolution(x, w0, None, *SETTING).relu_()
        return aten.convolution_backward(g, source, w, None, *SETTING, mask)[1]

    assert workspace(gradient, g, x, w0) < workspace(whole, g, x, w0) / 2


@pytest.mark.parametrize("activated", [True, False])
def test_a_plan_in_chunks_has_the_gradients_of_plain_pytorch_and_the_peak_that_it_says(
    activated, tmp_path, monkeypatch
):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    torch.manual_seed(0)
    middle = [nn.ReLU()] if activated else []
    body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *middle, nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
    model: Any = Made(lambda s, x: s.body(x).square().mean(), body=body)
    args = (torch.randn(11, 3, 64, 64),)
    program = trace(model, args, options=rx.capture(model, args, implementations=KINDS).options)
    graph = rx.profile(program.graph, model, args, repeats=1)
    wanted = ("in chunks of 1 with input recomputed", "in chunks of 1", "from bits")
    plans = {names: plan_by(graph, preferring(graph, *names)) for names in ((), wanted)}
    chosen = [s for s in plans[wanted].statements if isinstance(s, Compute)]
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
    def least(graph: Graph, node: Operation) -> int:
        bytes_of = lambda *values: int(graph.value_bytes[[*values]].sum())  # noqa: E731
        over = {way.name: 0 if way.overwrites is None else bytes_of(way.overwrites) for way in node.implementations}
        return min(bytes_of(*w.inputs, *w.outputs) + w.workspace - over[w.name] for w in node.implementations)

    with torch.device("meta"):
        body = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())
        images = torch.empty(176, 3, 224, 224)
    sizes: dict[bool, list[int]] = {}
    for chunked in (False, True):
        kinds = [kind for kind in KINDS if chunked or kind != "chunks"]
        graph = rx.capture(body, (images,), loss=lambda y: y.sum(), device="P100", implementations=kinds)
        sizes[chunked] = [least(graph, node) for node in graph.operations if node.name.startswith("2 ")]
    tensor = 4 * 176 * 64 * 224 * 224
    assert max(sizes[False]) >= 2 * tensor
    assert max(sizes[True]) <= 1.1 * tensor


def test_an_empty_batch_has_empty_results():
    x, g, w0, w = random(0, 3, 7, 6), random(0, 6, 7, 6), random(4, 3, 3, 3), random(6, 4, 3, 3)
    assert convolutions.convolution_in_chunks(x, w0, None, SETTING, samples=2).shape == (0, 4, 7, 6)
    assert convolutions.input_gradient_in_chunks(g, w, [0, 4, 7, 6], SETTING, samples=2).shape == (0, 4, 7, 6)
    given: Any = (g, x, w0, None, SETTING, True, w, [6], SETTING, [False, True, True], 2)
    weight, bias = map(torch.as_tensor, convolutions.weight_gradient_recomputed(*given)[1:])
    assert torch.equal(weight, torch.zeros_like(w))
    assert torch.equal(bias, torch.zeros(6))


@pytest.mark.parametrize("form", FORMATS)
def test_chunks_need_the_workspace_of_a_chunk_and_the_input_gradient_no_input(form):
    x, g = random(8, 32, 32, 32, form=form), random(8, 32, 32, 32, seed=1, form=form)
    w, mask = random(32, 32, 3, 3, seed=2, form=form), [False, True, True]
    of_gradient: Any = (g, w, x.shape, SETTING)
    to_weight: Any = (g, x, w, [32])
    own = workspace(aten.convolution_backward.default, *to_weight, *SETTING, [True, False, False])
    assert workspace(convolutions.input_gradient, *of_gradient) <= own + 4096
    pairs = [
        ((aten.convolution.default, x, w, None, *SETTING), (convolutions.convolution_in_chunks, x, w, None, SETTING)),
        ((convolutions.input_gradient, *of_gradient), (convolutions.input_gradient_in_chunks, *of_gradient)),
        (
            (aten.convolution_backward.default, *to_weight, *SETTING, mask),
            (convolutions.weight_gradient_in_chunks, *to_weight, SETTING, mask),
        ),
    ]
    for whole, part in pairs:
        assert workspace(*part, 1) <= workspace(*whole) / 8 + 2 * x[0].nbytes + 2 * w.nbytes


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
    x, w, b = random(3, 4, 9, 8, form=form), random(6, 4 // groups, 3, 3, seed=1, form=form), random(6, seed=2)
    y = aten.convolution(x, w, b, *GROUPED._replace(groups=groups))
    return x, w, b, torch.empty_like(y).copy_(random(*y.shape, seed=3))


def exact_parts(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor, setting: ConvolutionArguments) -> dict[Any, Any]:
    wide = [t.to(torch.float64, copy=True).requires_grad_() for t in (x, w)]
    y = aten.convolution(*wide, None, *setting)
    return {"forward": y.detach()} | dict(
        zip(("input", "weight"), torch.autograd.grad(y, wide, g.double()), strict=True)
    )


def by_plan(part: Any, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor, setting: Any, *plan: Any) -> Any:
    if part == "forward":
        return cudnn_plans.convolution_by_plan(x, w, None, setting, g.shape, g.stride(), *plan)
    if part == "input":
        return cudnn_plans.input_gradient_by_plan(g, w, setting, x.shape, x.stride(), *plan)
    return cudnn_plans.weight_gradient_by_plan(g, x, False, setting, w.shape, w.stride(), *plan)[1]


@pytest.mark.parametrize(("form", "groups"), [(FORMATS[0], 2), (FORMATS[1], 1)])
@pytest.mark.usefixtures("library")
def test_result_and_gradients_by_a_plan_are_those_of_float64(form, groups):
    x, w, b, g = tensors(form, groups)
    plan = (0, (("TILE_M", 8),), 4096)
    for part, exact in exact_parts(x, w, g, GROUPED._replace(groups=groups)).items():
        assert relative(by_plan(part, x, w, g, GROUPED, *plan), exact) < 1e-5
    y = cudnn_plans.convolution_by_plan(x, w, b, GROUPED, g.shape, g.stride(), *plan)
    assert relative(y, aten.convolution(x, w, b, *GROUPED._replace(groups=groups))) < 1e-6
    assert y.stride() == g.stride()
    none, _, db = cudnn_plans.weight_gradient_by_plan(g, x, True, GROUPED, w.shape, w.stride(), *plan)
    assert none is None
    assert db is not None
    assert relative(db, g.sum((0, 2, 3))) < 1e-5


@pytest.mark.parametrize("part", ["forward", "input", "weight"])
@pytest.mark.usefixtures("library")
def test_plans_that_can_run_are_found_and_others_left_out(part, monkeypatch):
    x, w, _, g = tensors()
    problem = cudnn_plans.problem_of(part, (x, w, g), GROUPED)
    found = cudnn_plans.found_plans(problem, CPU)
    kept = {(plan.name, plan.engine, plan.knobs, plan.workspace) for plan in found}
    assert kept == {("eng0_k1=8", 0, (("TILE_M", 8),), 4096), ("eng1", 1, (), 0)}
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    wider = cudnn_plans.found_plans(cudnn_plans.problem_of(part, (x, w, g), GROUPED), CPU)
    assert {plan.name for plan in wider} == {"eng0_k1=8", "eng1", "eng4"}
    odd = random(1, 3, 5, 5), random(2, 3, 3, 3), random(1, 2, 3, 3)  # no engine serves three channels
    assert cudnn_plans.found_plans(cudnn_plans.problem_of(part, odd, GROUPED._replace(groups=1)), CPU) == []


def test_a_handle_is_made_once_for_a_device_and_runs_on_pytorchs_stream(monkeypatch):
    made, streams = [], []
    frontend: Any = SimpleNamespace()  # the names of release 1.32
    frontend.create_handle = lambda: made.append(object()) or made[-1]
    frontend.set_stream = lambda handle, stream: streams.append((handle, stream))
    monkeypatch.setitem(sys.modules, "cudnn", frontend)
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
    problem = cudnn_plans.problem_of("forward", (x, w, g), GROUPED)
    first = cudnn_plans.plans_of(problem, CPU)
    assert {p.name for p in first} <= {"eng0_k1=8", "eng1"}
    assert first
    monkeypatch.setattr(cudnn_plans, "_KNOWN", {})
    monkeypatch.setattr(cudnn_plans, "found_plans", lambda *_: pytest.fail("they are in the file"))
    assert cudnn_plans.plans_of(problem, CPU) == first


DAMAGES = {"all": "", "keys": "{}", '"workspace":5': '"workspace":-1', '"seconds":0.25': '"seconds":0.0'}


@pytest.mark.parametrize("damaged", DAMAGES)
@pytest.mark.usefixtures("library")
def test_a_file_that_cannot_be_trusted_counts_as_none(damaged):
    key = {"problem": 1}
    cudnn_plans.store_plans(key, [plan("a", 5, 0.25)])
    assert cudnn_plans.load_plans(key) == [plan("a", 5, 0.25)]
    path = entry_path("cudnn", key)
    text = path.read_text()
    path.write_text(text.replace(damaged, DAMAGES[damaged]) if damaged in text else DAMAGES[damaged])
    assert cudnn_plans.load_plans(key) is None


@pytest.mark.usefixtures("library")
def test_a_graph_offers_them_and_runs_them():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 2, 3, bias=False))
    runner = Runner(lambda: (model, (torch.randn(4, 4, 10, 10),)), ["algorithms"])
    names = {way.name for node in runner.graph.operations for way in node.implementations}
    ours = sorted(name for name in names if name.startswith("cuDNN eng"))
    for node in runner.graph.operations:
        if "conv2d" in node.name:
            assert any(way.name in ours for way in node.implementations)
    for road in ("interpreted", "generated"):
        found = runner.by(plan_by(runner.graph, preferring(runner.graph, *ours)), road)
        assert 0 <= compare(found, runner.reference, runner.initial).gradient_difference < 1e-5
    program = trace(model, runner.args, options=runner.graph.options)
    assert program.graph == runner.graph
    graph = rx.profile(runner.graph, model, runner.args, repeats=1)
    used = plan_by(graph, preferring(graph, *ours))
    assert abs(measured(used, program, model, runner.args) - used.peak) <= 0.001 * used.peak


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
    y = aten.convolution(x, w, None, *setting)
    g = torch.empty_like(y).copy_(random(*y.shape, dtype=dtype, seed=2))
    exact = exact_parts(x, w, g, setting)
    x, w, g = x.to(device), w.to(device), g.to(device)
    close = 1e-5 if dtype == torch.float32 else 2e-2
    for part, right in exact.items():
        plans = cudnn_plans.found_plans(cudnn_plans.problem_of(part, (x, w, g), setting), device)
        assert plans
        for p in plans:
            found = by_plan(part, x, w, g, setting, p.engine, p.knobs, p.workspace)
            assert relative(found.cpu(), right) <= close, p.name


@pytest.mark.usefixtures("library")
def test_a_plan_that_is_not_there_is_refused():
    x, w, _, g = tensors()
    with pytest.raises(ExecutionError, match=r"no engine 7 with knobs \{'STAGES': 3\}.*capture the model again"):
        cudnn_plans.convolution_by_plan(x, w, None, GROUPED, g.shape, g.stride(), 7, (("STAGES", 3),), 0)
