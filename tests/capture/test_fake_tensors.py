"""FakeTensors have strides and storages of kernels; a profile compares, corrects bytes, and refuses what it cannot."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.captured_program import bind_inputs
from remat_explorer.capture.eager_kernels import traced_dropout
from remat_explorer.capture.memory_meter import CpuMeter, Reading
from remat_explorer.capture.propagation import run_node, storage_key, tensors_of
from remat_explorer.capture.storage_census import StorageCensus
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.errors import ExecutionError, SolutionError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan
from tests.capture.unusual_models import ONE_OF_EACH_KIND, UNUSUAL, convolutions
from tests.runtime.kinds_of_models import Case, Made, linear
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of
from tests.thorough import thorough_but

X = torch.randn(16, 8)
LIBRARY = torch.library.Library("remat_explorer_tests", "DEF")  # operators whose fake kernels say something else
held: list[torch.Tensor] = []  # by `hoarding`


def define(name: str, kernel: Any, fake: Any) -> Any:
    LIBRARY.define(f"{name}(Tensor x) -> {'(Tensor, Tensor)' if name == 'twins' else 'Tensor'}")
    LIBRARY.impl(name, kernel, "CPU")
    full = f"remat_explorer_tests::{name}"
    torch.library.register_fake(full, fake, lib=LIBRARY)
    torch.library.register_autograd(full, lambda context, *gradients: gradients[0] * 2, lib=LIBRARY)
    return getattr(torch.ops.remat_explorer_tests, name).default


def in_a_larger_storage(x: torch.Tensor, times: int = 3) -> torch.Tensor:
    return torch.empty(times * x.numel())[: x.numel()].view(x.shape).copy_(2 * x)


roomy = define("roomy", in_a_larger_storage, lambda x: torch.empty_like(x))
tight = define("tight", lambda x: 2 * x, lambda x: in_a_larger_storage(x, 2))
renaming = define("renaming", lambda x: x, lambda x: torch.empty_like(x))
copying = define("copying", lambda x: x.clone(), lambda x: x.view(x.shape))
twins = define("twins", lambda x: torch.stack([2 * x, x]).unbind(), lambda x: (x.clone(), x.clone()))
hoarding = define("hoarding", lambda x: held.append(torch.empty_like(x)) or 2 * x, lambda x: torch.empty_like(x))


def network(operator: Any) -> nn.Module:
    """The operator between layers; its result could be overwritten by the sum."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).sin()
        given = operator(y)
        total = given[0] + given[1].cos() if isinstance(given, tuple) else given + y.cos()
        return self.last(total.exp()).square().mean()

    return Made(forward, first=linear(), last=linear())


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
SCHEDULES = [(name, schedules) for name in MODELS for schedules in (1, 2)]
QUICK = [(name, 1) for name in (*ONE_OF_EACH_KIND, "MSE", "VQ-VAE", "diffusion at a random time", "bfloat16")]


@pytest.mark.parametrize(("name", "schedules"), thorough_but(SCHEDULES, *QUICK))
def test_the_measured_peak_is_the_predicted_one_to_the_byte(name, schedules):
    torch.manual_seed(0)
    case = UNUSUAL[name]()
    assert_peaks_as_predicted(profiled(case), case, (0.9, 0.5)[:schedules])


@pytest.mark.parametrize("operator", [roomy, tight])
def test_bytes_of_a_value_are_those_of_its_storage(operator):
    case = Case(network(operator), (X,))
    graph = rx.capture(case.model, case.args)
    found = profiled(case, graph)
    pairs = zip(graph.values, found.values, strict=True)
    changed = [(mine.bytes // X.nbytes, theirs.bytes // X.nbytes) for mine, theirs in pairs if mine != theirs]
    assert changed == [(1, 3) if operator is roomy else (2, 1)]
    assert found.structure == graph.structure
    pairs = zip(graph.operations, found.operations, strict=True)
    dropped = [mine for mine, theirs in pairs if mine.default.overwrites != theirs.default.overwrites]
    over = [graph.values[node.default.overwrites or 0].name for node in dropped]  # what lies in a larger storage
    assert ["roomy" in name for name in over] == ([True] if operator is roomy else [])
    assert_peaks_as_predicted(found, case)


def test_corrected_bytes_come_back_from_the_cache_and_from_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    case, ran = Case(network(roomy), (X,)), []
    found = profiled(case)
    assert found.captured_structure is not None
    assert profiled(case, on_progress=lambda done, total: ran.append(done), refresh=False) == found
    assert ran == []
    assert profiled(case, graph=found, refresh=False) == found
    found.save(str(tmp_path / "graph.json"))
    assert Graph.load(str(tmp_path / "graph.json")) == found


def test_a_schedule_of_the_captured_graph_is_one_of_the_profiled_graph(tmp_path):
    case = Case(network(roomy), (X,))
    captured = rx.capture(case.model, case.args)
    before = solution_of(random_schedule(captured, 0))
    assert before.on(profiled(case)).schedule is not None
    path = rx.solve(captured, budget="100%").save(tmp_path / "schedule.json")
    with pytest.raises(SolutionError, match="budget"):  # it was made for too few bytes
        rx.rematerialize(case.model, case.args, solution=path)
    mine = rx.solve(profiled(case), budget="100%").save(tmp_path / "mine.json")
    trained = rx.rematerialize(case.model, case.args, solution=mine)
    trained(X).backward()


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (renaming, r"renaming' gives '.*renaming' in the storage of .*sin.*fake=False"),
        (twins, r"twins' gives '.*twins \[1\]' in the storage of '.*twins \[0\]'.*its own"),
        (hoarding, r"512 B stay in memory when everything that '.*hoarding' gives is freed"),
    ],
)
def test_sharing_and_hoarding_that_no_graph_tells_are_refused(operator, message):
    case = Case(network(operator), (X,))
    with pytest.raises(ExecutionError, match=message):
        profiled(case)


@pytest.mark.parametrize("operator", [renaming, roomy])
def test_a_capture_from_real_kernels_sees_what_is_shared_and_how_many_bytes_there_are(operator):
    case = Case(network(operator), (X,))
    graph = rx.capture(case.model, case.args, fake=False)
    found = profiled(case, graph)
    assert found.values == graph.values
    assert_peaks_as_predicted(found, case)


def test_a_result_that_turns_out_to_be_a_copy_is_refused():
    case = Case(Made(lambda s, x: copying(s.layer(x).sin()), layer=nn.Linear(8, 8)), (X,))
    with pytest.raises(ExecutionError, match="result 'output' was predicted to be a view, but its operators copy it"):
        profiled(case)


def test_the_workspace_of_a_mask_is_that_of_a_mask_that_names_all_places():
    def forward(self: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.net(x) * 2
        y[mask] = 0.0
        return y.square().mean()

    x, model = torch.randn(2, 3, 16, 16), Made(forward, net=convolutions())
    cases = [Case(model, (x, torch.full(x.shape, named))) for named in (False, True)]
    graph, other = map(profiled, cases)
    assert [n.default.workspace for n in graph.operations] == [n.default.workspace for n in other.operations]
    few, all_places = (rx.measure(solution_of(checkpoint_all(graph)), model, case.args, repeats=1) for case in cases)
    assert few.peak <= few.predicted_peak == all_places.peak == all_places.predicted_peak


def peak_of_training(plan: Plan) -> int:
    """The gradient of the loss counts from the beginning in a plan; PyTorch's engine makes it for the backward half."""
    operations, during = plan.graph.operations, plan.timeline.during
    computed = [(at, s.operation) for at, s in enumerate(plan.statements) if isinstance(s, Compute)]
    cut = next(at for at, operation in computed if operations[operation].phase == "backward")
    return max(int(during[:cut].max()) - torch.ones(()).nbytes, int(during[cut:].max()))


def test_a_training_step_with_the_loss_inside_keeps_to_its_budget():
    torch.manual_seed(0)
    x, y = torch.randn(512, 64), torch.randn(512, 64)
    layers = nn.Sequential(*(part for _ in range(5) for part in (nn.Linear(64, 64), nn.Tanh())))
    model = Made(lambda self, x, y: functional.mse_loss(self.net(x), y), net=layers)
    trained = rx.rematerialize(model, (x, y), budget="85%")
    solution = trained.rematerialization.solution
    assert solution.plan is not None
    trained(x, y).backward()  # kernels are chosen on their first call
    for parameter in trained.parameters():
        parameter.grad = None
    with CpuMeter() as meter, meter.section():
        trained(x, y).backward()
    resident = sum(tensor.nbytes for tensor in (*trained.parameters(), x, y))
    assert isinstance(solution.plan, Plan)
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


NOT_PREDICTED = {"aten._embedding_bag.default"}  # makes room for one number more than it gives


def seen(tensor: torch.Tensor) -> tuple[object, ...]:
    """Strides, those of dimensions of one entry included, and bytes."""
    return tuple(tensor.shape), tensor.stride(), tensor.untyped_storage().nbytes()


def differences(case: Case) -> list[str]:
    """The calls of the joint graph that give something else with real tensors than with FakeTensors."""
    program = trace(case.model, case.args, case.kwargs, case.loss)
    tensors = TrainingStep(case.model, case.args, case.kwargs, case.loss).tensors(case.args, case.kwargs)
    real = bind_inputs(program.inputs, program.module, case.model, tensors)
    found = []
    with torch.no_grad():
        for node in program.module.graph.nodes:
            if node.op != "call_function" or str(node.target) in NOT_PREDICTED:
                continue
            real[node] = run_node(node, real)
            sources = [s for s in node.all_input_nodes if s in program.fakes]
            views = {storage_key(t) for s in sources for t in tensors_of(real[s])}
            fake_views = {storage_key(t) for s in sources for t in tensors_of(program.fakes[s])}
            for mine, fake in zip(tensors_of(real[node]), tensors_of(program.fakes[node]), strict=True):
                if seen(mine) != seen(fake) or (storage_key(mine) in views) != (storage_key(fake) in fake_views):
                    found.append(f"{node.target} gives {seen(mine)}, not {seen(fake)}")
    return found


@pytest.mark.parametrize("name", thorough_but(sorted(UNUSUAL.keys() - {"bags of embeddings"}), *ONE_OF_EACH_KIND))
def test_kernels_give_the_strides_and_storages_that_fake_tensors_say(name):
    torch.manual_seed(0)
    assert differences(UNUSUAL[name]()) == []


SHAPES = [
    *(((4, 6, 3), (0, 2, 1)), ((7, 5), (1, 0)), ((2, 5, 6, 4), (0, 3, 1, 2)), ((2, 5, 6, 4), (0, 3, 2, 1))),
    *(((2, 3, 4, 5), (0, 2, 1, 3)), ((2, 1, 5, 4), (0, 1, 3, 2)), ((2, 3, 4, 5, 6), (0, 4, 1, 2, 3))),
]
NORMS = [(*shape, kind) for shape in SHAPES for kind in ("training", "frozen", "without statistics")]


@pytest.mark.parametrize(("shape", "order", "kind"), thorough_but(NORMS, *NORMS[::4]))
def test_batch_norm_of_transposed_inputs_is_laid_out_as_the_kernel_does(shape, order, kind):
    norms = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    norm = norms[len(shape)](shape[order[1]], track_running_stats=kind != "without statistics")
    model = nn.Sequential(nn.Linear(shape[-1], shape[-1]), Made(lambda _, y: y.permute(order)), norm, nn.LeakyReLU())
    assert differences(Case(model.train(kind != "frozen"), (torch.randn(shape),))) == []


def test_a_step_is_traced_with_the_strides_of_kernels():
    """Formulas of derivatives and layouts of convolutions are chosen by them."""
    case = UNUSUAL["one picture as a sequence"]()
    program = trace(case.model, case.args)
    nodes = [node for node in program.fakes if isinstance(node.meta.get("val"), torch.Tensor)]
    traced = {node: node.meta["val"].stride() for node in nodes}
    assert len(traced) > 20
    assert traced == {node: program.fakes[node].stride() for node in traced}


@pytest.mark.parametrize("loss", ["MSE", "SmoothL1", "BCE", "soft margin"])
def test_a_loss_that_stays_does_not_hold_the_memory_of_its_summands(loss):
    case = UNUSUAL[loss]()
    graph = trace(case.model, case.args).graph
    assert [value.bytes for value in graph.values if value.name == "loss"] == [4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_output_and_gradient_are_those_of_plain_pytorch_at_every_rate(dtype: torch.dtype) -> None:
    x, gradient = torch.randn(2, 1000, dtype=dtype)
    for rate in [0.0, *(part / 40 for part in range(1, 40)), 0.333, 1.0]:
        found = []
        for dropout in (functional.dropout, lambda x, rate: traced_dropout(None, x, rate, True)):
            torch.manual_seed(0)
            source = x.clone().requires_grad_()
            result = dropout(source, rate)
            result.backward(gradient)
            found.append((result, source.grad))
        assert all(map(torch.equal, *found)), rate
