"""Contraction loses no schedule: the optimum of the contracted graph is that of the graph with every operation."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.solvers import checkpoint_all_peak
from tests.thorough import thorough_but


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.ReLU())]
    return nn.Sequential(*layers, Total()), torch.ones(32, 16)


class Total(nn.Module):
    """A scalar, so that the model has a loss."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


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


def dense() -> tuple[nn.Module, torch.Tensor]:
    return Dense(), torch.ones(4, 3, 8, 8)


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


def tied() -> tuple[nn.Module, torch.Tensor]:
    return Tied(), torch.zeros(16, 8, dtype=torch.long)


MODELS = {"perceptron": perceptron, "dense": dense, "tied": tied}


@pytest.mark.parametrize("name", thorough_but(MODELS, "perceptron", "dense"))
def test_the_optimum_within_a_budget_is_that_of_the_uncontracted_graph(name, beside):
    model, x = MODELS[name]()
    whole, joined = (beside(rx.capture(model, (x,), contract=contract)) for contract in (False, True))
    assert joined.n < whole.n
    constants = whole.total_cost - joined.total_cost  # made once, before the plan
    kept = joined.resident_bytes - whole.resident_bytes
    solved = 0
    for share in (0.65, 0.75, 0.85, 0.95):
        budget = int(share * checkpoint_all_peak(whole))
        first, second = rx.solve(whole, budget), rx.solve(joined, budget + kept)
        assert first.status == second.status != "feasible"
        if first.cost is not None and second.cost is not None:
            assert second.cost + constants == pytest.approx(first.cost, rel=1e-9)
            solved += 1
    assert solved


@pytest.mark.parametrize("name", thorough_but(MODELS, "perceptron", "dense"))
def test_the_optimum_with_overwriting_is_that_of_the_uncontracted_graph_too(name):
    model, x = MODELS[name]()
    whole, joined = (rx.capture(model, (x,), contract=contract) for contract in (False, True))
    constants, kept = whole.total_cost - joined.total_cost, joined.resident_bytes - whole.resident_bytes
    assert checkpoint_all_peak(joined) == checkpoint_all_peak(whole) + kept
    solved = 0
    for share in (0.75, 0.85, 0.9, 0.95):
        budget = int(share * checkpoint_all_peak(whole))
        first, second = rx.solve(whole, budget), rx.solve(joined, budget + kept)
        assert first.status == second.status != "feasible"
        if first.cost is not None and second.cost is not None:
            assert second.cost + constants == pytest.approx(first.cost, rel=1e-9)
            solved += 1
    assert solved >= 2


@pytest.mark.parametrize("name", MODELS)
def test_the_smallest_budget_is_that_of_the_uncontracted_graph(name, beside):
    model, x = MODELS[name]()
    whole, joined = (beside(rx.capture(model, (x,), contract=contract)) for contract in (False, True))
    kept = joined.resident_bytes - whole.resident_bytes
    assert rx.minimum_budget(joined).known_feasible <= rx.minimum_budget(whole).known_feasible + kept


@pytest.mark.parametrize("name", MODELS)
def test_splitting_a_convolution_or_joining_operations_changes_no_gradient(name):
    model, x = MODELS[name]()
    for contract, split in ((False, True), (True, False), (True, True)):
        graph = rx.capture(model, (x,), contract=contract, split_convolution_backward=split)
        measured = rx.measure(rx.solve(graph, "100%", strategy="checkpoint-all"), model, (x,), device="cpu", repeats=1)
        assert measured.equal
