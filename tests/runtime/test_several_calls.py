"""Several calls of a model before one backward pass: gradients of plain PyTorch, or a warning at the second call."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx


class Reused(nn.Module):
    """A layer that one pass uses three times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(32, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        return self.last(x)


def once() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def low() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16)


def backward_through_both(run: nn.Module, first: torch.Tensor, second: torch.Tensor) -> None:
    loss = run(first).float().square().sum() + run(second).float().square().sum()
    loss.backward()


def in_one_autocast(run: nn.Module, first: torch.Tensor, second: torch.Tensor) -> None:
    with low():
        outputs = run(first), run(second)
    (outputs[0].float().square().sum() + outputs[1].float().square().sum()).backward()


def in_two(run: nn.Module, first: torch.Tensor, second: torch.Tensor) -> None:
    with low():
        one = run(first)
    with low():
        other = run(second)
    (one.float().square().sum() + other.float().square().sum()).backward()


def backward_for_each(run: nn.Module, first: torch.Tensor, second: torch.Tensor) -> None:
    outputs = run(first), run(second)
    for output in outputs:
        output.square().sum().backward()


def one_after_the_other(run: nn.Module, first: torch.Tensor, second: torch.Tensor) -> None:
    for x in (first, second):
        with low():
            output = run(x)
        output.float().square().sum().backward()


Steps = Callable[[nn.Module, torch.Tensor, torch.Tensor], None]


def told(kind: Callable[[], nn.Module], steps: Steps, autocast: bool = False) -> tuple[bool, list[str]]:
    """Whether gradients are those of plain PyTorch, and the warnings of the steps."""
    torch.manual_seed(0)
    model, inputs = kind(), (torch.randn(16, 32), torch.randn(16, 32))
    steps(model, *inputs)
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        planned = rx.rematerialize(model, inputs[:1], budget="100%")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps(planned, *inputs)
        steps(planned, *inputs)
    assert all(warning.filename == __file__ for warning in caught)
    model.zero_grad()
    steps(planned, *inputs)
    pairs = zip(expected, [parameter.grad for parameter in model.parameters()], strict=True)
    return all(torch.equal(*pair) for pair in pairs), [str(warning.message) for warning in caught]  # type: ignore[arg-type]


def test_one_backward_pass_through_two_calls_gives_the_gradients_of_plain_pytorch():
    assert told(once, backward_through_both) == (True, [])


def test_two_calls_in_one_autocast_differ_and_the_second_says_so_once():
    equal, words = told(once, in_one_autocast, autocast=True)
    assert not equal
    (text,) = words
    assert "if both calls are in one torch.autocast, plain PyTorch adds the gradients of a weight in bfloat16" in text


def test_a_layer_that_one_pass_uses_several_times_is_named_at_the_second_call():
    equal, words = told(Reused, backward_through_both)
    assert not equal
    (text,) = words
    assert "one pass uses 'layer.weight' several times" in text


@pytest.mark.parametrize(
    ("kind", "steps", "autocast"), [(once, in_two, True), (Reused, in_two, True), (Reused, backward_for_each, False)]
)
def test_the_advice_gives_the_gradients_of_plain_pytorch(kind, steps, autocast):
    assert told(kind, steps, autocast)[0]


def test_so_does_autocast_without_its_cache():
    def steps(run: nn.Module, first: torch.Tensor, second: torch.Tensor) -> None:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            outputs = run(first), run(second)
        (outputs[0].float().square().sum() + outputs[1].float().square().sum()).backward()

    torch.manual_seed(0)
    model, inputs = once(), (torch.randn(16, 32), torch.randn(16, 32))
    planned = rx.rematerialize(model, inputs[:1], budget="100%")
    found: list[list[Any]] = []
    for run in (model, planned):
        steps(run, *inputs)
        found.append([parameter.grad for parameter in model.parameters()])
        model.zero_grad()
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.parametrize(("kind", "autocast"), [(once, True), (Reused, True)])
def test_calls_one_after_the_other_are_told_nothing(kind, autocast):
    assert told(kind, one_after_the_other, autocast) == (True, [])


def test_a_copy_does_not_wait_for_the_passes_of_the_model():
    torch.manual_seed(0)
    planned = rx.rematerialize(Reused(), (torch.randn(16, 32),), budget="100%")
    output = planned(torch.randn(16, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy.deepcopy(planned)(torch.randn(16, 32)).sum().backward()
    output.sum().backward()
