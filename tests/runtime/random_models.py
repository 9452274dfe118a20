"""Small networks put together at random: fan-out, sums, concatenation, normalization, dropout, shared weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

WIDTH = 6
Step = Callable[[list[torch.Tensor]], torch.Tensor]


class RandomNetwork(nn.Module):
    """Each step reads one or two of the tensors made so far, and makes one more.

    Args:
        seed: decides the structure; weights come from torch's generator.
        images: convolutions on (batch, WIDTH, 5, 5) instead of layers on (batch, WIDTH).
        steps: how many tensors are made.
    """

    def __init__(self, seed: int, images: bool, steps: int) -> None:
        super().__init__()
        self._draw = np.random.default_rng(seed)
        self.images = images
        self.parts = nn.ModuleList()
        self._steps = [self._step(made) for made in range(1, steps + 1)]
        self.scalar = bool(self._draw.random() < 0.5)

    def _layer(self) -> nn.Module:
        shared = [part for part in self.parts if isinstance(part, nn.Linear | nn.Conv2d)]
        if shared and self._draw.random() < 0.15:
            return shared[int(self._draw.integers(len(shared)))]
        return nn.Conv2d(WIDTH, WIDTH, 3, padding=1) if self.images else nn.Linear(WIDTH, WIDTH)

    def _module(self) -> nn.Module:
        choices: list[Callable[[], nn.Module]] = [
            self._layer,
            self._layer,
            nn.Tanh,
            lambda: nn.ReLU(inplace=bool(self._draw.random() < 0.3)),
            nn.ReLU6,
            nn.GELU,
            lambda: nn.Dropout(0.15),
            lambda: nn.BatchNorm2d(WIDTH) if self.images else nn.BatchNorm1d(WIDTH),
            lambda: nn.GroupNorm(2, WIDTH) if self.images else nn.LayerNorm(WIDTH),
            lambda: nn.MaxPool2d(3, 1, 1) if self.images else nn.Softmax(1),
        ]
        return choices[int(self._draw.integers(len(choices)))]()

    def _step(self, made: int) -> Step:
        first, second = (max(0, made - 1 - int(self._draw.geometric(0.5)) + 1) for _ in range(2))
        kind = self._draw.random()
        if kind < 0.12:
            return lambda tensors: tensors[first] + tensors[second]
        if kind < 0.2:
            return lambda tensors: tensors[first] * torch.sigmoid(tensors[second])
        if kind < 0.26:
            return lambda tensors: torch.cat([tensors[first], tensors[second]], 1)[:, ::2]
        if kind < 0.3:
            return lambda tensors: functional.dropout(tensors[first] - tensors[second], 0.2)
        module = self._module()
        self.parts.append(module)
        if isinstance(module, nn.ReLU) and module.inplace:
            return lambda tensors: module(tensors[first] * 1.5)
        return lambda tensors: module(tensors[first])

    def forward(self, x: torch.Tensor) -> Any:
        tensors = [self.parts[0](x) if isinstance(self.parts[0], nn.Linear | nn.Conv2d) else x]
        for step in self._steps:
            tensors.append(step(tensors))
        last = tensors[-1] * 1.0
        return (last.square().mean() + tensors[len(tensors) // 2].mean()) if self.scalar else (last, tensors[-2] + 1)


def random_network(seed: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A network that can be trained, and inputs for it; the same for the same seed."""
    draw = np.random.default_rng(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        images = bool(draw.random() < 0.5)
        for attempt in range(100):
            model = RandomNetwork(1000 * seed + attempt, images, int(draw.integers(3, 12)))
            if not len(model.parts):
                continue
            x = torch.randn(4, WIDTH, 5, 5) if images else torch.randn(4, WIDTH)
            results = model(x)
            results = results if isinstance(results, tuple) else (results,)
            if all(result.requires_grad for result in results):
                return model, (x,)
    raise AssertionError(f"no network of seed {seed} has anything to train")
