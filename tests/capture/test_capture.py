"""What a captured graph says about a model."""

from __future__ import annotations

import copy
import gc
import inspect
import subprocess
import sys
from queue import SimpleQueue

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture.graph_assembly import unique
from remat_explorer.errors import CaptureError


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).flatten(1))


@pytest.fixture
def model() -> Classifier:
    torch.manual_seed(0)
    return Classifier()


X, Y = torch.ones(4, 3, 8, 8), torch.zeros(4, dtype=torch.long)


def cross_entropy(output: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output, Y)


def test_forward_operations_carry_their_module_path_in_eager_order(model):
    graph = rx.capture(model, (X,), loss=cross_entropy)
    forward = [node.name for node in graph.operations if node.phase == "forward"]
    assert forward == [
        "body.0 conv2d",
        "body.1 batch_norm + relu",
        "body.3 dropout",
        "body.4 max_pool2d",
        "head linear",
        "log_softmax",
        "nll_loss",
    ]
    assert "body.0 gradient of weight, bias" in [node.name for node in graph.operations]
    assert "head gradient of bias, weight" in [node.name for node in graph.operations]


def test_persistent_values_are_loss_gradients_and_new_buffer_contents(model):
    graph = rx.capture(model, (X,), loss=cross_entropy)
    gradients = {f"{name}.grad" for name, _ in model.named_parameters()}
    buffers = {"body.1.running_mean (new)", "body.1.running_var (new)"}
    assert {value.name for value in graph.values if value.persistent} == gradients | buffers | {"loss"}


def test_value_bytes_are_those_of_the_tensors(model):
    graph = rx.capture(model, (X,), loss=cross_entropy)
    sizes = {value.name: value.bytes for value in graph.values}
    assert sizes["body.0 conv2d"] == 4 * 8 * 8 * 8 * 4
    assert sizes["body.3 dropout [1]"] == 4 * 8 * 8 * 8  # the mask, one byte an entry
    assert sizes["head.weight.grad"] == 10 * 128 * 4


def test_resident_bytes_count_parameters_buffers_inputs_and_the_tangent_once(model):
    graph = rx.capture(model, (X,), loss=lambda output: output.sum())
    state = [*model.parameters(), *model.buffers()]
    assert graph.resident_bytes == sum(t.nbytes for t in (*state, X)) + 4


def test_views_are_no_values():
    model = nn.Sequential(nn.Linear(8, 8), nn.Flatten(), nn.Unflatten(1, (2, 4)), nn.Linear(4, 4))
    names = [node.name for node in rx.capture(model, (torch.ones(3, 8),)).operations]
    assert not [name for name in names if any(word in name for word in ("view", " t", "reshape", "expand"))]


def test_names_and_costs_and_bytes_are_the_same_at_every_capture(model):
    assert rx.capture(model, (X,), loss=cross_entropy).sha256 == rx.capture(model, (X,), loss=cross_entropy).sha256


def test_every_operation_costs_time(model):
    assert (rx.capture(model, (X,), loss=cross_entropy).costs > 0).all()


def test_a_faster_device_gives_lower_costs(model):
    costs = [rx.capture(model, (X,), loss=cross_entropy, device=name).total_cost for name in ("V100", "H100")]
    assert costs[0] > costs[1]


def test_capture_leaves_the_model_and_the_random_state_alone(model):
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    rx.capture(model, (X,), loss=cross_entropy)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training


def test_a_batch_that_no_machine_holds_can_be_captured(model):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(2**24, 3, 8, 8)
    graph = rx.capture(model, (x,))
    assert max(value.bytes for value in graph.values) == 2**24 * 8 * 8 * 8 * 4


def test_an_output_that_is_no_scalar_stays_and_its_gradient_is_there_from_the_beginning():
    graph = rx.capture(nn.Linear(3, 2), (torch.ones(5, 3),))
    assert [node.name for node in graph.operations if node.phase == "forward"] == ["linear"]
    assert [value.name for value in graph.values] == ["output", "weight.grad", "bias.grad"]
    assert graph.resident_bytes == 4 * (5 * 3 + 3 * 2 + 2 + 5 * 2)


def test_tied_weights_have_one_gradient_and_are_resident_once():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 8, bias=False))
    model[2].weight = model[0].weight
    graph = rx.capture(model, (torch.ones(2, 8),))
    assert [value.name for value in graph.values if value.persistent] == ["output", "0.weight.grad"]
    assert graph.resident_bytes == 8 * 8 * 4 + 2 * 8 * 4 + 2 * 8 * 4


def test_frozen_parameters_get_no_gradient(model):
    model.body.requires_grad_(False)
    graph = rx.capture(model, (X,), loss=cross_entropy)
    gradients = {value.name for value in graph.values if value.name.endswith(".grad")}
    assert gradients == {"head.weight.grad", "head.bias.grad"}


def test_keyword_inputs_reach_the_model():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, *, scale: torch.Tensor, times: int) -> torch.Tensor:
            return (self.layer(x) * scale * times).sum()

    graph = rx.capture(Scaled(), (torch.ones(2, 4),), {"scale": torch.ones(4), "times": 3})
    assert graph.operations[0].name == "layer linear + mul + mul"


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(CaptureError, match="ReLU cannot be captured: it has no parameter that requires a gradient"):
        rx.capture(nn.ReLU(), (torch.ones(3),))


def test_control_flow_that_depends_on_data_is_explained():
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x).sum()
            return y if y > 0 else -y

    with pytest.raises(CaptureError, match=r"Branching cannot be captured .* depends on the parameter 'layer\.\w+'"):
        rx.capture(Branching(), (torch.ones(2, 4),))


def test_a_loss_that_is_no_scalar_is_refused(model):
    with pytest.raises(CaptureError, match=r"one element, but it gave \[4, 10\]"):
        rx.capture(model, (X,), loss=lambda output: output)


def test_capture_stays_a_function_when_its_package_is_imported():
    import remat_explorer.capture as package

    assert callable(package)
    assert inspect.signature(package) == inspect.signature(package.capture)
    code = (
        "import torch, remat_explorer as rx, remat_explorer.capture.tracing\n"
        "assert callable(rx.profile)\n"
        "print(rx.capture(torch.nn.Linear(2, 2), (torch.ones(1, 2),)).n)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 1


def test_repeated_names_are_numbered():
    assert unique(["a", "a", "a (2)", "a"]) == ("a", "a (2)", "a (2) (2)", "a (3)")


def test_a_capture_leaves_the_garbage_collector_as_it_was(model):
    before = gc.get_threshold()
    inside: SimpleQueue[int] = SimpleQueue()  # a list would be emptied again after the capture

    class Watching(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inside.put(gc.get_threshold()[0])
            return super().forward(x)

    try:
        rx.capture(Watching(2, 2), (torch.ones(1, 2),))
        assert min(inside.get() for _ in range(inside.qsize())) > before[0]
        assert gc.get_threshold() == before
        with pytest.raises(CaptureError):
            rx.capture(nn.Linear(2, 2), (torch.ones(1, 3),))
        assert gc.get_threshold() == before
        gc.set_threshold(0)
        rx.capture(Watching(2, 2), (torch.ones(1, 2),))
        assert {inside.get() for _ in range(inside.qsize())} == {0}
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
