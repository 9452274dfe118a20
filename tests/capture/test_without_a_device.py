"""Graphs for CUDA that are made where CUDA is not: they need no device, end no process, and run nowhere here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.capture.inputs_and_outputs import map_tensors
from remat_explorer.capture.model_placement import require_same_structure
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import CaptureError, ExecutionError, GraphError, UnknownNameError
from tests.capture.unusual_models import UNUSUAL
from tests.models.small_models import SMALL
from tests.runtime.kinds_of_models import Case
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
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
import remat_explorer as rx
from tests.capture.test_without_a_device import X, mean, network, on_fake_cuda

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.MultiheadAttention(8, 2, batch_first=True)
    def forward(self, x):
        return self.inside(x, x, x, need_weights=False)[0].mean()

small = rx.models.load("whisper_small", batch=1, layers=1, device="cuda", costs="H100")
graphs = [small.graph, rx.capture(small.module, small.args, device="H100", kernels="cuda")]
for model, x in ((network(), X), (Attention(), torch.ones(2, 5, 8))):
    loss = None if isinstance(model, Attention) else mean
    graphs += [rx.capture(model, (x,), loss=loss, device="cuda"), rx.capture(model, (x,), loss=loss, kernels="sm_90")]
    graphs.append(rx.capture(model, (on_fake_cuda(model, x),), loss=loss, device="A100"))
print(*(graph.options.kernels for graph in graphs), sum("efficient_attention" in graph.operations[k].name
      for graph in graphs for k in range(graph.n)) > 0)
"""


@NO_GPU
def test_a_capture_for_cuda_with_attention_and_gradients_does_not_end_the_process():
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", IN_A_PROCESS], cwd=root, capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stdout.split()) == (
        0,
        ["sm_90", "sm_90", "sm_80", "sm_90", "sm_80", "sm_80", "sm_90", "sm_80", "True"],
    ), done.stderr[-2000:]


def small_network(name: str) -> Case:
    net = rx.models.load(name, batch=2, **SMALL[name])
    return Case(net.module, net.args)


def of_cpu(graph: rx.Graph) -> list[str]:
    return [node.name for node in graph.operations if "for_cpu" in node.name or "mkldnn" in node.name]


ZOO = ["bert", "gpt2", "mlp", "mobilenet_v2", "residual_net", "unet", "vit"]


@pytest.mark.parametrize("name", thorough_but(ZOO, "mlp", "residual_net", "unet"))
def test_a_network_of_the_zoo_has_a_graph_for_cuda(name):
    case = small_network(name)
    graph = rx.capture(case.model, case.args, device="H100", kernels="cuda")
    assert not of_cpu(graph)
    attends = any("efficient_attention" in node.name for node in graph.operations)
    assert attends == (name in ("bert", "gpt2", "vit"))


LESS_USUAL = ("a view of folded patches", "SmoothL1 of an LSTM", "FNet", "grid sample", "complex numbers", "bfloat16")


@pytest.mark.parametrize("kind", thorough_but(UNUSUAL, *LESS_USUAL))
def test_less_usual_models_have_a_graph_without_operations_of_the_cpu(kind):
    case: Case = UNUSUAL[kind]()
    assert not of_cpu(rx.capture(case.model, case.args, case.kwargs, case.loss, kernels="cuda"))


@NO_GPU
def test_what_is_loaded_for_a_device_that_is_not_there_has_shapes_and_a_graph_but_nothing_to_run():
    net = rx.models.load("residual_net", batch=4, image=32, device="cuda", costs="H100")
    assert {tensor.device.type for tensor in (*net.module.parameters(), *net.args)} == {"meta"}
    assert net.graph.options == CaptureOptions(kernels="sm_90")
    solution = rx.solve(net.graph, "80%", time_limit=2)
    assert solution.schedule is not None
    for run in (
        lambda: rx.profile(net.graph, net.module, net.args),
        lambda: rx.measure(solution, net.module, net.args),
    ):
        with pytest.raises(ExecutionError, match="enough to capture and solve but not to run"):
            run()


@NO_GPU
def test_measuring_on_a_device_that_is_not_there_says_what_can_be_done():
    graph = rx.capture(network(), (X,), loss=mean, device="cuda")
    with pytest.raises(ExecutionError, match=r"no CUDA device here.*captured, solved and studied"):
        rx.profile(graph, network(), (X,), loss=mean, device="cuda")


def test_a_graph_for_cuda_is_refused_on_the_cpu_where_its_operations_are_others():
    model, x = nn.LSTM(8, 8), torch.ones(3, 2, 8)

    def loss(output: Any) -> torch.Tensor:
        return output[0].mean()

    graph = rx.capture(model, (x,), loss=loss, kernels="sm_90")
    with pytest.raises(ExecutionError, match="made without a device, for CUDA's kernels of sm_90"):
        rx.profile(graph, model, (x,), loss=loss)


def test_whose_kernels_a_graph_has_is_in_its_file(tmp_path):
    for kernels, options in (("cuda", CaptureOptions(kernels="sm_90")), (None, CaptureOptions())):
        rx.capture(network(), (X,), loss=mean, device="H100", kernels=kernels).save(tmp_path / "graph.json")
        assert rx.Graph.load(tmp_path / "graph.json").options == options
        assert ('"kernels":"sm_90"' in (tmp_path / "graph.json").read_text()) == (kernels is not None)


def test_a_file_with_kernels_that_no_device_has_is_refused(tmp_path):
    rx.capture(network(), (X,), loss=mean, kernels="cuda").save(tmp_path / "graph.json")
    text = (tmp_path / "graph.json").read_text()
    for wrong in ('"sm_x"', "90"):
        (tmp_path / "graph.json").write_text(text.replace('"sm_80"', wrong))
        with pytest.raises(GraphError, match='"capture"'):
            rx.Graph.load(tmp_path / "graph.json")


@pytest.mark.parametrize("kernels", ["sm", "cpu", "sm_9", "sm_9a", "CUDA", ""])
def test_kernels_that_no_device_has_are_refused(kernels):
    with pytest.raises(UnknownNameError, match="unknown compute capability"):
        rx.capture(network(), (X,), loss=mean, kernels=kernels)


def test_what_only_the_device_knows_is_refused_with_the_reason():
    undecided: list[tuple[dict[str, Any], str]] = [
        ({"implementations": "exact"}, "alternative implementations"),
        ({"fake": False}, "runs every"),
    ]
    for setting, reason in undecided:
        with pytest.raises(CaptureError, match=f"cannot be made without a device so: .*{reason}"):
            rx.capture(network(), (X,), loss=mean, kernels="cuda", **setting)
    with torch.autocast("cpu"), pytest.raises(CaptureError, match=r"autocast is on.*model\.bfloat16"):
        rx.capture(network(), (X,), loss=mean, kernels="cuda")


class CastsInside(nn.Module):
    def __init__(self, device: str, enabled: bool = True) -> None:
        super().__init__()
        self.inside, self.setting = nn.Linear(8, 8), (device, torch.bfloat16, enabled)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(*self.setting):
            return self.inside(x).mean()


def test_autocast_for_the_cpu_inside_a_model_casts_nothing_on_cuda():
    plain = rx.capture(nn.Sequential(CastsInside("cuda", enabled=False)), (X,), kernels="cuda")
    assert rx.capture(nn.Sequential(CastsInside("cpu")), (X,), kernels="cuda").values == plain.values


@NO_GPU
def test_autocast_for_cuda_inside_a_model_is_refused_where_pytorch_leaves_it_off():
    with pytest.raises(CaptureError, match="autocast for CUDA cannot be made without a device"):
        rx.capture(CastsInside("cuda"), (X,), kernels="cuda")


class AsksWhere(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inside(x)
        assert str(x.device) == str(self.inside.weight.device) == "cuda:0"
        y = y + torch.arange(8, device=x.device) if y.is_cuda and not y.is_cpu and y.get_device() == 0 else y
        return (y.to("cuda") * torch.ones(8, device="cuda")).relu().mean()


def test_a_model_that_asks_where_it_is_is_told_cuda():
    names = [node.name for node in rx.capture(AsksWhere(), (X,), kernels="cuda").operations]
    assert "inside arange" in names


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("kind", [*SMALL, *UNUSUAL])
def test_the_graph_made_without_the_device_is_that_of_the_device(kind):
    for dtype in (torch.float32, torch.bfloat16):
        compare(kind, dtype)


def compare(kind: str, dtype: torch.dtype) -> None:
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
