"""Multilayer perceptrons in parts: kernels beside float64, and steps without hidden features."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.implementations import perceptrons
from remat_explorer.capture.implementations.perceptrons import PARTS
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.checker import replay
from remat_explorer.plan import Compute, Plan
from tests.capture.implementations.nets import plan_by, preferring
from tests.capture.implementations.numerics import random, relative, workspace
from tests.capture.implementations.runner import ROADS, Net, Runner, measured

WIDTH, HIDDEN, TOKENS = 16, 96, (4, 40)
WAYS = [f"of the perceptron, in {parts} parts" for parts in PARTS]
REST = "of the perceptron's backward pass", "left out"


class Gated(nn.Module):
    """SwiGLU after a normalization, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Plain(nn.Module):
    """Two layers with biases and an activation, and a residual."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.norm, self.activation = nn.LayerNorm(WIDTH), activation
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.activation(self.up(self.norm(x))))


BLOCKS = {
    "swiglu": Gated,
    "gelu": lambda: Plain(nn.GELU(approximate="tanh")),
    "relu": lambda: Plain(nn.ReLU()),
}


class Squared(nn.Module):
    """A model, and the mean of the squares of its outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).square().mean()


def net(block: str, dtype: torch.dtype = torch.float32) -> Net:
    torch.manual_seed(0)
    model = Squared(nn.Sequential(*(BLOCKS[block]() for _ in range(2))))
    return model.to(dtype), (torch.randn(*TOKENS, WIDTH, dtype=dtype),)


def names(plan: Plan) -> list[str]:
    computed = [s for s in plan.statements if isinstance(s, Compute)]
    return [plan.graph.operations[s.operation].implementations[s.implementation - 1].name for s in computed]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("block", BLOCKS)
def test_hidden_features_are_left_out_and_the_peak_is_the_predicted_one(block, way):
    model, args = net(block)
    program = trace(model, args, options=CaptureOptions(implementations=("chunks",)))
    graph = rx.profile(program.graph, model, args, repeats=1)
    plan = plan_by(graph, preferring(graph, way, *REST))
    replay(plan)
    used = names(plan)
    assert used.count(way) == 4  # the forward result and the first of the backward pass, twice
    hidden = 4 * TOKENS[0] * TOKENS[1] * HIDDEN
    written = {
        v for s in plan.statements if isinstance(s, Compute) for v in graph.outputs(s.operation, s.implementation)
    }
    assert not any(graph.values[v].bytes == hidden for v in written)
    assert plan.peak < plan_by(graph, lambda k, count: 1).peak - hidden
    assert abs(measured(plan, program, model, args) - plan.peak) <= 0.001 * plan.peak


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("block", ["swiglu", "relu"])
def test_every_choice_has_the_gradients_of_plain_pytorch(block, road):
    runner = Runner(lambda: net(block), ["chunks"])
    plans = [plan_by(runner.graph, preferring(runner.graph, way, *REST)) for way in WAYS]
    for plan in (*plans, *runner.plans(2)):
        replay(plan)
        for key, gradient in runner.by(plan, road).outcome.gradients.items():
            assert relative(gradient, runner.reference.outcome.gradients[key]) <= 1e-5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_gradients_are_as_near_to_the_exact_ones_as_those_of_plain_pytorch(dtype):
    runner = Runner(lambda: net("swiglu", dtype), ["chunks"])
    model, args = net("swiglu", dtype)
    model.double()(*(x.double() for x in args)).backward()
    exact = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    for way in WAYS:
        found = runner.by(plan_by(runner.graph, preferring(runner.graph, way, *REST)), "trained").outcome.gradients
        for name, gradient in runner.reference.outcome.gradients.items():
            assert relative(found[name], exact[name]) <= 2 * relative(gradient, exact[name]) + 1e-13


@pytest.mark.parametrize("columns", [1, 5, 100])
def test_the_workspace_is_that_of_a_part(columns):
    x, first, second = random(64, 8), random(8, 400, seed=1), random(400, 8, seed=2)
    gelu, place = torch.ops.aten.gelu.default, perceptrons.HiddenPlace(0)
    steps = perceptrons.Product(0, 0, 1), perceptrons.Entrywise(1, gelu, (place,)), perceptrons.TokenResult(1, 2)
    perceptron = perceptrons.Perceptron(400, steps, (((64, 8), torch.float32),))
    assert perceptron.most_alive == 2
    run = perceptrons.SomeFeatures(perceptron, columns)
    (found,) = run(x, first, second)
    exact = functional.gelu(x.double() @ first.double()) @ second.double()
    assert relative(found, exact) <= 1e-6
    assert workspace(run, x, first, second) <= 2 * 4 * 64 * columns + 4 * 64 * 8


def test_trained_in_the_smallest_memory_it_needs_less_than_without():
    model, args = net("swiglu")
    graph = rx.profile(rx.capture(model, args, implementations=["chunks"]), model, args, repeats=1)
    plain, least = (rx.minimum_budget(graph, 1.0, kinds) for kinds in ("exact", "all"))
    assert least.known_feasible < plain.lower_bound
    found = rx.measure(rx.solve(graph, least, strategy="monet", time_limit=2), model, args, repeats=1)
    assert found.peak == found.predicted_peak <= least.known_feasible
    assert found.eager is not None
    assert found.eager.comparison.gradient_difference <= 1e-5


class Curious(Gated):
    """Something else reads hidden features: their mean."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.up(x)
        return self.down(features.relu()) + features.mean()


class Dropping(Gated):
    """Drops hidden features at random, which cannot be done in parts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.dropout(self.up(x).relu(), 0.2))


class Narrow(Plain):
    """Has no more hidden features than channels."""

    def __init__(self) -> None:
        super().__init__(nn.GELU())
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)


@pytest.mark.parametrize("make", [Curious, Dropping, Narrow])
def test_what_cannot_be_had_in_parts_or_would_save_nothing_stays_as_it_is(make):
    graph = rx.capture(Squared(make()), (torch.randn(*TOKENS, WIDTH),), implementations=["chunks"])
    assert all(len(node.implementations) == 1 for node in graph.operations)


def test_of_layers_in_a_row_the_widest_are_hidden():
    torch.manual_seed(0)
    layers = nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4)
    runner = Runner(lambda: (Squared(nn.Sequential(*layers)), (torch.randn(40, 8),)), ["chunks"])
    hidden = [n.name for n in runner.graph.operations if "left out" in [way.name for way in n.implementations]]
    assert hidden == ["2 linear + tanh", "4 mm", "3 tanh_backward"]
    for plan in runner.plans():
        replay(plan)
        for key, gradient in runner.by(plan, "trained").outcome.gradients.items():
            assert relative(gradient, runner.reference.outcome.gradients[key]) <= 1e-5
