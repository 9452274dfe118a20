"""Small networks put together at random: fan-out, sums, concatenation, normalization, dropout, shared weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

WIDTH = 6
Step = Callable[[list[torch.Tensor]], torch.Tensor]


class RandomNetwork(nn.Module):
    """Each step reads one or two of the tensors made so far, and makes one more; rows of WIDTH, or images of it."""

    def __init__(self, draw: np.random.Generator, images: bool, steps: int) -> None:
        super().__init__()
        self.images, self.parts = images, nn.ModuleList()
        self._steps = [self._step(draw, made) for made in range(1, steps + 1)]
        self.scalar = bool(draw.random() < 0.5)

    def _module(self, draw: np.random.Generator) -> nn.Module:
        shared = [part for part in self.parts if isinstance(part, nn.Linear | nn.Conv2d)]
        of_images: tuple[Callable[[], nn.Module], ...] = (
            lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            lambda: nn.BatchNorm2d(WIDTH),
            lambda: nn.GroupNorm(2, WIDTH),
            lambda: nn.MaxPool2d(3, 1, 1),
        )
        of_rows = lambda: nn.Linear(WIDTH, WIDTH), lambda: nn.BatchNorm1d(WIDTH), lambda: nn.LayerNorm(WIDTH)
        layer, *others = of_images if self.images else (*of_rows, lambda: nn.Softmax(1))
        if shared and draw.random() < 0.15:
            return shared[int(draw.integers(len(shared)))]
        in_place = bool(draw.random() < 0.3)
        others += [layer, layer, nn.Tanh, lambda: nn.ReLU(in_place), nn.ReLU6, nn.GELU, lambda: nn.Dropout(0.15)]
        return others[int(draw.integers(len(others)))]()

    def _step(self, draw: np.random.Generator, made: int) -> Step:
        first, second = (max(0, made - int(draw.geometric(0.5))) for _ in range(2))
        kind = draw.random()
        if kind < 0.12:
            return lambda tensors: tensors[first] + tensors[second]
        if kind < 0.2:
            return lambda tensors: tensors[first] * torch.sigmoid(tensors[second])
        if kind < 0.26:
            return lambda tensors: torch.cat([tensors[first], tensors[second]], 1)[:, ::2]
        if kind < 0.3:
            return lambda tensors: functional.dropout(tensors[first] - tensors[second], 0.2)
        module = self._module(draw)
        self.parts.append(module)
        return lambda tensors: module(tensors[first] * 1.5 if isinstance(module, nn.ReLU) else tensors[first])

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
        x = torch.randn(4, WIDTH, *(5, 5) * images)
        for _ in range(100):
            model = RandomNetwork(draw, images, int(draw.integers(3, 12)))
            if not len(model.parts):
                continue
            results = model(x)
            if all(result.requires_grad for result in (results if isinstance(results, tuple) else (results,))):
                return model, (x,)
    raise AssertionError(f"no network of seed {seed} has anything to train")
