"""Weight gradients come before input gradients, and operations are joined where no schedule worth having is lost."""

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


def forward_names(model: nn.Module, x: torch.Tensor) -> list[str]:
    return [node.name for node in rx.capture(model, (x,)).operations if node.phase == "forward"]


def test_an_activation_runs_in_place_in_its_only_producer():
    assert forward_names(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)) == ["0 linear + relu"]


def test_an_activation_whose_input_the_backward_pass_reads_stays_an_operation():
    assert forward_names(nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.ones(2, 4)) == ["0 linear", "1 gelu"]


def test_hardtanh_runs_in_place_too_since_its_backward_reads_the_result():
    model = nn.Sequential(nn.Linear(4, 4), nn.Hardtanh(), nn.Linear(4, 4), nn.ReLU6())
    x = torch.tensor([[-3.0, -1.0, 1.0, 9.0]])
    assert forward_names(model, x) == ["0 linear + hardtanh", "2 linear + hardtanh"]


def test_hardtanh_whose_input_is_kept_for_another_operation_is_not_kept_beside_it():
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            return nn.functional.hardtanh(y).sum() + y.square().sum()

    graph = rx.capture(Fork(), (torch.ones(2, 4),))
    (backward,) = (node for node in graph.operations if "hardtanh_backward" in node.name)
    assert "layer linear" in [graph.values[v].name for v in backward.default.inputs]


def test_an_activation_whose_input_another_operation_reads_stays_an_operation():
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            return torch.relu(y) * y.exp()

    assert "layer linear" in forward_names(Fork(), torch.ones(2, 4))


def test_a_small_bias_gradient_joins_the_weight_gradient_and_a_large_one_does_not():
    def names(width: int) -> list[str]:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, width), nn.ReLU())
        return [node.name for node in rx.capture(model, (torch.ones(2, 8),)).operations]

    assert "1 gradient of bias, weight" in names(16)
    assert "1 gradient of bias, weight" not in names(2**15)


def test_clones_that_keep_the_layout_are_no_operations():
    class Copying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).clone().detach_().sum() + self.layer(x.clone()).sum()

    assert not [name for name in forward_names(Copying(), torch.ones(2, 4)) if "clone" in name]


class Masked(nn.Module):
    """Attention-like layers that each make the same mask, from positions that nothing else depends on."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(length, length) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) + torch.arange(x.shape[1]).float()
        return x.sum()


def test_small_constants_are_made_once_and_stay():
    x = torch.ones(64, 16)
    graph = rx.capture(Masked(16), (x,))
    assert not [node.name for node in graph.operations if "arange" in node.name or "cast" in node.name]
    assert graph.resident_bytes == rx.capture(Masked(16), (x,), contract=False).resident_bytes + 16 * 4


def test_constants_that_are_not_small_beside_what_they_meet_are_left_to_the_solver():
    x = torch.ones(2, 16)
    graph = rx.capture(Masked(16), (x,))
    assert [node.name for node in graph.operations if "arange" in node.name]
    assert graph.resident_bytes == rx.capture(Masked(16), (x,), contract=False).resident_bytes


def test_random_tensors_are_neither_shared_nor_kept():
    class Noisy(Masked):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x) + torch.rand(16)
            return x.sum()

    graph = rx.capture(Noisy(16), (torch.ones(64, 16),))
    assert len([node.name for node in graph.operations if node.name.endswith("rand")]) == 3


def test_the_gradients_of_a_tied_parameter_are_added_where_the_second_one_is_made():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 8, bias=False))
    model[2].weight = model[0].weight
    names = [node.name for node in rx.capture(model, (torch.ones(2, 8),)).operations]
    assert "0 gradient of weight" in names
    assert not [name for name in names if name.startswith("add")]


def test_the_sums_of_a_dense_block_are_joined_by_the_gradient_that_they_add():
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.BatchNorm2d(4 * (i + 1)) for i in range(4))
            self.layers = nn.ModuleList(nn.Conv2d(4 * (i + 1), 4, 1) for i in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = [x]
            for norm, layer in zip(self.norms, self.layers, strict=True):
                parts.append(layer(norm(torch.cat(parts, 1))))
            return torch.cat(parts, 1).square().sum()

    def sums(contract: bool) -> list[int]:
        graph = rx.capture(Dense(), (torch.ones(2, 4, 4, 4),), contract=contract)
        added = [node for node in graph.operations if node.phase == "backward" and "add" in node.name]
        return [len(node.default.outputs) for node in added]

    assert sums(False) == [1] * 6  # the input needs no gradient: 3 + 2 + 1 pairs of layers
    assert sums(True) == [3, 2, 1]


def test_adding_a_parameter_runs_in_place_in_the_producer_of_what_it_is_added_to():
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.shift = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.shift + self.layer(x)).sum()

    assert forward_names(Shifted(), torch.ones(2, 4)) == ["layer linear + add", "sum"]


def test_a_sum_of_two_values_stays_an_operation():
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            return (y + self.second(y)).sum()

    assert forward_names(Residual(), torch.ones(2, 4)) == ["first linear", "second linear", "add", "sum"]
