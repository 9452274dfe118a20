"""Typed rules and checkpoint-sequential run again what torch.utils.checkpoint runs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import remat_explorer as rx
from remat_explorer.solvers.methods.checkpoint_sequential import checkpoint_sequential_candidates
from tests.solvers.candidates import candidates_of


class Counting(TorchDispatchMode):
    """Counts what runs, by its operator."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.runs[str(func.overloadpacket).removeprefix("aten.")] += 1
        return func(*args, **(kwargs or {}))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.middle, self.down = nn.Linear(width, 24), nn.Linear(24, 20), nn.Linear(20, width + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.middle(self.up(x).sin()).sin()).sin()


class Net(nn.Module):
    """A checkpoint around those of its blocks that ``wrapped`` names."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(8 + k) for k in range(4))
        self.wrapped = lambda i: False
        self.policy: Callable[[], Any] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, block in enumerate(self.blocks):
            if self.wrapped(i):
                extra: dict[str, Any] = {} if self.policy is None else {"context_fn": partial(contexts, self.policy)}
                x = checkpoint(block, x, use_reentrant=False, **extra)
            else:
                x = block(x)
        return x.sum()


def contexts(policy: Callable[[], Any]) -> Any:
    """Those of one checkpoint, with a policy of its own."""
    return create_selective_checkpoint_contexts(policy())


def every_second():
    """torchtitan's rule in torch's own words."""
    counts: Counter[bool] = Counter()

    def policy(context, operator, *args, **kwargs):
        if operator == torch.ops.aten.addmm.default:
            counts[context.is_recompute] += 1
            if counts[context.is_recompute] % 2:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return policy


@pytest.mark.parametrize(
    ("strategy", "wrapped", "policy", "options"),
    [
        ("checkpoint-full", lambda i: True, None, {}),
        ("checkpoint-every-n", lambda i: i % 2 == 0, None, {"every_n_layers": 2}),
        ("megatron-block", lambda i: i < 3, None, {"recompute_num_layers": 3}),
        ("save-second-matmul", lambda i: True, every_second, {}),
    ],
)
def test_as_many_products_and_sines_run_again(strategy, wrapped, policy, options):
    net, x = Net(), torch.ones(4, 8, requires_grad=True)
    graph = rx.capture(net, (x.detach(),), contract=False)
    net.wrapped, net.policy = wrapped, policy
    with Counting() as counting:
        net(x).backward()
    *_, candidate = candidates_of(strategy, graph, **options)
    runs = Counter(graph.operations[k].name.split(" ")[1] for t, k, _ in candidate.schedule.sequence if t != k)
    assert counting.runs["addmm"] == 12 + runs["linear"]
    assert counting.runs["sin"] == 12 + runs["sin"]


LAYERS = 6


class Sum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


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
