"""Weight gradients come before input gradients: what that is for, and where it must not be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import tracing
from remat_explorer.graph import Graph
from remat_explorer.solvers import checkpoint_all_peak
from tests.solvers.exhaustive import frontier_optimum
from tests.thorough import thorough_but

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}


class Narrow(nn.Module):
    """Two layers under autocast, so that the cast weight of the second one is a value that its input gradient reads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers(x).float()


def perceptron(activation: str = "tanh", hidden: int = 2, bias: bool = True) -> nn.Sequential:
    layers = [layer for _ in range(hidden) for layer in (nn.Linear(64, 64, bias=bias), ACTIVATIONS[activation]())]
    return nn.Sequential(*layers, nn.Linear(64, 8, bias=bias))


def captured(model: nn.Module, batch: int = 512, contract: bool = True) -> Graph:
    width = next(model.parameters()).shape[1]
    return rx.capture(model, (torch.ones(batch, width),), loss=lambda y: y.pow(2).mean(), contract=contract)


def as_traced(monkeypatch: pytest.MonkeyPatch, model: nn.Module, batch: int = 512) -> Graph:
    """The graph in the order in which PyTorch traces it."""
    with monkeypatch.context() as patch:
        patch.setattr(tracing, "weight_gradients_first", lambda found: None)
        return captured(model, batch)


def producer_of(graph: Graph, value: str) -> int:
    return int(graph.producer[[entry.name for entry in graph.values].index(value)])


def input_gradient_of(graph: Graph, path: str) -> int:
    (k,) = (k for k, node in enumerate(graph.operations) if node.name == f"{path} mm")
    return k


@pytest.mark.parametrize("contract", [False, True])
def test_the_gradients_of_weight_and_bias_come_before_the_input_gradient(contract):
    graph = captured(perceptron(hidden=1), contract=contract)
    writes = {v for k in range(input_gradient_of(graph, "2")) for v in graph.outputs(k)}
    assert {"2.weight.grad", "2.bias.grad"} <= {graph.values[v].name for v in writes}


def test_as_traced_the_input_gradient_comes_first(monkeypatch):
    graph = as_traced(monkeypatch, perceptron(hidden=1))
    assert producer_of(graph, "2.weight.grad") > input_gradient_of(graph, "2")


PERCEPTRONS = [(activation, bias, hidden) for activation in ACTIVATIONS for bias in (False, True) for hidden in (1, 2)]
QUICK = [("tanh", True, 2), ("relu", False, 2), ("sigmoid", True, 1), ("gelu", False, 1)]


@pytest.mark.parametrize(("activation", "bias", "hidden"), thorough_but(PERCEPTRONS, *QUICK))
def test_stages_without_limits_fit_into_no_less_and_cost_no_less_than_whole_ones(activation, bias, hidden):
    """At the smallest budget, found by the exact strategy and one byte below it, and halfway to keeping everything."""
    graph = captured(perceptron(activation, hidden, bias))
    found = rx.minimum_budget(graph, seconds=120)
    assert found.proven
    assert frontier_optimum(graph, found.known_feasible - 1, splits=None) == float("inf")
    for budget in (found.known_feasible, (found.known_feasible + checkpoint_all_peak(graph)) // 2):
        assert frontier_optimum(graph, budget) == pytest.approx(frontier_optimum(graph, budget, None), rel=1e-9)


def test_a_perceptron_that_as_traced_fits_only_where_everything_is_kept_runs_within_less(monkeypatch):
    torch.manual_seed(0)
    model = perceptron()
    traced, graph = as_traced(monkeypatch, model), captured(model)
    budget = int(0.8 * checkpoint_all_peak(traced))
    assert rx.solve(traced, budget).status == "infeasible"
    solution = rx.solve(graph, budget)
    assert solution.status == "optimal"
    assert solution.cost is not None
    assert solution.cost < frontier_optimum(traced, budget, splits=2)
    measured = rx.measure(
        solution, model, (torch.randn(512, 64),), loss=lambda y: y.pow(2).mean(), device="cpu", repeats=1
    )
    assert measured.equal


@pytest.mark.parametrize("batch", [16, 512])
@pytest.mark.parametrize("name", ["perceptron", "narrow", "wide"])
def test_keeping_everything_never_takes_more_than_as_traced(name, batch, monkeypatch):
    model = {"perceptron": perceptron("gelu"), "narrow": Narrow(16), "wide": Narrow(256)}[name]
    assert checkpoint_all_peak(captured(model, batch)) <= checkpoint_all_peak(as_traced(monkeypatch, model, batch))


def test_an_input_gradient_that_reads_a_large_cast_weight_is_not_passed():
    """It would keep the cast weight until after the weight gradient; of a small one, that is worth it."""
    for batch, is_passed in ((4, False), (512, True)):
        graph = captured(Narrow(16), batch)
        (cast,) = (v for v, value in enumerate(graph.values) if value.name.endswith("2 cast (2)"))
        (input_gradient,) = (k for k in graph.readers[cast] if graph.is_backward[k])
        (weight,) = graph.inputs(producer_of(graph, "layers.2.weight.grad"))
        assert (graph.producer[weight] < input_gradient) == is_passed
