"""Where models run, and graphs for CUDA that are made where CUDA is not: they end no process, and run nowhere here."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.capture import model_placement
from remat_explorer.capture.inputs_and_outputs import map_tensors
from remat_explorer.capture.model_placement import model_device, place, require_same_structure, torch_device
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import CaptureError, ExecutionError, GraphError, UnknownNameError
from tests.capture.unusual_models import UNUSUAL
from tests.models.small_models import SMALL
from tests.runtime.kinds_of_models import Case, Made
from tests.thorough import thorough_but

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
X = torch.ones(4, 8)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))


def mean(output: torch.Tensor) -> torch.Tensor:
    return output.mean()


def on_fake_cuda(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Let the parameters of a model be FakeTensors on CUDA, and give such an input."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(torch.empty(parameter.shape, device="cuda")))
        return torch.empty(x.shape, device="cuda")


IN_A_PROCESS = """
import threading
import torch
from torch import nn
import remat_explorer as rx
from tests.capture.test_without_a_device import Made, X, mean, network, on_fake_cuda

attention = Made(lambda s, x: s.m(x, x, x, need_weights=False)[0], m=nn.MultiheadAttention(8, 2, batch_first=True))
graphs = []
for model, x in ((network(), X), (attention, torch.ones(2, 5, 8))):
    graphs += [rx.capture(model, (x,), loss=mean, device="cuda"), rx.capture(model, (x,), loss=mean, kernels="sm_90")]
    graphs.append(rx.capture(model, (on_fake_cuda(model, x),), loss=mean, device="A100"))
for _ in range(3):  # one thread after the other: a CUDA build of PyTorch 2.11 without a device crashed here
    thread = threading.Thread(target=lambda: rx.capture(network(), (X,), loss=mean))
    thread.start()
    thread.join()
    held = [bytearray(100) for _ in range(100_000)]  # what the thread has freed is written over
print(*(graph.options.kernels for graph in graphs), sum("efficient_attention" in graph.operations[k].name
      for graph in graphs for k in range(graph.n)) > 0)
"""


@NO_GPU
def test_captures_for_cuda_with_attention_gradients_and_threads_do_not_end_the_process():
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", IN_A_PROCESS], cwd=root, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [*["sm_80", "sm_90", "sm_80"] * 2, "True"]


def small_network(name: str) -> Case:
    net = rx.models.load(name, batch=2, **SMALL[name])
    return Case(net.module, net.args)


def of_cpu(graph: rx.Graph) -> list[str]:
    return [node.name for node in graph.operations if "for_cpu" in node.name or "mkldnn" in node.name]


ZOO = ["bert", "gpt2", "mlp", "mobilenet_v2", "residual_net", "unet", "vit"]


@pytest.mark.parametrize("name", thorough_but(ZOO, "mlp", "residual_net"))
def test_a_network_of_the_zoo_has_a_graph_for_cuda(name):
    case = small_network(name)
    graph = rx.capture(case.model, case.args, device="H100", kernels="cuda")
    assert not of_cpu(graph)
    attends = any("efficient_attention" in node.name for node in graph.operations)
    assert attends == (name in ("bert", "gpt2", "vit"))


LESS_USUAL = ("a view of folded patches", "SmoothL1 of an LSTM", "FNet", "grid sample", "complex numbers")


@pytest.mark.parametrize("kind", thorough_but(UNUSUAL, *LESS_USUAL))
def test_less_usual_models_have_a_graph_without_operations_of_the_cpu(kind):
    case: Case = UNUSUAL[kind]()
    assert not of_cpu(rx.capture(case.model, case.args, case.kwargs, case.loss, kernels="cuda"))


@NO_GPU
def test_what_is_loaded_for_a_device_that_is_not_there_has_shapes_and_a_graph_but_nothing_to_run():
    net = rx.models.load("residual_net", batch=4, image=32, device="cuda", costs="H100")
    assert {tensor.device.type for tensor in (*net.module.parameters(), *net.args)} == {"meta"}
    assert net.graph.options == CaptureOptions(kernels="sm_90")
    solution = rx.solve(net.graph, "100%", "checkpoint-all")
    runs: list[Any] = [(rx.profile, net.graph), (rx.measure, solution)]
    for run, given in runs:
        with pytest.raises(ExecutionError, match="enough to capture and solve but not to run"):
            run(given, net.module, net.args)


def test_a_graph_for_cuda_is_refused_on_the_cpu_where_its_operations_are_others():
    if not torch.cuda.is_available():
        graph = rx.capture(network(), (X,), loss=mean, device="cuda")
        with pytest.raises(ExecutionError, match=r"no CUDA device here.*captured, solved and studied"):
            rx.profile(graph, network(), (X,), loss=mean, device="cuda")
    model, x = Made(lambda s, x: s.layer(x)[0].mean(), layer=nn.LSTM(8, 8)), torch.ones(3, 2, 8)
    graph = rx.capture(model, (x,), kernels="sm_90")
    with pytest.raises(ExecutionError, match="made without a device, for CUDA's kernels of sm_90"):
        rx.profile(graph, model, (x,))


def test_whose_kernels_a_graph_has_is_in_its_file_and_others_than_those_of_a_device_are_refused(tmp_path):
    path = tmp_path / "graph.json"
    for kernels, options in ((None, CaptureOptions()), ("cuda", CaptureOptions(kernels="sm_90"))):
        rx.capture(network(), (X,), loss=mean, device="H100", kernels=kernels).save(path)
        assert rx.Graph.load(path).options == options
    text = path.read_text()
    for wrong in ('"sm_x"', "90"):
        path.write_text(text.replace('"sm_90"', wrong))
        with pytest.raises(GraphError, match="capture"):
            rx.Graph.load(path)
    for kernels in ("sm", "cpu", "sm_9", "sm_9a", "CUDA", ""):
        with pytest.raises(UnknownNameError, match="unknown compute capability"):
            rx.capture(network(), (X,), loss=mean, kernels=kernels)


def test_what_only_the_device_knows_is_refused_with_the_reason():
    with pytest.raises(CaptureError, match=r"cannot be made without a device so: .*alternative implementations"):
        rx.capture(network(), (X,), loss=mean, kernels="cuda", implementations="exact")
    with pytest.raises(CaptureError, match=r"cannot be made without a device so: .*runs every"):
        rx.capture(network(), (X,), loss=mean, kernels="cuda", fake=False)
    with torch.autocast("cpu"), pytest.raises(CaptureError, match=r"autocast is on.*model\.bfloat16"):
        rx.capture(network(), (X,), loss=mean, kernels="cuda")


def casting(device: str, enabled: bool = True) -> rx.Graph:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled):
            return self.inside(x).mean()

    return rx.capture(Made(forward, inside=nn.Linear(8, 8)), (X,), kernels="cuda")


def test_autocast_for_the_cpu_inside_a_model_casts_nothing_on_cuda():
    assert casting("cpu").values == casting("cuda", enabled=False).values


@NO_GPU
def test_autocast_for_cuda_inside_a_model_is_refused_where_pytorch_leaves_it_off():
    with pytest.raises(CaptureError, match="autocast for CUDA cannot be made without a device"):
        casting("cuda")


def test_a_model_that_asks_where_it_is_is_told_cuda():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.inside(x)
        assert str(x.device) == str(self.inside.weight.device) == "cuda:0"
        y = y + torch.arange(8, device=x.device) if y.is_cuda and not y.is_cpu and y.get_device() == 0 else y
        return (y.to("cuda") * torch.ones(8, device="cuda")).relu().mean()

    graph = rx.capture(Made(forward, inside=nn.Linear(8, 8)), (X,), kernels="cuda")
    assert "inside arange" in [node.name for node in graph.operations]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("kind", [*SMALL, *UNUSUAL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_graph_made_without_the_device_is_that_of_the_device(kind, dtype):
    capability = "sm_{}{}".format(*torch.cuda.get_device_capability())
    case = small_network(kind) if kind in SMALL else UNUSUAL[kind]()
    model = case.model.to(dtype)
    args = tuple(t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in case.args)
    try:
        foretold = rx.capture(model, args, case.kwargs, case.loss, kernels=capability)
    except CaptureError as error:
        pytest.skip(str(error))
    there = map_tensors(lambda tensor: tensor.cuda(), args)
    found = rx.capture(model.cuda(), there, case.kwargs, case.loss)
    require_same_structure(foretold, found, torch.device("cuda"))


IMAGES = torch.ones(4, 3, 8, 8)


def normalized() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))


@pytest.fixture
def with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a device is chosen there is a GPU; nothing can be put there."""
    cuda = SimpleNamespace(is_available=lambda: True, current_device=lambda: 0)
    monkeypatch.setattr(model_placement, "torch", SimpleNamespace(**vars(torch) | {"cuda": cuda}))


def test_what_lies_on_the_cpu_is_profiled_and_measured_there_where_there_is_a_gpu_too(with_a_gpu):
    model = normalized()
    graph = rx.profile(rx.capture(model, (IMAGES,)), model, (IMAGES,), repeats=1)
    found = rx.measure(rx.solve(graph, "100%", "checkpoint-all"), model, (IMAGES,), repeats=1)
    assert (found.device, found.equal) == ("cpu", True)


def test_peers_run_where_the_model_lies_and_auto_is_the_gpu(with_a_gpu):
    (eager,) = rx.compare_peers(nn.Linear(2, 2), (torch.ones(1, 2),), repeats=1, budgets=[])[:1]
    assert eager.gradients_equal
    assert torch_device("auto") == torch.device("cuda", 0)


def test_inputs_come_to_the_model_and_a_model_without_tensors_lies_where_they_do(monkeypatch):
    assert model_device(nn.ReLU(), (torch.ones(1, device="meta"),)) == torch.device("meta")
    assert model_device(nn.ReLU()) == torch.device("cpu")
    monkeypatch.setattr(model_placement, "_require_content", lambda *given: None)
    monkeypatch.setattr(model_placement, "torch_device", torch.device)  # "meta" takes anything, in place of a GPU
    placed = place(nn.Linear(2, 2, device="meta"), (torch.ones(1, 2),), {"mask": torch.ones(1)}, None)
    assert {placed.device, placed.args[0].device, placed.kwargs["mask"].device} == {torch.device("meta")}


def test_a_graph_of_another_device_is_refused_with_the_device_where_it_is_to_run():
    model = normalized()
    one, other = rx.capture(model, (IMAGES,)), rx.capture(model[:-1], (IMAGES,))
    with pytest.raises(ExecutionError, match=r"has \d+ operations .* on cuda:1, where it runs here"):
        require_same_structure(one, other, torch.device("cuda", 1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_network_of_the_zoo_is_profiled_and_measured_where_it_was_loaded(device):
    net: Any = rx.models.load("residual_net", batch=4, image=32, device=device)
    graph = rx.profile(net.graph, net.module, net.args)
    found = rx.measure(rx.solve(graph, "80%", time_limit=5), net.module, net.args, repeats=1)
    assert (found.device == "cpu") == (device == "cpu")
    assert found.sound
