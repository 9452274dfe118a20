"""The strategy runs again what torch.utils.checkpoint.checkpoint_sequential runs again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint_sequential

import remat_explorer as rx
from remat_explorer.solvers.strategies.checkpoint_sequential import checkpoint_sequential_candidates

LAYERS = 6


class Sum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


class Counting(TorchDispatchMode):
    """Counts what runs, by its operator."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func.overloadpacket).removeprefix("aten.")
        self.runs[name] += 1
        return func(*args, **(kwargs or {}))


class Sine(nn.Module):
    """Keeps its input for the backward pass, so that a segment's last output is not needed again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


@pytest.mark.parametrize("segments", [1, 2, 3, 4, 6])
def test_as_many_layers_run_again(segments):
    members = [layer for k in range(LAYERS) for layer in (nn.Linear(8 + k, 9 + k), Sine())] + [Sum()]
    x = torch.ones(4, 8, requires_grad=True)
    with Counting() as counting:
        checkpoint_sequential(members, segments, x, use_reentrant=False).backward()
    graph = rx.capture(nn.Sequential(*members), (x.detach(),), contract=False)
    (candidate,) = checkpoint_sequential_candidates(graph, segments)
    names = [node.name.split(" ")[-1] for node in graph.operations]
    again = Counter(names[k] for t, k in zip(*np.nonzero(candidate.schedule.R), strict=True) if t != k)
    assert counting.runs["addmm"] == LAYERS + again["linear"]
