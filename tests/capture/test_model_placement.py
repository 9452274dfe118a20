"""Where models run: where they lie, unless another device is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import model_placement
from remat_explorer.capture.model_placement import model_device, place, require_same_structure, torch_device
from remat_explorer.errors import ExecutionError

X = torch.ones(4, 3, 8, 8)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))


@pytest.fixture
def with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a device is chosen there is a GPU; nothing can be put there."""
    cuda = SimpleNamespace(is_available=lambda: True, current_device=lambda: 0)
    stand_in = {name: getattr(torch, name) for name in ("device", "nn", "Tensor", "backends")}
    monkeypatch.setattr(model_placement, "torch", SimpleNamespace(**stand_in, cuda=cuda))


def test_what_lies_on_the_cpu_is_profiled_and_measured_there_where_there_is_a_gpu_too(with_a_gpu):
    model = network()
    graph = rx.profile(rx.capture(model, (X,)), model, (X,), repeats=1)
    found = rx.measure(rx.solve(graph, "100%", "checkpoint-all"), model, (X,), repeats=1)
    assert (found.device, found.equal) == ("cpu", True)


def test_peers_run_where_the_model_lies(with_a_gpu):
    (eager,) = rx.compare_peers(nn.Linear(2, 2), (torch.ones(1, 2),), repeats=1, budgets=[])[:1]
    assert eager.gradients_equal


def test_auto_is_the_gpu_where_there_is_one(with_a_gpu):
    assert torch_device("auto") == torch.device("cuda", 0)


def test_a_model_without_tensors_lies_where_its_inputs_do():
    assert model_device(nn.ReLU(), (torch.ones(1, device="meta"),)) == torch.device("meta")
    assert model_device(nn.ReLU()) == torch.device("cpu")


def test_inputs_come_to_the_model(monkeypatch):
    monkeypatch.setattr(model_placement, "_require_content", lambda *given: None)
    monkeypatch.setattr(
        model_placement, "torch_device", torch.device
    )  # a device that takes anything, in place of a GPU
    placed = place(nn.Linear(2, 2, device="meta"), (torch.ones(1, 2),), {"mask": torch.ones(1)}, None)
    assert {placed.device, placed.args[0].device, placed.kwargs["mask"].device} == {torch.device("meta")}


def test_a_graph_of_another_device_is_refused_with_the_device_where_it_is_to_run():
    model = network()
    one, other = rx.capture(model, (X,)), rx.capture(model[:-1], (X,))
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
