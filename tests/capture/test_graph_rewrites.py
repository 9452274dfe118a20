"""Gradients come as autograd would leave them: in memory of their own, laid out as the parameter."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.plan import Plan
from remat_explorer.runtime import Interpreter, StepOutcome

X = torch.ones(2, 4)


class Sum(nn.Module):
    """Parameters ``a``, ``b``, ... in an expression that is linear in them, so that their gradients coincide."""

    def __init__(self, shapes: list[tuple[int, ...]], forward: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.ones(shape)) for shape in shapes)
        self.expression = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.expression(x, *self.parts)


MODELS = {
    "one gradient for both": Sum([(2, 4), (2, 4)], lambda x, a, b: (x * (a + b)).sum()),
    "the tangent itself": Sum([()], lambda x, a: x.sum() + a),
    "one number seen as many": Sum([(2, 4)], lambda x, a: (x + a).sum()),
    "many views of one tensor": Sum([(4,), (1, 4)], lambda x, a, b: ((a + b) * x[:1]).sum()),
}


def outcome(model: nn.Module) -> StepOutcome:
    program = trace(model, (X,))
    plan = Plan.from_sequence(program.graph, [(k, k, 1) for k in range(program.graph.n)])
    return Interpreter(plan, program, torch.device("cpu")).run(program.bind(model, (X,)))


@pytest.mark.parametrize("name", MODELS)
def test_writing_to_one_gradient_changes_no_other_tensor(name):
    found = outcome(MODELS[name])
    tensors = [*found.outputs, *found.gradients.values(), *MODELS[name].parameters(), X]
    for first, second in itertools.combinations(tensors, 2):
        assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
    for gradient in found.gradients.values():
        gradient.add_(1)  # fails for a tensor whose entries share memory


@pytest.mark.parametrize("name", MODELS)
def test_copied_gradients_equal_those_of_eager_training(name):
    graph = rx.capture(MODELS[name], (X,))
    measured = rx.measure(rx.solve(graph, "100%"), MODELS[name], (X,), device="cpu", repeats=1)
    assert measured.equal
    assert measured.peak <= measured.budget


def test_a_gradient_has_the_strides_of_its_parameter():
    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 3).t())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.weight @ x.t()).sum()

    model = Transposed()
    gradient = outcome(model).gradients["weight"]
    model(X).backward()
    assert model.weight.grad is not None
    assert gradient.stride() == model.weight.grad.stride() == (1, 3)
    assert torch.equal(gradient, model.weight.grad)
