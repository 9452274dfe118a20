"""A profile compares every storage with its prediction: it corrects bytes, and refuses what no graph can say."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.memory_meter import CpuMeter, Reading
from remat_explorer.capture.storage_census import StorageCensus
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.errors import ExecutionError, SolutionError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan
from tests.capture import unknown_operators as unknown
from tests.capture.unusual_models import UNUSUAL, convolutions
from tests.runtime.kinds_of_models import Case, Made
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of
from tests.thorough import thorough_but

X = torch.randn(16, 8)


def profiled(case: Case, graph: Graph | None = None, **options: Any) -> Graph:
    graph = graph or rx.capture(case.model, case.args, case.kwargs, case.loss)
    given: Any = {"device": "cpu", "repeats": 1, "refresh": True} | options
    return rx.profile(graph, case.model, case.args, case.kwargs, case.loss, **given)


def assert_peaks_as_predicted(graph: Graph, case: Case, recomputed: Sequence[float] = (0.5, 0.9)) -> None:
    """Of keeping everything, and of schedules that recompute such shares at random, statement by statement."""
    again = [random_schedule(graph, seed, share) for seed, share in enumerate(recomputed)]
    for schedule in (checkpoint_all(graph), *again):
        solution = solution_of(schedule)
        found = rx.measure(solution, case.model, case.args, case.kwargs, case.loss, device="cpu", repeats=1)
        assert found.during.tolist() == found.predicted.during.tolist()
        assert found.peak == found.predicted_peak
        assert found.generated_peak <= found.predicted_peak
        assert found.equal


MODELS = sorted(UNUSUAL.keys() - {"masked entries set to zero"})
# Losses whose gradients are computed from the same values as those of others.
FURTHER = {"BCE entries", "BCE with logits", "Huber", "KL divergence", "L1", "soft margin", "squares", "sum of squares"}
SCHEDULES = [(name, schedules) for name in MODELS for schedules in (1, 2)]
QUICK = [case for case in SCHEDULES if case[0] not in FURTHER and case[1] == 1]


@pytest.mark.parametrize(("name", "schedules"), thorough_but(SCHEDULES, *QUICK))
def test_the_measured_peak_is_the_predicted_one_to_the_byte(name, schedules):
    torch.manual_seed(0)
    case = UNUSUAL[name]()
    assert_peaks_as_predicted(profiled(case), case, (0.9, 0.5)[:schedules])


@pytest.mark.parametrize("operator", [unknown.roomy, unknown.tight])
def test_bytes_of_a_value_are_those_of_its_storage(operator):
    case = Case(unknown.network(operator), (X,))
    graph = rx.capture(case.model, case.args)
    found = profiled(case, graph)
    changed = [
        (mine.bytes, theirs.bytes) for mine, theirs in zip(graph.values, found.values, strict=True) if mine != theirs
    ]
    assert changed == [(X.nbytes, 3 * X.nbytes) if operator is unknown.roomy else (2 * X.nbytes, X.nbytes)]
    assert found.structure == graph.structure
    assert_peaks_as_predicted(found, case)


def test_what_lies_in_a_larger_storage_is_not_overwritten():
    case = Case(unknown.network(unknown.roomy), (X,))
    graph = rx.capture(case.model, case.args)
    found = profiled(case, graph)
    pairs = zip(graph.operations, found.operations, strict=True)
    dropped = [mine for mine, theirs in pairs if mine.default.overwrites != theirs.default.overwrites]
    assert len(dropped) == 1
    assert "roomy" in graph.values[dropped[0].default.overwrites].name  # type: ignore[index]


def test_corrected_bytes_come_back_from_the_cache_and_from_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    case, ran = Case(unknown.network(unknown.roomy), (X,)), []
    found = profiled(case)
    assert found.captured_structure is not None
    assert profiled(case, on_progress=lambda done, total: ran.append(done), refresh=False) == found
    assert ran == []
    assert profiled(case, graph=found, refresh=False) == found
    found.save(str(tmp_path / "graph.json"))
    assert Graph.load(str(tmp_path / "graph.json")) == found


def test_a_schedule_of_the_captured_graph_is_one_of_the_profiled_graph(tmp_path):
    case = Case(unknown.network(unknown.roomy), (X,))
    captured = rx.capture(case.model, case.args)
    before = solution_of(random_schedule(captured, 0))
    assert before.on(profiled(case)).schedule is not None
    path = rx.solve(captured, budget="100%").save(tmp_path / "schedule.json")
    with pytest.raises(SolutionError, match="budget"):  # it was made for too few bytes
        rx.rematerialize(case.model, case.args, solution=path)
    mine = rx.solve(profiled(case), budget="100%").save(tmp_path / "mine.json")
    trained = rx.rematerialize(case.model, case.args, solution=mine)
    trained(X).backward()


def test_a_corrected_graph_of_another_batch_is_refused():
    case = Case(unknown.network(unknown.roomy), (X,))
    solution = solution_of(checkpoint_all(profiled(case)))
    with pytest.raises(ExecutionError, match="capture the model again"):
        rx.measure(solution, case.model, (X[:4],), device="cpu", repeats=1)


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (unknown.renaming, r"renaming' gives '.*renaming' in the storage of .*sin.*fake=False"),
        (unknown.twins, r"twins' gives '.*twins \[1\]' in the storage of '.*twins \[0\]'.*its own"),
        (unknown.hoarding, r"512 B stay in memory when everything that '.*hoarding' gives is freed"),
    ],
)
def test_sharing_and_hoarding_that_no_graph_tells_are_refused(operator, message):
    case = Case(unknown.network(operator), (X,))
    with pytest.raises(ExecutionError, match=message):
        profiled(case)


def test_a_capture_from_real_kernels_sees_what_is_shared():
    case = Case(unknown.network(unknown.renaming), (X,))
    graph = rx.capture(case.model, case.args, fake=False)
    assert_peaks_as_predicted(profiled(case, graph), case)


def test_a_result_that_turns_out_to_be_a_copy_is_refused():
    case = Case(Made(lambda s, x: unknown.copying(s.layer(x).sin()), layer=nn.Linear(8, 8)), (X,))
    with pytest.raises(ExecutionError, match="result 'output' was predicted to be a view, but its operators copy it"):
        profiled(case)


def test_the_workspace_of_a_mask_is_that_of_a_mask_that_names_all_places():
    def forward(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.net(x) * 2
        y[mask] = 0.0
        return y.square().mean()

    x = torch.randn(2, 3, 16, 16)
    few, all_places = torch.zeros(x.shape, dtype=torch.bool), torch.ones(x.shape, dtype=torch.bool)
    model = Made(forward, net=convolutions())
    graph = profiled(Case(model, (x, few)))
    other = profiled(Case(model, (x, all_places)), refresh=True)
    assert [n.default.workspace for n in graph.operations] == [n.default.workspace for n in other.operations]
    for mask in (few, all_places):
        found = rx.measure(solution_of(checkpoint_all(graph)), model, (x, mask), device="cpu", repeats=1)
        assert found.peak <= found.predicted_peak
    assert found.peak == found.predicted_peak


def peak_of_training(plan: Plan) -> int:
    """The gradient of the loss counts from the beginning in a plan; PyTorch's engine makes it for the backward half."""
    operations, during = plan.graph.operations, plan.timeline.during
    computed = [(at, s.operation) for at, s in enumerate(plan.statements) if isinstance(s, Compute)]
    cut = next(at for at, operation in computed if operations[operation].phase == "backward")
    return max(int(during[:cut].max()) - torch.ones(()).nbytes, int(during[cut:].max()))


@pytest.mark.parametrize("budget", ["85%", "100%"])
@pytest.mark.parametrize("loss", [functional.mse_loss, functional.smooth_l1_loss, functional.huber_loss])
def test_a_training_step_with_the_loss_inside_keeps_to_its_budget(loss, budget):
    torch.manual_seed(0)
    x, y = torch.randn(512, 64), torch.randn(512, 64)
    layers = nn.Sequential(*(part for _ in range(5) for part in (nn.Linear(64, 64), nn.Tanh())))
    model = Made(lambda self, x, y: loss(self.net(x), y), net=layers)
    trained = rx.rematerialize(model, (x, y), budget=budget)
    solution = trained.rematerialization.solution
    assert solution.plan is not None
    trained(x, y).backward()  # kernels are chosen on their first call
    for parameter in trained.parameters():
        parameter.grad = None
    with CpuMeter() as meter, meter.section():
        trained(x, y).backward()
    resident = sum(tensor.nbytes for tensor in (*trained.parameters(), x, y))
    assert meter.readings[0].highest + resident == peak_of_training(solution.plan)
    assert solution.plan.peak <= solution.budget


def test_what_a_kernel_leaves_on_the_cpu_takes_no_memory_of_the_device():
    """Efficient attention on CUDA gives the seed of its mask on the CPU, where FakeTensors say CUDA."""
    model = nn.Linear(8, 8)
    program = trace(model, (X,), loss=torch.sum)
    census = StorageCensus(program, torch.device("cuda"))
    registers = program.bind(model, TrainingStep(model, (X,), {}, torch.sum).tensors((X,), {}))
    for k, body in enumerate(program.bodies):
        census.run((k, 1), body, registers, nullcontext)
    for value, carrier in enumerate(program.carriers):
        assert registers[carrier].is_cpu
        census.free(value, registers, nullcontext)
    census.read([Reading(0, 0, 0)] * (program.graph.n + len(program.carriers)))  # of a meter of the device
    assert set(census.bytes_of_values()) == {0}
