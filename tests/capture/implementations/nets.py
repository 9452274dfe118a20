"""Small nets with every pattern that has alternatives, and schedules of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan

TOGETHER = (  # what one writes and another reads
    ("with places", "from places"),
    ("maxima alone", "from the input", "from places apart"),
    ("with state", "drawn again"),
    ("log sum exp alone", "from log sum exp", "left out"),
)


class Classifier(nn.Module):
    """A body, and cross-entropy."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.body(x), y)


class Block(nn.Module):
    """A residual block."""

    def __init__(self, source: int, target: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(source, target, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(target, target, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(target) for _ in range(3))
        self.beside = nn.Conv2d(source, target, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + self.norms[2](self.beside(x))).relu()


class Attention(nn.Module):
    """Self-attention and a layer normalization."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.mix, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.norm(x + self.out(found.transpose(1, 2).reshape(batch, length, width)))


class Parallel(nn.Module):
    """Two convolutions of the same tensor, added: their weight gradients are one operation."""

    def __init__(self, source: int, target: int) -> None:
        super().__init__()
        self.sides = nn.ModuleList(nn.Conv2d(source, target, size, padding=size // 2) for size in (3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sides[0](x) + self.sides[1](x)


def pooled(size: int = 24, batch: int = 9) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Convolution, normalization, ReLU and max pooling; then ReLU6 and dropout."""
    torch.manual_seed(0)
    model = Classifier(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 16, 3, padding=1, groups=4),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return model, (torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,)))


def residual(size: int = 24, batch: int = 9) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A small residual net."""
    torch.manual_seed(0)
    model = Classifier(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        Block(8, 8, 1),
        Block(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return model, (torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,)))


def attentive(length: int = 12, batch: int = 3) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers of attention with layer normalization, dropout and ReLU."""
    torch.manual_seed(0)
    model = Classifier(
        Attention(16, 2), nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.1), Attention(16, 2), nn.Flatten(),
        nn.Linear(16 * length, 10),
    )  # fmt: skip
    return model, (torch.randn(batch, length, 16), torch.randint(0, 10, (batch,)))


def parallel(size: int = 16, batch: int = 9) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Convolutions side by side."""
    torch.manual_seed(0)
    model = Classifier(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), Parallel(6, 8), nn.ReLU(), Parallel(8, 4), nn.Flatten(),
        nn.Linear(4 * size**2, 10),
    )  # fmt: skip
    return model, (torch.randn(batch, 3, size, size), torch.randint(0, 10, (batch,)))


NETS = {"pooled": pooled, "residual": residual, "attentive": attentive}


def preferring(graph: Graph, *names: str) -> Callable[[int, int], int]:
    """The choice of the implementation with one of these names, wherever there is one."""

    def choose(k: int, count: int) -> int:
        ways = [way.name for way in graph.operations[k].implementations]
        return next((ways.index(name) + 1 for name in names if name in ways), 1)

    return choose


def plan_by(graph: Graph, choose: Callable[[int, int], int]) -> Plan:
    """The plan that runs each operation once, by the implementation that ``choose`` takes of an operation.

    An optional operation runs in its place if something reads what it writes; where the choice lacks a value that
    another operation's choice reads, it falls back on the default implementations.

    Args:
        graph: with alternatives.
        choose: from an operation and the number of its implementations to one of them, counted from 1.
    """
    codes = {k: choose(k, len(node.implementations)) for k, node in enumerate(graph.operations)}
    for k, node in enumerate(graph.operations):
        if any(graph.producer[v] == k for v in node.implementations[codes[k] - 1].inputs):
            codes[k] = 1  # reads what an earlier run of itself saved
    while True:
        read = {v for k in codes for v in graph.inputs(k, codes[k])}
        running = [k for k in codes if not graph.operations[k].optional or read & set(graph.outputs(k, codes[k]))]
        written = {v for k in running for v in graph.outputs(k, codes[k])}
        wanted = {v for k in running for v in graph.inputs(k, codes[k])} | set(
            map(int, np.flatnonzero(graph.persistent))
        )
        if not wanted - written:
            return Plan.from_sequence(graph, [(0, k, codes[k]) for k in running])
        for v in wanted - written:
            for k in {int(graph.producer[v]), *graph.readers[v]}:
                codes[k] = 1
