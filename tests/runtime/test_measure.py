"""Executed plans: measured memory is the predicted memory, and results are those of plain PyTorch, bit for bit."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.memory_meter import AllocatorBytes
from remat_explorer.capture.model_placement import place
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.errors import ExecutionError
from remat_explorer.models import LoadedModel
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.runtime import Interpreter
from remat_explorer.runtime.eager import Eager, InitialState, interleaved_seconds
from remat_explorer.runtime.measurement import Allocator
from remat_explorer.runtime.measuring import record_memory_snapshot
from tests.capture.cuda_stand_in import GPU
from tests.runtime.kinds_of_models import Made
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of
from tests.thorough import thorough_but

SIZES = {"mlp": (8, None), "residual_net": (4, 32), "vgg16": (2, 32), "unet": (1, 64)}


@pytest.fixture(scope="module")
def profiled(request) -> tuple[LoadedModel, rx.Graph]:
    batch, image = SIZES[request.param]
    model = rx.models.load(request.param, batch=batch, image=image)
    return model, rx.profile(model.graph, model.module, model.args, device="cpu", repeats=1)


@pytest.fixture(scope="module")
def net() -> tuple[LoadedModel, rx.Graph]:
    model = rx.models.load("residual_net", batch=2, image=16)
    return model, rx.profile(model.graph, model.module, model.args, device="cpu", repeats=1)


def run(schedule: rx.Schedule, model: LoadedModel, **options):
    return rx.measure(solution_of(schedule), model.module, model.args, device="cpu", repeats=1, **options)


SCHEDULES = [(name, seed) for name in sorted(SIZES) for seed in (None, 0, 1)]
QUICK = [case for case in SCHEDULES if case[0] in ("mlp", "residual_net") or case == ("unet", 1)]


@pytest.mark.parametrize(("profiled", "seed"), thorough_but(SCHEDULES, *QUICK), indirect=["profiled"])
def test_memory_is_as_predicted_and_results_are_equal_bit_for_bit(profiled, seed):
    model, graph = profiled
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


def test_a_repeated_dropout_draws_its_first_mask(net):
    model, graph = net
    dropout = next(k for k, node in enumerate(graph.operations) if "dropout" in node.name and node.phase == "forward")
    schedules = (random_schedule(graph, seed, dropped=0.7) for seed in range(20))
    schedule = next(s for s in schedules if (s.R[:, dropout] > 0).sum() > 1)
    found = run(schedule, model)
    assert found.equal


def test_the_summary_says_what_was_predicted_and_measured(net):
    model, graph = net
    found = run(checkpoint_all(graph), model)
    for words in ("gradients equal: max difference 0", "peak: predicted", "overhead: predicted +0.0 %", "within it"):
        assert words in str(found)
    assert found.allocator is None
    assert found.eager is not None
    assert found.eager.peak > graph.resident_bytes


def test_runs_take_turns_and_their_range_stands_beside_the_overhead(net):
    model, graph = net
    found = rx.measure(solution_of(checkpoint_all(graph)), model.module, model.args, device="cpu", repeats=3)
    assert {name: len(times) for name, times in found.times.items()} == {"plan": 3, "checkpoint-all": 3, "eager": 3}
    assert found.seconds == sorted(found.times["plan"])[1]
    assert found.overhead_range is not None
    least, largest = found.overhead_range
    assert 0 < least <= largest
    assert found.to_document()["measured_overhead_range"] == (least, largest)
    assert run(checkpoint_all(graph), model).overhead_range is None  # of one turn


@pytest.mark.parametrize(
    ("plan", "everything", "said"),
    [
        ((1.2, 1.21, 1.22), (1.0, 1.0, 1.0), "+21.0 % (+20.0 % to +22.0 %)"),
        ((0.5, 1.1, 1.4), (1.0, 1.0, 1.0), "too noisy to compare (-50.0 % to +40.0 %)"),
    ],
)
def test_an_overhead_whose_turns_differ_by_more_than_itself_is_too_noisy_to_compare(net, plan, everything, said):
    model, graph = net
    found = dataclasses.replace(
        run(checkpoint_all(graph), model),
        seconds=plan[1],
        checkpoint_all_seconds=everything[1],
        times={"plan": plan, "checkpoint-all": everything},
    )
    assert found.overhead_text == said
    assert found.is_noisy == said.startswith("too noisy")
    assert f"measured {said}" in str(found)


def test_every_other_turn_is_taken_in_the_opposite_order(net):
    model, _ = net
    placed = place(model.module, model.args, None, "cpu")
    eager = Eager(placed, None)
    ran: list[str] = []

    def contender(name: str):
        @contextlib.contextmanager
        def prepared():
            yield lambda: ran.append(name)

        return prepared

    interleaved_seconds({"a": contender("a"), "b": contender("b")}, InitialState(eager, placed.device), 3, lambda: None)
    assert ran == ["a", "b", "b", "a", "a", "b"]


def test_what_a_gpu_would_reserve_is_predicted_from_every_resident_tensor(net):
    model, graph = net
    found = rx.measure(solution_of(checkpoint_all(graph)), model.module, model.args, device="cpu", repeats=1)
    assert found.resident_tensors is not None
    assert len(found.resident_tensors) > 5
    assert sum(found.resident_tensors) == graph.resident_bytes
    predicted = found.predicted_allocator
    assert predicted.peak_requested == found.predicted_peak < predicted.peak_allocated <= predicted.peak_reserved
    assert found.to_document()["predicted_reserved_on_gpu"] == predicted.peak_reserved
    assert str(found).endswith("(predicted)")
    assert "PyTorch's allocator on a GPU: " in str(found)


def test_the_peaks_of_the_allocator_stand_beside_the_budget_in_text_and_json(net):
    model, graph = net
    found = run(checkpoint_all(graph), model)
    counts = ("requested", "allocated", "reserved")
    assert [found.to_document()[f"{name}{of}"] for name in counts for of in ("", "_peak")] == [None] * 6
    allocator = Allocator(process=AllocatorBytes(300, 400, 500), plan=AllocatorBytes(30, 40, 50), libraries=64)
    on_cuda = dataclasses.replace(found, allocator=allocator)
    assert [on_cuda.to_document()[name] for name in counts] == [300, 400, 500]
    assert [on_cuda.to_document()[f"{name}_peak"] for name in counts] == [30, 40, 50]
    assert "CUDA, beside the budget: requested 30 B, allocated 40 B, reserved 50 B" in str(on_cuda)
    assert on_cuda.to_document()["library_workspaces"] == 64
    assert "the whole process: requested 300 B, allocated 400 B, reserved 500 B; cuBLAS keeps 64 B" in str(on_cuda)


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


class Multiplying(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return multiplied(multiplied(x, self.weight).tanh(), self.weight).square().mean()


def test_a_workspace_that_a_library_keeps_is_there_before_any_meter_starts():
    model, x = Multiplying(), torch.ones(256, 64)
    Kept.workspace = None
    graph = rx.profile(rx.capture(model, (x,)), model, (x,), repeats=1, refresh=True)
    Kept.workspace = None
    found = rx.measure(solution_of(checkpoint_all(graph)), model, (x,), repeats=1)
    assert max(node.default.workspace for node in graph.operations) < 2**20
    assert found.error == 0
    Kept.workspace = None
    for peer in rx.compare_peers(model, (x,), repeats=1, budgets=[1.0]):
        assert peer.peak is None or peer.peak < graph.resident_bytes + 2**20


def test_measuring_leaves_the_model_and_the_random_state_alone(net):
    model, graph = net
    before, state = copy.deepcopy(model.module.state_dict()), torch.get_rng_state()
    run(random_schedule(graph, 3), model)
    assert all(torch.equal(before[name], t) for name, t in model.module.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.module.parameters())


def test_batch_norm_buffers_are_written_once_however_often_it_ran(net):
    model, graph = net
    module, reference = copy.deepcopy(model.module), copy.deepcopy(model.module)
    schedule = random_schedule(graph, 0, dropped=0.8)
    norms = [k for k, node in enumerate(graph.operations) if node.name.endswith("batch_norm")]
    assert (schedule.R[:, norms] > 0).sum() > len(norms)
    program = trace(module, model.args)
    registers = program.bind(module, TrainingStep(module, model.args).tensors(model.args))
    torch.manual_seed(1)
    Interpreter(Plan.of(schedule), program, torch.device("cpu")).run(registers).write_to(module)
    torch.manual_seed(1)
    reference(*model.args).backward()
    for (name, mine), (_, theirs) in zip(module.named_buffers(), reference.named_buffers(), strict=True):
        assert torch.equal(mine, theirs), name
    for (name, mine), (_, theirs) in zip(module.named_parameters(), reference.named_parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad), name


def test_a_hard_cap_names_the_statement_that_passed_it(net):
    model, graph = net
    schedule = checkpoint_all(graph)
    tight = solution_of(schedule, budget=Plan.of(schedule).peak - 1)
    with pytest.raises(ExecutionError, match=r"'compute .*' needed .*, above the cap of"):
        rx.measure(tight, model.module, model.args, device="cpu", repeats=1, hard_cap=True)


def test_a_cancelled_run_names_the_statement(net):
    model, graph = net
    asked, done = iter([False] * 40), []
    with pytest.raises(ExecutionError, match=r"cancelled before '(compute|free) "):
        run(
            checkpoint_all(graph),
            model,
            on_progress=lambda *now: done.append(now),
            cancelled=lambda: len(done) >= 2 and next(asked, True),  # plain PyTorch is over by then
        )


def test_plain_pytorch_is_cancelled_between_two_operations(net):
    model, graph = net
    for operations in (3, 100):  # in the forward and in the backward pass
        asked = iter([False] * operations)
        with pytest.raises(ExecutionError, match=r"cancelled before aten\."):
            run(checkpoint_all(graph), model, cancelled=lambda asked=asked: next(asked, True))
    assert all(parameter.grad is None for parameter in model.module.parameters())


def test_progress_ends_at_its_total(net):
    model, graph = net
    seen = []
    run(checkpoint_all(graph), model, on_progress=lambda *now: seen.append(now))
    assert seen == [(done + 1, len(seen)) for done in range(len(seen))]


def test_the_solution_of_another_model_is_refused(net):
    model, graph = net
    other = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))
    with pytest.raises(ExecutionError, match=r"operations and .* values, but the model captured here has"):
        rx.measure(solution_of(checkpoint_all(graph)), other, model.args[:1], device="cpu")


def test_a_step_that_is_traced_already_is_not_traced_again(net, monkeypatch):
    model, graph = net
    program = trace(model.module, model.args)
    monkeypatch.setattr("remat_explorer.runtime.plan_bench.trace", None)
    found = run(checkpoint_all(graph), model, program=program)
    assert found.eager is not None
    assert found.eager.comparison.equal
    other = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))
    with pytest.raises(ExecutionError, match=r"operations and .* values, but the model captured here has"):
        run(checkpoint_all(graph), model, program=trace(other, model.args[:1], loss=lambda output: output.sum()))


def test_a_solution_without_a_schedule_is_refused(net):
    model, graph = net
    nothing = rx.Solution(graph, "test", rx.solution.Status.INFEASIBLE, 1, None, None, 0.0)
    with pytest.raises(ExecutionError, match="nothing to run: strategy test: infeasible"):
        rx.measure(nothing, model.module, model.args, device="cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("seed", [None, 0])
def test_on_cuda_memory_is_as_predicted_and_gradients_are_close(seed):
    model = rx.models.load("vgg16", batch=4, image=64, device="cuda")
    graph = rx.profile(model.graph, model.module, model.args, device="cuda")
    schedule = checkpoint_all(graph) if seed is None else random_schedule(graph, seed)
    found = rx.measure(solution_of(schedule), model.module, model.args, device="cuda")
    assert abs(found.dynamic_error) <= 0.01
    assert found.equal
    assert found.allocator is not None
    process = found.allocator.process
    assert process.requested <= process.allocated <= process.reserved


DRAWS: dict[str, Any] = {
    "dropout": nn.Dropout(0.1),
    "rrelu": nn.RReLU(),
    "noise": lambda x: x + torch.randn_like(x),
    "a few numbers": lambda x: x * torch.rand(x.shape[-1]),
}


@pytest.mark.parametrize("draw", thorough_but(DRAWS, "dropout", "a few numbers"))
def test_the_state_of_the_generator_is_counted_where_an_operation_draws_again(draw):
    torch.manual_seed(0)
    layers = [nn.Linear(8, 8) for _ in range(3)]
    model = Made(lambda s, x: functools.reduce(lambda y, one: DRAWS[draw](one(y).tanh()), s.layers, x).square().mean())
    model.layers, x = nn.ModuleList(layers), torch.randn(8, 8)
    graph = rx.profile(rx.capture(model, (x,)), model, (x,), device="cpu", repeats=1)
    schedule = random_schedule(graph, 0, dropped=0.7)
    again = [k for k, node in enumerate(graph.operations) if (schedule.R[:, k] > 0).sum() > 1]
    assert any(graph.operations[k].implementations[0].workspace > 4000 for k in again)
    found = rx.measure(solution_of(schedule), model, (x,), device="cpu", repeats=1)
    assert found.generated_peak <= found.peak == found.predicted_peak
    assert found.equal


def test_where_only_the_generated_code_passes_the_budget_the_text_says_so(net):
    model, graph = net
    found = run(checkpoint_all(graph), model)
    assert "measured peak is within it" in str(found)
    more = dataclasses.replace(found, budget=found.peak, generated_peak=found.peak + 4096)
    assert f"peak of the generated code is {format_bytes(more.generated_peak)}, ABOVE it" in str(more)
    assert "measured peak is ABOVE it" in str(dataclasses.replace(found, budget=found.peak - 1))


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
