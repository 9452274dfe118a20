"""torch's sac_milp on our profile: a transformer of four layers at three budgets, and what it is fed with."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.checker import check_schedule
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.runtime.sac_milp import ModuleMemory, modules_of, tradeoff
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.base import checkpoint_all
from tests.thorough import thorough_but


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed_forward(x)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(Layer(16) for _ in range(4)), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x).square().mean()


@pytest.fixture(scope="module")
def transformer() -> Graph:
    return rx.capture(Transformer(), (torch.randn(16, 32, 16),))


@pytest.mark.parametrize("share", thorough_but([0.85, 0.65, 0.45], 0.65, 0.45))
def test_a_transformer_of_four_layers_keeps_its_budget(transformer, share):
    budget = int(share * checkpoint_all_peak(transformer))
    solution = solve(transformer, budget, "sac-milp", time_limit=4)
    assert solution.schedule is not None
    assert check_schedule(solution.schedule, budget).cost > transformer.total_cost
    again = {k for t, k, _ in solution.schedule.sequence if t != k}
    assert not any(transformer.is_backward[k] for k in again)


def test_a_budget_that_its_program_cannot_keep_has_no_schedule(transformer):
    solution = solve(transformer, int(0.2 * checkpoint_all_peak(transformer)), "sac-milp", time_limit=4)
    assert solution.schedule is None
    assert solution.limit


def test_modules_are_those_of_the_code_without_lists(transformer):
    modules = {module.name: module for module in modules_of(transformer)}
    assert "model.layers" not in modules
    assert not modules["model.layers.2"].is_leaf
    assert modules["model.layers.2.norm"].is_leaf
    assert set(modules["model.layers.2.feed_forward"].operations) < set(modules["model.layers.2"].operations)
    assert next(iter(modules)) == "model"


def test_the_memory_of_modules_adds_up_to_that_of_keeping_everything(transformer):
    memory = ModuleMemory.of(transformer)
    held = checkpoint_all(transformer).U.max(axis=1) - transformer.resident_bytes
    end = int(transformer.is_backward.argmax())
    assert memory.saved[end] <= held[end]
    assert (memory.temporary[end:] + memory.stays[end:] <= held[end:] + memory.saved[-1]).all()
    assert memory.saved[-1] + memory.temporary.max() + memory.stays[-1] >= held.max()


def test_the_tradeoff_is_the_largest_of_its_lines_and_ends_with_everything():
    slopes, intercepts = tradeoff([4.0, 1.0, 3.0], [1.0, 2.0, 1.0])
    values = [max(s * r + i for s, i in zip(slopes, intercepts, strict=True)) for r in (0.0, 0.5, 0.875, 1.0)]
    assert values == pytest.approx([0, 0.25, 0.5, 1])


def test_without_pulp_it_says_what_to_install(transformer, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed._tools.sac_ilp", None)
    with pytest.raises(SolverError, match="pip install 'pulp<4'"):
        solve(transformer, "80%", "sac-milp")


@pytest.mark.parametrize("share", [0, 1.5, "half"])
def test_a_wrong_share_is_quoted(transformer, share):
    with pytest.raises(SolverError, match="memory_budget is"):
        solve(transformer, "80%", "sac-milp", memory_budget=share)
