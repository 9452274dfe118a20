"""Weight gradients come before input gradients, and operations are joined where no schedule worth having is lost."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import tracing
from remat_explorer.graph import Graph
from remat_explorer.solvers import checkpoint_all_peak
from tests.runtime.kinds_of_models import Made
from tests.solvers.exhaustive import frontier_optimum
from tests.thorough import thorough_but

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}


def narrow(width: int) -> nn.Module:
    """Two layers under autocast, so that the cast weight of the second one is a value that its input gradient reads."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers(x).float()

    return Made(forward, layers=nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 64)))


def perceptron(activation: str = "tanh", hidden: int = 2, bias: bool = True) -> nn.Sequential:
    layers = [layer for _ in range(hidden) for layer in (nn.Linear(64, 64, bias=bias), ACTIVATIONS[activation]())]
    return nn.Sequential(*layers, nn.Linear(64, 8, bias=bias))


def captured(model: nn.Module, batch: int = 512, contract: bool = True) -> Graph:
    width = next(model.parameters()).shape[1]
    return rx.capture(model, (torch.ones(batch, width),), loss=lambda y: y.pow(2).mean(), contract=contract)


def as_traced(monkeypatch: pytest.MonkeyPatch, model: nn.Module, batch: int = 512) -> Graph:
    with monkeypatch.context() as patch:
        patch.setattr(tracing, "weight_gradients_first", lambda found: None)
        return captured(model, batch)


@pytest.mark.parametrize("contract", [False, True])
def test_the_gradients_of_weight_and_bias_come_before_the_input_gradient(contract):
    graph = captured(perceptron(hidden=1), contract=contract)
    input_gradient = [node.name for node in graph.operations].index("2 mm")
    writes = {graph.values[v].name for k in range(input_gradient) for v in graph.outputs(k)}
    assert {"2.weight.grad", "2.bias.grad"} <= writes


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
    inputs = (torch.randn(512, 64),)
    assert rx.measure(solution, model, inputs, loss=lambda y: y.pow(2).mean(), device="cpu", repeats=1).equal


@pytest.mark.parametrize("batch", [16, 512])
@pytest.mark.parametrize("name", ["perceptron", "narrow", "wide"])
def test_keeping_everything_never_takes_more_than_as_traced(name, batch, monkeypatch):
    model = {"perceptron": perceptron("gelu"), "narrow": narrow(16), "wide": narrow(256)}[name]
    assert checkpoint_all_peak(captured(model, batch)) <= checkpoint_all_peak(as_traced(monkeypatch, model, batch))


def test_an_input_gradient_that_reads_a_large_cast_weight_is_not_passed():
    """It would keep the cast weight until after the weight gradient; of a small one, that is worth it."""
    for batch, is_passed in ((4, False), (512, True)):
        graph = captured(narrow(16), batch)
        (cast,) = (v for v, value in enumerate(graph.values) if value.name.endswith("2 cast (2)"))
        (input_gradient,) = (k for k in graph.readers[cast] if graph.is_backward[k])
        gradient = [value.name for value in graph.values].index("layers.2.weight.grad")
        (weight,) = graph.inputs(int(graph.producer[gradient]))
        assert (graph.producer[weight] < input_gradient) == is_passed


def forward_names(model: nn.Module, x: torch.Tensor) -> list[str]:
    return [node.name for node in rx.capture(model, (x,)).operations if node.phase == "forward"]


def test_activations_run_in_place_in_their_only_producer_unless_the_backward_pass_reads_their_input():
    model = nn.Sequential(nn.Linear(4, 4), nn.Hardtanh(), nn.Linear(4, 4), nn.ReLU6(), nn.Linear(4, 4), nn.GELU())
    expected = ["0 linear + hardtanh", "2 linear + hardtanh", "4 linear", "5 gelu"]
    assert forward_names(model, torch.ones(2, 4)) == expected


def test_an_activation_whose_input_another_operation_reads_stays_an_operation_and_keeps_nothing_beside_it():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return nn.functional.hardtanh(y).sum() + y.square().sum()

    graph = rx.capture(Made(forward, layer=nn.Linear(4, 4)), (torch.ones(2, 4),))
    assert graph.operations[0].name == "layer linear"
    (backward,) = (node for node in graph.operations if "hardtanh_backward" in node.name)
    assert "layer linear" in [graph.values[v].name for v in backward.default.inputs]


def test_a_small_bias_gradient_joins_the_weight_gradient_and_a_large_one_does_not():
    def names(width: int) -> list[str]:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, width), nn.ReLU())
        return [node.name for node in rx.capture(model, (torch.ones(2, 8),)).operations]

    assert "1 gradient of bias, weight" in names(16)
    assert "1 gradient of bias, weight" not in names(2**15)


def masked(mask: Callable[[], torch.Tensor]) -> nn.Module:
    """Attention-like layers that each make a mask that nothing else depends on."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) + mask()
        return x.sum()

    return Made(forward, layers=nn.ModuleList(nn.Linear(16, 16) for _ in range(3)))


@pytest.mark.parametrize(("batch", "is_small"), [(64, True), (2, False)])
def test_constants_that_are_small_beside_what_they_meet_are_made_once_and_stay(batch, is_small):
    model, x = masked(lambda: torch.arange(16).float()), torch.ones(batch, 16)
    graph, plain = (rx.capture(model, (x,), contract=contract) for contract in (True, False))
    assert ([node.name for node in graph.operations if "arange" in node.name] == []) == is_small
    assert graph.resident_bytes == plain.resident_bytes + 16 * 4 * is_small


def test_random_tensors_are_neither_shared_nor_kept():
    graph = rx.capture(masked(lambda: torch.rand(16)), (torch.ones(64, 16),))
    assert len([node.name for node in graph.operations if node.name.endswith("rand")]) == 3


def test_the_sums_of_a_dense_block_are_joined_by_the_gradient_that_they_add():
    def sums(contract: bool) -> list[int]:
        graph = rx.capture(Dense(), (torch.ones(4, 3, 8, 8),), contract=contract)
        added = [node for node in graph.operations if node.phase == "backward" and "add" in node.name]
        return [len(node.default.outputs) for node in added]

    assert sums(False) == [1] * 6  # 3 + 2 + 1 pairs of layers
    assert sums(True) == [3, 2, 1]


def test_adding_a_parameter_runs_in_place_in_the_producer_of_what_it_is_added_to_and_clones_are_no_operations():
    shifted = Made(lambda s, x: (s.shift + s.layer(x)).sum(), layer=nn.Linear(4, 4), shift=nn.Parameter(torch.ones(4)))
    assert forward_names(shifted, torch.ones(2, 4)) == ["layer linear + add", "sum"]
    copying = Made(lambda s, x: s.layer(x).clone().detach_().sum() + s.layer(x.clone()).sum(), layer=nn.Linear(4, 4))
    assert not [name for name in forward_names(copying, torch.ones(2, 4)) if "clone" in name]


class Dense(nn.Module):
    """A dense block: each layer reads all earlier ones, so that gradients fan in by many sums."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4 + 4 * i) for i in range(3))
        self.convolutions = nn.ModuleList(nn.Conv2d(4 + 4 * i, 4, 3, padding=1, bias=False) for i in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.stem(x)]
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            parts.append(convolution(functional.relu(norm(torch.cat(parts, 1)))))
        return torch.cat(parts, 1).square().mean()


class Tied(nn.Module):
    """Two attention layers that mask alike, and an output layer that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 16)
        self.layer = nn.Linear(16, 16)
        self.head = nn.Linear(16, 64, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for _ in range(2):
            mask = torch.ones(8, 8).tril().log()
            x = x + torch.softmax(x @ x.transpose(1, 2) + mask, -1) @ self.layer(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), words.flatten())


def chain() -> nn.Module:
    layers = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.ReLU())))
    return Made(lambda s, x: s.layers(x).sum(), layers=layers)


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "chain": lambda: (chain(), torch.ones(32, 16)),
    "dense": lambda: (Dense(), torch.ones(4, 3, 8, 8)),
    "tied": lambda: (Tied(), torch.zeros(16, 8, dtype=torch.long)),
}
CASES = [(name, overwriting) for name in MODELS for overwriting in (False, True)]


@pytest.mark.parametrize(("name", "overwriting"), thorough_but(CASES, ("chain", False), ("dense", True)))
def test_smallest_budget_and_optima_within_budgets_are_those_of_the_uncontracted_graph(name, overwriting, beside):
    model, x = MODELS[name]()
    whole, joined = (rx.capture(model, (x,), contract=contract) for contract in (False, True))
    if not overwriting:
        whole, joined = beside(whole), beside(joined)
    assert joined.n < whole.n
    constants = whole.total_cost - joined.total_cost  # made once, before the plan
    kept = joined.resident_bytes - whole.resident_bytes
    if overwriting:
        assert checkpoint_all_peak(joined) == checkpoint_all_peak(whole) + kept
    else:
        assert rx.minimum_budget(joined).known_feasible <= rx.minimum_budget(whole).known_feasible + kept
    solved = 0
    for share in (0.75, 0.85, 0.9, 0.95) if overwriting else (0.65, 0.75, 0.85, 0.95):
        budget = int(share * checkpoint_all_peak(whole))
        first, second = rx.solve(whole, budget), rx.solve(joined, budget + kept)
        assert first.status == second.status != "feasible"
        if first.cost is not None and second.cost is not None:
            assert second.cost + constants == pytest.approx(first.cost, rel=1e-9)
            solved += 1
    assert solved >= (2 if overwriting else 1)


@pytest.mark.parametrize("name", thorough_but(MODELS, "dense"))
def test_splitting_a_convolution_or_joining_operations_changes_no_gradient(name):
    model, x = MODELS[name]()
    for contract, split in ((False, True), (True, False), (True, True)):
        graph = rx.capture(model, (x,), contract=contract, split_convolution_backward=split)
        measured = rx.measure(rx.solve(graph, "100%", strategy="checkpoint-all"), model, (x,), device="cpu", repeats=1)
        assert measured.equal
