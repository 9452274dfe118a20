"""What the graphs of less usual models hold."""

from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.errors import CaptureError
from tests.runtime.kinds_of_models import KINDS, Case, Made, linear, x
from tests.thorough import thorough_but


def graph_of(case: Case) -> rx.Graph:
    return rx.capture(case.model, case.args, case.kwargs, case.loss)


def names(graph: rx.Graph) -> list[str]:
    return [node.name for node in graph.operations]


def results(graph: rx.Graph) -> set[str]:
    return {value.name for value in graph.values if value.persistent}


TWICE = ("GRU", "checkpoint inside", "buffers assigned anew")


@pytest.mark.parametrize("kind", thorough_but(KINDS, *TWICE))
def test_two_captures_give_one_graph(kind):
    case = KINDS[kind]()
    assert graph_of(case).sha256 == graph_of(case).sha256


def test_a_submodule_called_model_keeps_its_name():
    inner = Made(lambda s, x: s.model(x), model=linear())
    found = results(rx.capture(Made(lambda s, x: s.model(x), model=inner), (x(),)))
    assert found == {"output", "model.model.weight.grad", "model.model.bias.grad"}


def test_the_loss_of_an_output_comes_before_its_other_tensors():
    graph = graph_of(KINDS["dictionary output with a loss"]())
    assert names(graph)[:2] == ["layer linear", "mean"]


def test_what_a_checkpoint_would_recompute_is_in_the_graph_once():
    forward = [node.name for node in graph_of(KINDS["checkpoint inside"]()).operations]
    assert sum("dropout" in name and "backward" not in name for name in forward) == 1


def test_wrappers_show_in_results_but_not_in_operations():
    graph = graph_of(KINDS["torch.compile inside"]())
    assert names(graph)[0] == "0.0 linear + relu"
    assert "0._orig_mod.0.weight.grad" in results(graph)


def test_autocast_makes_casts_of_the_weights():
    case = Case(nn.Sequential(linear(), nn.ReLU()), (x(),))
    assert not [name for name in names(graph_of(case)) if "cast" in name]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        graph = graph_of(case)
    assert [name for name in names(graph) if "cast" in name]
    sizes = {value.name: value.bytes for value in graph.values}
    assert sizes["0.weight.grad"] == 8 * 8 * 4


def test_capture_finds_the_kernels_of_torch_as_it_left_them():
    operators = [torch.ops.aten.dropout.default, torch.ops.aten.upsample_bilinear2d.vec, torch.ops.aten.lstm.input]
    before = [dict(operator.py_kernels) for operator in operators]
    graph_of(KINDS["interpolation"]())
    assert [dict(operator.py_kernels) for operator in operators] == before


class AsksWhetherItIsExported(nn.Module):
    """Looks into a parameter, but not during an export."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.encoder = nn.Sequential(linear(), nn.BatchNorm1d(8), nn.Dropout(0.3))
        self.head = linear()
        self.head.register_parameter("weight", self.encoder.get_parameter("0.weight"))
        self.constant = torch.ones(8)
        self.forward_after = forward

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting() and self.head.weight.any():
            mask = mask.clone()
        return self.forward_after(self, self.encoder(x) * mask * self.constant)


def test_a_model_that_fails_directly_is_exported_first_and_keeps_its_names():
    model = AsksWhetherItIsExported(lambda s, y: s.head(y))
    words = "captured by torch.export, because .* reads a number .* last digits may differ"
    with pytest.warns(UserWarning, match=words):
        program = trace(model, (x(), torch.ones(8)))
    assert results(program.graph) >= {"encoder.0.weight.grad", "encoder.1.weight.grad", "head.bias.grad", "output"}
    assert "head.weight.grad" not in results(program.graph)
    assert "encoder.1.running_mean (new)" in results(program.graph)
    layers = {"encoder.0 linear", "encoder.1 batch_norm", "encoder.2 dropout + mul + mul", "head linear"}
    assert layers <= set(names(program.graph))


@pytest.mark.filterwarnings("ignore:AsksWhether")
def test_an_export_keeps_what_is_detached_and_what_runs_without_gradients():
    def forward(self, y):
        with torch.no_grad():
            fixed = self.head(y)
        return self.head(y.detach()) + fixed

    graph = rx.capture(AsksWhetherItIsExported(forward), (x(), torch.ones(8)))
    assert {name for name in results(graph) if name.endswith(".grad")} == {"encoder.0.weight.grad", "head.bias.grad"}
    assert not [name for name in names(graph) if "batch_norm_backward" in name]


class Collecting(nn.Module):
    """Collects hidden states by hooks that its first forward pass adds, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 4), nn.Linear(4, 2)])
        self.states: list[torch.Tensor] = []
        self.watching = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.watching:
            for layer in self.layers:
                layer.register_forward_hook(self._collect)
            self.watching = True
        self.states.clear()
        for layer in self.layers:
            x = layer(x)
        return torch.stack([state.square().sum() for state in self.states]).sum()

    def _collect(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        self.states.append(output)


def test_hooks_that_a_forward_pass_adds_do_not_outlast_the_capture():
    model = Collecting()
    graph = rx.capture(model, (x(),))
    assert not model.watching
    assert not any(layer._forward_hooks for layer in model.layers)
    model(x())
    assert rx.capture(model, (x(),)).sha256 == graph.sha256


@pytest.mark.parametrize("kind", ["custom autograd Function", "gradient hook"])
def test_an_export_that_would_change_gradients_is_not_taken(kind):
    last = KINDS[kind]().model
    model = AsksWhetherItIsExported(lambda s, y: s.last(y))
    model.last = last
    with pytest.raises(CaptureError, match="reads a number out of a tensor"):
        rx.capture(model, (x(), torch.ones(8)))
