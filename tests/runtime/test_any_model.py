"""Plans of every kind of model give the numbers of plain PyTorch, bit for bit, and leave the model as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime import Measurement
from tests.runtime.kinds_of_models import KINDS, Case, Made, linear, x
from tests.runtime.random_schedules import random_schedule, solution_of
from tests.thorough import thorough_but


def measured(case: Case) -> Measurement:
    """A schedule that recomputes, executed beside plain PyTorch."""
    graph = rx.capture(case.model, case.args, case.kwargs, case.loss)
    schedule = max((random_schedule(graph, seed, dropped=0.8) for seed in range(5)), key=lambda s: s.recomputations)
    assert schedule.recomputations > 0
    return rx.measure(solution_of(schedule), case.model, case.args, case.kwargs, case.loss, device="cpu", repeats=1)


def assert_equal(found: Measurement) -> None:
    assert found.equal


AUTOCAST = ["train mode", "bfloat16 with dropout", "tied weights and padding"]
ALONE = ["caches on attributes", "buffers assigned anew", "tied weights and padding", "GRU"]
# All kinds are compared with plain PyTorch by every road in test_random_plans.py; these are measured, too.
MEASURED = ("train mode", "buffers assigned anew", "custom autograd Function", "dictionary output with a loss")


@pytest.mark.parametrize("kind", thorough_but(KINDS, *MEASURED))
def test_gradients_buffers_and_random_state_are_those_of_plain_pytorch(kind):
    torch.manual_seed(0)
    assert_equal(measured(KINDS[kind]()))


class Combined(nn.Module):
    """A layer whose output meets a parameter."""

    def __init__(self, combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.combine = combine
        self.layer, self.last = linear(), linear()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.combine(self.layer(x), self.weight)))


COMBINATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum with a factor": lambda y, w: torch.add(y, w, alpha=2),
    "sum with a factor of the layer's": lambda y, w: torch.add(w, y, alpha=2),
    "difference": lambda y, w: torch.sub(y, w, alpha=3),
    "difference from the parameter": lambda y, w: torch.sub(w, y, alpha=3),
    "quotient": lambda y, w: y / (w.square() + 1),
    "quotient of the parameter": lambda y, w: w / (y.square() + 1),
    "product with itself": lambda y, w: y * y + w,
    "product with its transpose": lambda y, w: y * y.t() + w,
    "transposed": lambda y, w: w + y.t(),
    "a scalar": lambda y, w: w[0, 0] * y,
    "a row for all": lambda y, w: w[0] + y.sum(1, keepdim=True),
    "double precision": lambda y, w: (w.double() * y).float(),
    "in place": lambda y, w: y.mul_(w).add_(w, alpha=2),
    "limits": lambda y, w: nn.functional.hardtanh(y) * w + nn.functional.hardtanh(y, -0.5, 0.5),
}


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_arithmetic_with_a_parameter_in_any_place_gives_the_numbers_of_plain_pytorch(combination):
    torch.manual_seed(0)
    assert_equal(measured(Case(Combined(COMBINATIONS[combination]), (torch.randn(8, 8),))))


@pytest.mark.parametrize("kind", thorough_but(AUTOCAST, "train mode", "tied weights and padding"))
def test_ambient_autocast_holds_for_the_forward_pass_alone(kind):
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_equal(measured(KINDS[kind]()))


@pytest.mark.parametrize("ambient", [torch.no_grad, torch.inference_mode])
def test_gradients_are_computed_whatever_the_caller_has_switched_off(ambient):
    case = Case(nn.Sequential(linear(), nn.ReLU(), linear()), (x(),))
    with ambient():
        case.args = (x(),)
        assert_equal(measured(case))


@pytest.mark.parametrize(
    "kind", thorough_but(ALONE, "caches on attributes", "buffers assigned anew", "tied weights and padding")
)
def test_measuring_leaves_attributes_buffers_and_gradients_alone(kind):
    case = KINDS[kind]()
    attributes = {name: dict(module.__dict__) for name, module in case.model.named_modules()}
    content = copy.deepcopy(case.model.state_dict())
    measured(case)
    for name, module in case.model.named_modules():
        assert module.__dict__.keys() == attributes[name].keys()
        assert all(module.__dict__[key] is value for key, value in attributes[name].items())
    assert all(torch.equal(content[name], tensor) for name, tensor in case.model.state_dict().items())
    assert getattr(case.model, "seen", []) == []
    assert all(parameter.grad is None for parameter in case.model.parameters())


def test_an_input_that_requires_a_gradient_gets_none():
    case = KINDS["an input that requires a gradient"]()
    measured(case)
    assert case.args[0].grad is None


def test_a_predicted_peak_holds_for_a_recurrent_network_after_profiling():
    case = KINDS["LSTM with dropout"]()
    graph = rx.capture(case.model, case.args, case.kwargs, case.loss)
    graph = rx.profile(graph, case.model, case.args, case.kwargs, case.loss, device="cpu", repeats=1)
    solution = solution_of(random_schedule(graph, 0))
    found = rx.measure(solution, case.model, case.args, case.kwargs, case.loss, device="cpu", repeats=1)
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
    assert_equal(rx.measure(solution, real, (x(),), device="cpu", repeats=1))


def test_a_model_that_plain_pytorch_cannot_run_is_explained():
    model, args = nn.Sequential(linear()), (x().double(),)
    with pytest.raises(ExecutionError, match=r"Sequential does not run in plain PyTorch, .* same dtype"):
        rx.measure(solution_of(random_schedule(rx.capture(model, args), 0)), model, args, device="cpu")


def test_control_flow_that_changes_between_captures_is_refused():
    turns = iter(range(100))
    model = Made(lambda s, x: s.layer(x).sin() if next(turns) // 2 % 2 else s.layer(x), layer=linear())
    graph = rx.capture(model, (x(),))
    with pytest.raises(ExecutionError, match="capture the model again"):
        rx.measure(solution_of(random_schedule(graph, 0)), model, (x(),), device="cpu")
