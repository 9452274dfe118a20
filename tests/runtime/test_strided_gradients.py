"""A gradient comes expanded, permuted or sliced, and goes to the kernels as plain PyTorch gives it to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from tests.runtime.heads import Heads, X, differing, gradients, keeping, recomputing
from tests.runtime.kinds_of_models import Made
from tests.runtime.random_schedules import checkpoint_all, solution_of

LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda y: y.sum(),
    "mean": lambda y: y.mean(),
    "sum of rows": lambda y: y.sum(-1).sin().sum(),
    "transposed": lambda y: (y.transpose(0, -1) @ torch.linspace(-1, 1, 3 * y.shape[0]).view(-1, 3)).sin().sum(),
    "permuted": lambda y: y.permute(*reversed(range(y.dim()))).contiguous().sin().sum(),
    "a slice": lambda y: y[:, :3].sum(),
    "every other": lambda y: (y[..., ::2] * 2).sum(),
    "used twice": lambda y: y.sum() + y.sin().sum(),
}


def evaluated(model: nn.Module, x: torch.Tensor) -> nn.Module:
    model(x)
    return model.eval()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.into(self.norm(x)).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts)
        return x + self.out(mixed.transpose(1, 2).reshape(2, 6, 16))


def convolutions() -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.MaxPool2d(2))


ROWS, PICTURES, WORDS = torch.randn(32, 16), torch.randn(2, 3, 12, 12), torch.randn(2, 6, 16)
CASES: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "batch norm": lambda: (nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)), ROWS),
    "batch norm in evaluation": lambda: (
        evaluated(nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 16), nn.BatchNorm1d(16)), ROWS),
        ROWS,
    ),
    "layer norm": lambda: (nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8)), WORDS),
    "group norm": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), PICTURES),
    "convolutions": lambda: (convolutions(), PICTURES),
    "channels last": lambda: (
        convolutions().to(memory_format=torch.channels_last),
        PICTURES.to(memory_format=torch.channels_last),
    ),
    "attention": lambda: (Attention(), WORDS),
    "transposed convolution": lambda: (
        Made(lambda s, x: s.c(x.transpose(1, 2)).transpose(1, 2), c=nn.Conv1d(16, 6, 3)),
        WORDS,
    ),
    "in place": lambda: (nn.Sequential(nn.Linear(16, 8), nn.ReLU(inplace=True), nn.Dropout(0.2)), ROWS),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_plain_pytorch_to_the_last_bit(case):
    for seed in range(2):
        torch.manual_seed(seed)
        model, x = CASES[case]()
        mine = keeping(model, x)
        for name, loss in LOSSES.items():
            assert differing(gradients(mine, (x,), loss), gradients(model, (x,), loss)) == [], (name, seed)


@pytest.fixture(scope="module", params=[0, 7])
def heads(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    return recomputing(Heads(), X, seed=request.param)


@pytest.mark.parametrize("name", LOSSES)
def test_they_are_where_values_and_gradients_are_computed_again(name, heads):
    for used in (("first", "features"), ("third",)):

        def loss(output: Any, used: tuple[str, ...] = used) -> torch.Tensor:
            return torch.stack([LOSSES[name](output[key]) for key in used]).sum()

        assert differing(gradients(heads, (X,), loss), gradients(heads.rematerialization.model, (X,), loss)) == []


def test_other_implementations_get_the_strides_that_they_were_made_for():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5))
    graph = rx.capture(model, (PICTURES,), implementations="exact")
    solution = rx.solve(graph, "80%", strategy="monet", time_limit=5)
    assert solution.plan is not None
    assert any(getattr(statement, "implementation", 1) > 1 for statement in solution.plan.statements)
    solution = dataclasses.replace(solution, budget=2**62)  # workspace is not measured here
    mine = rx.rematerialize(model, (PICTURES,), solution=solution)
    for loss in LOSSES.values():
        assert differing(gradients(mine, (PICTURES,), loss), gradients(model, (PICTURES,), loss)) == []


def test_the_callers_gradient_is_never_written_to():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(inplace=True))
    mine: Any = keeping(model, ROWS)
    for given in (torch.randn(16, 32).t(), torch.randn(32, 1).expand(32, 16), torch.randn(32, 32)[:, ::2]):
        before = given.clone()
        mine(ROWS).backward(given)
        assert torch.equal(given, before)


def test_an_expanded_gradient_takes_no_more_memory_than_predicted():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64)), torch.randn(256, 64)
    graph = rx.profile(rx.capture(model, (x,)), model, (x,), device="cpu", repeats=1)
    mine: Any = rx.rematerialize(model, (x,), solution=solution_of(checkpoint_all(graph)))
    predicted = mine.rematerialization.solution.plan.peak
    mine(x).sum().backward()
    model.zero_grad()
    with CpuMeter() as meter, meter.section():
        mine(x).sum().backward()
    assert graph.resident_bytes + meter.readings[0].highest <= predicted
