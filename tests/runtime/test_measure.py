"""Measured plans: memory is as predicted, results are plain PyTorch's bit for bit, and the model stays as it was."""

import copy
import dataclasses
import itertools
import json
import statistics
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.memory_meter import AllocatorBytes
from remat_explorer.errors import ExecutionError
from remat_explorer.models import LoadedModel
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.runtime.measure_plan import record_memory_snapshot
from remat_explorer.runtime.measurement import Allocator, Measurement
from remat_explorer.runtime.plan_runner import PlanRunner
from remat_explorer.solution_summary import Status
from tests.capture.cuda_stand_in import GPU
from tests.runtime.kinds_of_models import KINDS, Case, Made, linear, x
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of
from tests.thorough import thorough_but

SIZES = {"mlp": (8, None), "residual_net": (2, 16), "vgg16": (2, 32), "unet": (1, 64)}


@cache
def profiled(name: str) -> tuple[LoadedModel, rx.Graph]:
    batch, image = SIZES[name]
    model = rx.models.load(name, batch=batch, image=image)
    return model, rx.profile(model.graph, model.module, model.args, device="cpu", repeats=1)


@pytest.fixture(scope="module")
def net() -> tuple[LoadedModel, rx.Graph]:
    return profiled("residual_net")


def run(schedule: rx.Schedule, model: LoadedModel, repeats: int = 1, **options: Any) -> Measurement:
    return rx.measure(solution_of(schedule), model.module, model.args, device="cpu", repeats=repeats, **options)


@pytest.fixture(scope="module")
def kept(net: tuple[LoadedModel, rx.Graph]) -> Measurement:
    model, graph = net
    return run(checkpoint_all(graph), model)


SCHEDULES = [(name, seed) for name in SIZES for seed in (None, 0)]


@pytest.mark.parametrize(("name", "seed"), thorough_but(SCHEDULES, ("residual_net", None), ("residual_net", 0)))
def test_memory_is_as_predicted_and_results_are_equal_bit_for_bit(name, seed):
    model, graph = profiled(name)
    schedule = checkpoint_all(graph) if seed is None else random_schedule(graph, seed)
    rx.check(graph, schedule.R, schedule.S)
    assert (schedule.recomputations > 0) == (seed is not None)
    found = run(schedule, model)
    bound = 0.005 if seed is None else 0.01
    assert abs(found.error) <= abs(found.dynamic_error) <= bound
    assert found.peak <= found.predicted_peak * (1 + bound)
    assert np.abs(found.during - found.predicted.during).max() <= 0.01 * found.predicted_peak
    np.testing.assert_array_equal(found.after, found.predicted.after)
    assert found.generated_peak == found.peak
    assert found.equal


def test_runs_take_turns_and_their_range_stands_beside_the_overhead(net, kept):
    model, graph = net
    seen: list[tuple[int, int]] = []
    found = run(checkpoint_all(graph), model, repeats=3, on_progress=lambda *now: seen.append(now))
    assert seen == [(done + 1, len(seen)) for done in range(len(seen))]
    assert {name: len(times) for name, times in found.times.items()} == {"plan": 3, "checkpoint-all": 3, "eager": 3}
    assert found.seconds == statistics.median(found.times["plan"])
    assert found.overhead_range is not None
    least, largest = found.overhead_range
    assert 0 < least <= largest
    assert found.to_document()["measured_overhead_range"] == (least, largest)
    assert kept.overhead_range is None  # of one turn


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ((1.2, 1.21, 1.22), "+21.0 % (+20.0 % to +22.0 %)"),
        ((0.5, 1.1, 1.4), "too noisy to compare (-50.0 % to +40.0 %)"),
        ((1.2,) * 6 + (0.5, 1.21, 9.0), "+20.0 % (+20.0 % to +21.0 %)"),  # of nine turns one may be out at each end
    ],
)
def test_an_overhead_whose_turns_differ_by_more_than_itself_is_too_noisy_to_compare(kept, plan, said):
    times = {"plan": plan, "checkpoint-all": (1.0,) * len(plan)}
    found = dataclasses.replace(kept, seconds=plan[1], checkpoint_all_seconds=1.0, times=times)
    assert found.overhead_text == said
    assert found.is_noisy == said.startswith("too noisy")
    assert f"measured {said}" in str(found)


def test_runs_that_are_too_noisy_take_more_turns_where_an_overhead_is_predicted(net, monkeypatch):
    model, graph = net
    taken: list[tuple[float, ...]] = []

    def timed(bench, names, repeats, advance):
        taken.append(plan := (1.2,) * 3 if taken else (0.5, 1.2, 9.0))
        return {name: plan if name == "plan" else (1.0,) * len(plan) for name in names}

    monkeypatch.setattr(PlanRunner, "timed", timed)
    for schedule, turns in ((checkpoint_all(graph), 3), (random_schedule(graph, 0), 9)):
        found = run(schedule, model, repeats=3)
        assert {len(times) for times in found.times.values()} == {turns}
        assert found.eager is not None
        assert found.eager.seconds == 1.0
        taken.clear()


def test_the_summary_says_what_was_predicted_and_measured_and_what_a_gpu_would_reserve(net, kept):
    for words in ("gradients equal: max difference 0", "peak: predicted", "overhead: predicted +0.0 %", "within it"):
        assert words in str(kept)
    assert kept.allocator is None
    assert kept.eager.peak > net[1].resident_bytes
    assert sum(kept.resident_tensors) == net[1].resident_bytes
    predicted = kept.predicted_allocator
    assert predicted.peak_requested == kept.predicted_peak < predicted.peak_allocated <= predicted.peak_reserved
    assert kept.to_document()["predicted_reserved_on_gpu"] == predicted.peak_reserved
    assert str(kept).endswith("(predicted)")


def test_the_peaks_of_the_allocator_stand_beside_the_budget_in_text_and_json(kept):
    counts = ("requested", "allocated", "reserved")
    assert [kept.to_document()[f"{name}{of}"] for name in counts for of in ("", "_peak")] == [None] * 6
    allocator = Allocator(process=AllocatorBytes(300, 400, 500), plan=AllocatorBytes(30, 40, 50), libraries=64)
    on_cuda = dataclasses.replace(kept, allocator=allocator)
    assert [on_cuda.to_document()[name] for name in counts] == [300, 400, 500]
    assert [on_cuda.to_document()[f"{name}_peak"] for name in counts] == [30, 40, 50]
    assert "CUDA, beside the budget: requested 30 B, allocated 40 B, reserved 50 B" in str(on_cuda)
    assert on_cuda.to_document()["library_workspaces"] == 64
    assert "the whole process: requested 300 B, allocated 400 B, reserved 500 B; cuBLAS keeps 64 B" in str(on_cuda)


def test_where_only_the_generated_code_passes_the_budget_the_text_says_so(kept):
    more = dataclasses.replace(kept, budget=kept.peak, generated_peak=kept.peak + 4096)
    assert f"peak of the generated code is {format_bytes(more.generated_peak)}, ABOVE it" in str(more)
    assert "measured peak is ABOVE it" in str(dataclasses.replace(kept, budget=kept.peak - 1))


class Kept:
    """A library that keeps a workspace from its first call on, as cuBLAS does."""

    workspace: torch.Tensor | None = None


@torch.library.custom_op("remat_explorer_tests::multiplied", mutates_args=())
def multiplied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if Kept.workspace is None:
        Kept.workspace = torch.empty(2**20)
    return x @ y


multiplied.register_fake(lambda x, y: x @ y)
multiplied.register_autograd(
    lambda ctx, g: (multiplied(g, ctx.saved_tensors[1].t()), multiplied(ctx.saved_tensors[0].t(), g)),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def test_a_workspace_that_a_library_keeps_is_there_before_any_meter_starts():
    weight, x = nn.Parameter(torch.ones(64, 64)), torch.ones(256, 64)
    model = Made(lambda s, x: multiplied(multiplied(x, s.weight).tanh(), s.weight).square().mean(), weight=weight)
    Kept.workspace = None
    graph = rx.profile(rx.capture(model, (x,)), model, (x,), repeats=1, refresh=True)
    Kept.workspace = None
    found = rx.measure(solution_of(checkpoint_all(graph)), model, (x,), repeats=1)
    assert max(node.default.workspace for node in graph.operations) < 2**20
    assert found.error == 0
    Kept.workspace = None
    for peer in rx.compare_peers(model, (x,), repeats=1, budgets=[1.0]):
        assert peer.peak is None or peer.peak < graph.resident_bytes + 2**20


def test_a_hard_cap_and_a_cancelled_run_name_the_statement(net):
    model, graph = net
    schedule = checkpoint_all(graph)
    tight = solution_of(schedule, budget=Plan.of(schedule).peak - 1)
    with pytest.raises(ExecutionError, match=r"'compute .*' needed .*, above the cap of"):
        rx.measure(tight, model.module, model.args, device="cpu", repeats=1, hard_cap=True)
    asked, done = iter([False] * 40), []

    def cancelled() -> bool:
        return len(done) >= 1 and next(asked, True)  # the step is traced by then

    with pytest.raises(ExecutionError, match=r"cancelled before '(compute|free) "):
        run(schedule, model, on_progress=lambda *now: done.append(now), cancelled=cancelled)


def test_plain_pytorch_is_cancelled_between_two_operations(net):
    model, graph = net
    for operations in (3, 100):  # in the forward and in the backward pass
        asked, done = iter([False] * operations), []

        def cancelled(asked: Any = asked, done: list[Any] = done) -> bool:
            return len(done) >= 2 and next(asked, True)  # the plan is over by then

        with pytest.raises(ExecutionError, match=r"cancelled before aten\."):
            run(checkpoint_all(graph), model, on_progress=lambda *now, done=done: done.append(now), cancelled=cancelled)
    assert all(parameter.grad is None for parameter in model.module.parameters())


def test_the_solution_of_another_model_is_refused_and_a_step_that_is_traced_already_not_traced_again(net, monkeypatch):
    model, graph = net
    other, words = nn.Sequential(nn.Flatten(), nn.Linear(768, 4)), "values, but the model captured here"
    with pytest.raises(ExecutionError, match=words):
        rx.measure(solution_of(checkpoint_all(graph)), other, model.args[:1], device="cpu")
    with pytest.raises(ExecutionError, match=words):
        run(checkpoint_all(graph), model, program=trace(other, model.args[:1], loss=torch.sum))
    program = trace(model.module, model.args)
    monkeypatch.setattr("remat_explorer.runtime.plan_runner.trace", None)
    assert run(checkpoint_all(graph), model, program=program).equal


def test_a_solution_without_a_schedule_and_a_memory_snapshot_of_the_cpu_are_refused(net, tmp_path):
    model, graph = net
    nothing = rx.Solution(graph, "test", Status.INFEASIBLE, 1, None, None, 0.0)
    with pytest.raises(ExecutionError, match="nothing to run: strategy test: infeasible"):
        rx.measure(nothing, model.module, model.args, device="cpu")
    with pytest.raises(ExecutionError, match="memory snapshots on CUDA only"):
        run(checkpoint_all(graph), model, snapshot=tmp_path / "snapshot.pickle")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("noisy", [nn.Dropout(0.1), lambda x: x * torch.rand(x.shape[-1])])
def test_the_state_of_the_generator_is_counted_where_an_operation_draws_again(noisy):
    torch.manual_seed(0)
    draws = Made(lambda s, x: noisy(x))
    parts = (part for _ in range(3) for part in (linear(), nn.Tanh(), draws))
    model, args = nn.Sequential(*parts), (x(8, 8),)
    graph = rx.profile(rx.capture(model, args), model, args, device="cpu", repeats=1)
    schedule = random_schedule(graph, 0, dropped=0.7)
    again = [k for k, node in enumerate(graph.operations) if (schedule.R[:, k] > 0).sum() > 1]
    assert any(graph.operations[k].implementations[0].workspace > 4000 for k in again)
    found = rx.measure(solution_of(schedule), model, args, device="cpu", repeats=1)
    assert found.generated_peak <= found.peak == found.predicted_peak
    assert found.equal


def test_each_computation_is_a_slice_of_the_trace_with_its_bytes_and_memory_a_counter(net, tmp_path):
    model, graph = net
    measured = run(random_schedule(graph, 2, 0.6), model)
    events = json.loads(measured.save_trace(tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    computed = [s for s in measured.plan.statements if isinstance(s, Compute)]
    assert [event["args"]["statement"] for event in slices] == [measured.plan.text(s) for s in computed]
    assert {event["cat"] for event in slices} == {"forward", "backward", "recomputed"}
    assert sum(event["dur"] for event in slices) <= 1e6 * measured.statement_seconds.sum() * (1 + 1e-9)
    assert all(one["ts"] + one["dur"] <= after["ts"] + 1e-6 for one, after in itertools.pairwise(slices))
    for name, peak in (("memory measured", measured.peak), ("memory predicted", measured.predicted_peak)):
        counter = [event for event in events if event["ph"] == "C" and event["name"] == name]
        assert max(event["args"]["bytes"] for event in counter) == peak
        assert counter == sorted(counter, key=lambda event: event["ts"])


def of_case(case: Case) -> Measurement:
    """A schedule that recomputes, executed beside plain PyTorch."""
    graph = rx.capture(case.model, case.args, case.kwargs, case.loss)
    schedules = (random_schedule(graph, seed, dropped=0.8) for seed in range(5))
    schedule = next(schedule for schedule in schedules if schedule.recomputations > 0)
    return rx.measure(solution_of(schedule), case.model, case.args, case.kwargs, case.loss, device="cpu", repeats=1)


COMBINATIONS: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda y, w: torch.add(y, w, alpha=2),
    lambda y, w: torch.add(w, y, alpha=2),
    lambda y, w: torch.sub(y, w, alpha=3),
    lambda y, w: torch.sub(w, y, alpha=3),
    lambda y, w: w / (y.square() + 1),
    lambda y, w: y * y.t() + w,
    lambda y, w: w + y.t(),
    lambda y, w: w[0] + y.sum(1, keepdim=True),
    lambda y, w: (w.double() * y).float(),
    lambda y, w: y.mul_(w).add_(w, alpha=2),
    lambda y, w: nn.functional.hardtanh(y) * w + nn.functional.hardtanh(y, -0.5, 0.5),
]


def test_arithmetic_with_a_parameter_in_any_place_gives_the_numbers_of_plain_pytorch():
    torch.manual_seed(0)
    layers, weights = (
        nn.ModuleList([linear() for _ in COMBINATIONS]),
        nn.ParameterList([torch.randn(8, 8) for _ in COMBINATIONS]),
    )

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        met = zip(COMBINATIONS, self.layers, self.weights, strict=True)
        return torch.stack([combine(layer(x), weight).tanh() for combine, layer, weight in met]).square().mean()

    model = Made(forward, layers=layers, weights=weights)
    found = of_case(Case(model, (torch.randn(8, 8),)))
    assert found.equal, str(found)


@pytest.mark.parametrize(
    "ambient", [torch.no_grad, torch.inference_mode, partial(torch.autocast, "cpu", dtype=torch.bfloat16)]
)
def test_what_the_caller_has_switched_off_holds_for_no_gradient_and_autocast_for_the_forward_pass_alone(ambient):
    torch.manual_seed(0)
    case = Case(nn.Sequential(linear(), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(8), linear()), ())
    with ambient():
        case.args = (x(),)
        assert of_case(case).equal


# All kinds are compared with plain PyTorch by every road in test_random_plans.py; these are measured, too.
@pytest.mark.parametrize("kind", ["caches on attributes", "buffers assigned anew", "an input that requires a gradient"])
def test_a_measurement_is_of_equal_results_and_leaves_model_inputs_and_random_state_alone(kind):
    case, state = KINDS[kind](), torch.get_rng_state()
    attributes = {name: dict(module.__dict__) for name, module in case.model.named_modules()}
    content = copy.deepcopy(case.model.state_dict())
    assert of_case(case).equal
    for name, module in case.model.named_modules():
        assert module.__dict__.keys() == attributes[name].keys()
        assert all(module.__dict__[key] is value for key, value in attributes[name].items())
    assert all(torch.equal(content[name], tensor) for name, tensor in case.model.state_dict().items())
    assert getattr(case.model, "seen", []) == []
    assert all(tensor.grad is None for tensor in (*case.model.parameters(), *case.args))
    assert torch.equal(state, torch.get_rng_state())


def test_a_predicted_peak_holds_for_a_recurrent_network_after_profiling():
    case = KINDS["LSTM with dropout"]()
    model, args, loss = case.model, case.args, case.loss
    graph = rx.profile(rx.capture(model, args, loss=loss), model, args, loss=loss, device="cpu", repeats=1)
    found = rx.measure(solution_of(random_schedule(graph, 0)), model, args, loss=loss, device="cpu", repeats=1)
    assert found.peak <= found.predicted_peak * 1.01


@pytest.mark.parametrize("context", [lambda: torch.device("meta"), FakeTensorMode])
def test_a_model_without_weights_is_planned_but_not_run(context):
    with context():
        model = nn.Sequential(linear(), nn.BatchNorm1d(8))
    real = nn.Sequential(linear(), nn.BatchNorm1d(8))
    graph = rx.capture(model, (x(),))
    assert graph.sha256 == rx.capture(real, (x(),)).sha256
    solution = solution_of(random_schedule(graph, 0))
    with pytest.raises(ExecutionError, match=r"'0.weight' of the model has a shape but no content .*to_empty"):
        rx.measure(solution, model, (x(),), device="cpu")
    with pytest.raises(ExecutionError, match="an input has a shape but no content"):
        rx.measure(solution, real, (x().to("meta"),), device="cpu")
    assert rx.measure(solution, real, (x(),), device="cpu", repeats=1).equal


def test_a_model_that_plain_pytorch_cannot_run_is_explained():
    model, args = nn.Sequential(linear()), (x().double(),)
    with pytest.raises(ExecutionError, match=r"Sequential does not run in plain PyTorch, .* same dtype"):
        rx.measure(solution_of(random_schedule(rx.capture(model, args), 0)), model, args, device="cpu")


@pytest.mark.parametrize("enabled", [False, True], ids=["nobody records", "somebody records"])
def test_a_recording_is_begun_and_ended_only_where_there_is_none(
    enabled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: enabled, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **given: asked.append(given))
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: Path(path).write_text("snapshot"))
    with record_memory_snapshot(GPU, tmp_path / "snapshot.pickle"):
        assert len(asked) == (not enabled)
    assert (tmp_path / "snapshot.pickle").read_text() == "snapshot"
    assert asked[1:] == ([] if enabled else [{"enabled": None}])


def test_control_flow_that_changes_between_captures_is_refused():
    turns = iter(range(100))
    model = Made(lambda s, x: s.layer(x).sin() if next(turns) // 2 % 2 else s.layer(x), layer=linear())
    graph = rx.capture(model, (x(),))
    with pytest.raises(ExecutionError, match="capture the model again"):
        rx.measure(solution_of(random_schedule(graph, 0)), model, (x(),), device="cpu")


def test_a_measurement_within_inference_mode_trains_all_the_same() -> None:
    model, inputs = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh()), (torch.randn(16, 8),)
    solution = rx.solve(rx.capture(model, inputs), budget="110%", time_limit=1)
    with torch.inference_mode():
        measured = rx.measure(solution, model, inputs, device="cpu", repeats=1)
    assert measured.equal
