"""Profiling measures workspace and time, and says when it cannot."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import ExecutionError

X = torch.ones(2, 3, 16, 16)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(1568, 4)
    )


def test_profile_keeps_the_structure_and_finds_workspace(model):
    graph = rx.capture(model, (X,))
    profiled = rx.profile(graph, model, (X,), device="cpu", repeats=1)
    assert profiled.values == graph.values
    assert [node.name for node in profiled.operations] == [node.name for node in graph.operations]
    assert all(node.default.cost > 0 for node in profiled.operations)
    convolution = next(node for node in profiled.operations if node.name.startswith("0 conv2d"))
    assert convolution.default.workspace > 0  # a reordered copy of the weight or the output


def test_profile_leaves_the_model_and_the_random_state_alone(model):
    before, state = {name: t.clone() for name, t in model.state_dict().items()}, torch.get_rng_state()
    rx.profile(rx.capture(model, (X,)), model, (X,), device="cpu", repeats=1)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_progress_counts_every_operation_of_every_run(model):
    graph, seen = rx.capture(model, (X,)), []
    rx.profile(graph, model, (X,), device="cpu", repeats=2, on_progress=lambda *now: seen.append(now), refresh=True)
    assert seen == [(done + 1, 4 * graph.n) for done in range(4 * graph.n)]


def test_a_cancelled_profile_names_where_it_stopped(model):
    with pytest.raises(ExecutionError, match="cancelled after '0 conv2d'"):
        rx.profile(rx.capture(model, (X,)), model, (X,), device="cpu", cancelled=lambda: True, refresh=True)


def test_a_graph_of_another_batch_is_refused(model):
    with pytest.raises(ExecutionError, match=r"'0 conv2d' has 6272 bytes, but 12544 bytes here: capture the model"):
        rx.profile(rx.capture(model, (X[:1],)), model, (X,), device="cpu")


def test_a_device_that_is_not_there_is_refused(model):
    with pytest.raises(ExecutionError, match="'tpu' is not a device"):
        rx.profile(rx.capture(model, (X,)), model, (X,), device="tpu")
