"""Models with several outputs, and steps in which only some of them are used."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

import remat_explorer as rx
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of

Loss = Callable[[Any], torch.Tensor]


class Heads(nn.Module):
    """A trunk with batch norm and dropout, three heads, and the features themselves, in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 24), nn.BatchNorm1d(24), nn.ReLU())
        self.drop, self.second = nn.Dropout(0.2), nn.Linear(24, 3)
        self.first = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 4))
        self.third = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 5))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.trunk(x)
        h = self.drop(features)
        found = {"first": self.first(h), "second": self.second(h), "third": self.third(h), "features": features}
        return {**found, "class": found["first"].argmax(1)}


X = torch.randn(32, 16)
NAMES = ("first", "second", "third", "features")


def keeping(model: nn.Module, *args: Any, **options: Any) -> Any:
    solution = solution_of(checkpoint_all(rx.capture(model, args, **options)))
    return rx.rematerialize(model, args, solution=solution)


def recomputing(model: nn.Module, *args: Any, seed: int = 0) -> Any:
    """The model by a plan that keeps little, and makes gradients again."""
    graph = rx.capture(model, args)
    schedules = (random_schedule(graph, seed + more, dropped=0.8, flipped=0.05) for more in range(5))
    schedule = max(schedules, key=lambda one: one.recomputations)
    assert schedule.recomputations > 5
    return rx.rematerialize(model, args, solution=solution_of(schedule))


def gradients(model: Any, args: Iterable[Any], loss: Loss) -> dict[str, torch.Tensor | None]:
    """What one step leaves in ``.grad``, None where it leaves None, from a seed; buffers are put back."""
    buffers = copy.deepcopy(dict(model.named_buffers()))
    model.zero_grad()
    torch.manual_seed(3)
    loss(model(*args)).backward()
    for name, content in buffers.items():
        model.get_buffer(name).copy_(content)
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def differing(found: dict[str, torch.Tensor | None], plain: dict[str, torch.Tensor | None]) -> list[str]:
    """The names whose gradients are not equal bit for bit, the sign of zero included."""
    assert found.keys() == plain.keys()
    bits = [[None if g is None else g.view(torch.int32).tolist() for g in (found[name], plain[name])] for name in found]
    return [name for name, (mine, theirs) in zip(found, bits, strict=True) if mine != theirs]
