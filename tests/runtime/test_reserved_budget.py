"""Training within a budget of reserved bytes, and what is said where none is found."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.allocator import reserved_of
from remat_explorer.errors import ExecutionError, QuantityError, SolutionError


@pytest.fixture(scope="module")
def inputs() -> torch.Tensor:
    return torch.randn(4096, 16)


def perceptron() -> nn.Module:
    """Values of 1 MiB, two of which make a segment of the small pool."""
    hidden = (layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh()))
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), *hidden, nn.Linear(64, 1))


def test_a_model_is_trained_within_reserved_bytes(inputs: torch.Tensor) -> None:
    everything = rx.rematerialize(perceptron(), (inputs,), budget="100%").rematerialization.solution
    assert everything.schedule is not None
    budget = everything.budget  # which holds what is requested
    assert reserved_of(everything.schedule) > budget
    trained = rx.rematerialize(perceptron(), (inputs,), budget=budget, budget_means="reserved", time_limit=10)
    solution = trained.rematerialization.solution
    assert solution.schedule is not None
    assert reserved_of(solution.schedule) <= budget == solution.budget
    trained(inputs).sum().backward()
    assert all(parameter.grad is not None for parameter in trained.parameters())


def test_where_nothing_reserves_so_little_the_error_says_so(inputs: torch.Tensor) -> None:
    least = rx.rematerialize(perceptron(), (inputs,), budget="smallest").rematerialization.solution
    with pytest.raises(ExecutionError, match="no schedule for which PyTorch's allocator reserves at most"):
        rx.rematerialize(perceptron(), (inputs,), budget=least.budget, budget_means="reserved", time_limit=5)


def test_a_given_solution_is_held_against_its_budget(inputs: torch.Tensor) -> None:
    least = rx.rematerialize(perceptron(), (inputs,), budget="smallest").rematerialization.solution
    with pytest.raises(SolutionError, match=r"is predicted to reserve .* above its budget"):
        rx.rematerialize(perceptron(), (inputs,), solution=least, budget_means="reserved")


def test_the_smallest_budget_is_not_one_of_reserved_bytes(inputs: torch.Tensor) -> None:
    with pytest.raises(QuantityError, match="known for requested bytes only"):
        rx.rematerialize(perceptron(), (inputs,), budget="smallest", budget_means="reserved")
