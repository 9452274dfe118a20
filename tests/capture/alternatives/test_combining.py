"""Alternatives of several calls of one operation, chosen together."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace, tracing
from remat_explorer.capture.captured_program import CapturedImplementation
from remat_explorer.capture.implementations.patterns import ImplementationNeeds, _spread
from remat_explorer.capture.storages import Storages
from remat_explorer.checker import replay
from remat_explorer.graph import Graph, Operation
from remat_explorer.graph.rules import MOST_IMPLEMENTATIONS
from remat_explorer.runtime.comparison import compare
from tests.capture.alternatives.nets import NETS, Classifier, parallel, plan_by, preferring
from tests.capture.alternatives.runner import ROADS, Runner, measured

aten = torch.ops.aten


def joined(graph: Graph) -> list[Operation]:
    """The operations of two weight gradients."""
    return [node for node in graph.operations if node.details and node.details.operator.count("weight_gradient") == 2]


def test_weight_gradients_that_are_one_operation_come_in_chunks_together():
    model, args = parallel()
    graph = rx.capture(model, args, implementations=["chunks"])
    assert len(joined(graph)) == 2
    for node in joined(graph):
        names = [way.name for way in node.implementations]
        assert {f"in chunks of {n}" for n in (1, 2, 4, 8)} <= set(names)
        assert len(set(names)) == len(names) <= MOST_IMPLEMENTATIONS
        # as much memory as with 8 everywhere, and more launches
        assert "in chunks of 8 for call 1, in chunks of 1 for call 2" not in names


def test_kinds_are_mixed_where_that_takes_less_of_something():
    model, args = parallel()
    graph = rx.capture(model, args, implementations=["chunks", "algorithms"])
    for node in joined(graph):
        names = {way.name for way in node.implementations}
        assert {"native", "in chunks of 1"} <= names
        mixed = [name for name in names if "native for call" in name and "in chunks of" in name]
        assert mixed  # the pointwise one needs no room without oneDNN, and no chunks


@pytest.mark.parametrize("road", ROADS)
def test_executed_together_they_have_the_gradients_of_plain_pytorch(road, monkeypatch):
    monkeypatch.setitem(NETS, "parallel", parallel)
    runner = Runner("parallel", ["chunks", "algorithms"])
    names = {way.name for node in joined(runner.graph) for way in node.implementations[1:]}
    assert len(names) > 6
    for name in names:
        plan = plan_by(runner.graph, preferring(runner.graph, name))
        replay(plan)
        found = runner.by(plan, road)
        assert compare(found, runner.reference, runner.initial).random_state_equal
        for key, gradient in runner.reference.outcome.gradients.items():
            close = 3e-5 * gradient.abs().max().item()
            torch.testing.assert_close(found.outcome.gradients[key], gradient, rtol=0, atol=close)


def test_together_they_need_the_workspace_of_a_part_and_the_peak_is_the_predicted_one():
    model, args = parallel(40, 10)
    graph = rx.profile(rx.capture(model, args, implementations=["chunks"]), model, args, repeats=1)
    for node in joined(graph):
        by_name = {way.name: way.workspace for way in node.implementations}
        assert by_name["in chunks of 1"] < by_name["default"] / 2
        single = [size for name, size in by_name.items() if "for call" in name]
        assert by_name["in chunks of 1"] <= min(single)
        assert by_name["in chunks of 1"] < max(single)
    program = trace(model, args, options=graph.options)
    plan = plan_by(graph, preferring(graph, "in chunks of 1"))
    assert abs(measured(plan, program, model, args) - plan.peak) <= 0.001 * plan.peak


class Branches(nn.Module):
    """ReLU beside dropout, of tensors large enough to draw the mask again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(64, 128)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).relu() + self.drop(self.second(x))


def branches() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Branches that read the same gradient."""
    torch.manual_seed(0)
    return Classifier(Branches(), nn.Linear(128, 10)), (torch.randn(60, 64), torch.randint(0, 10, (60,)))


def join_branches(found: Storages, kinds: tuple[str, ...] = ()) -> None:
    """Join the backward passes of dropout and ReLU, as no rule of contraction does."""
    targets = aten.native_dropout_backward.default, aten.threshold_backward.default
    drop, relu = (next(d for d in found.operations if d.nodes[0].target is target) for target in targets)
    first, second = sorted((drop, relu), key=found.operations.index)
    assert set(first.reads) & set(second.reads)  # the gradient; what else the second reads is of the forward pass
    first.nodes += second.nodes
    first.reads = list(dict.fromkeys(first.reads + second.reads))
    first.writes += second.writes
    found.operations.remove(second)


@pytest.mark.parametrize("road", ROADS)
def test_calls_of_other_operators_are_combined_too(road, monkeypatch):
    monkeypatch.setattr(tracing, "contract", join_branches)
    monkeypatch.setitem(NETS, "branches", branches)
    runner = Runner("branches", ["masks", "replay"])
    node = next(n for n in runner.graph.operations if n.details and n.details.operator.count("backward") == 2)
    names = {way.name for way in node.implementations}
    assert "from bits" in names
    assert any("drawn again for call" in name and "from bits for call" in name for name in names)
    for name in names:
        plan = plan_by(runner.graph, preferring(runner.graph, name, "with state" if "drawn" in name else name))
        replay(plan)
        assert compare(runner.by(plan, road), runner.reference, runner.initial).equal, name


def needs(cost: float, workspace: int, portion: float = 1.0, own: Any = (), reads: Any = ()) -> ImplementationNeeds:
    """Needs of a way that makes nothing."""
    call: Any = None
    way = CapturedImplementation("chunks", "", call, (), portion=portion)
    return ImplementationNeeds(way, cost, workspace, frozenset(own), frozenset(reads), (frozenset(), None))


def test_dominated_means_nowhere_better_and_somewhere_worse():
    plain, call = needs(2.0, 10, 0.5), object()
    assert plain.dominates(needs(2.0, 11, 0.5))
    assert not plain.dominates(needs(2.0, 10, 0.5))
    assert not plain.dominates(needs(1.0, 11, 0.5))
    assert not plain.dominates(needs(2.0, 11, 0.25))
    assert not needs(1.0, 1, own=[call]).dominates(needs(2.0, 2))  # the workspace of its call is not known
    assert not needs(1.0, 1, reads=[call]).dominates(needs(2.0, 2))
    assert needs(1.0, 1).dominates(needs(1.0, 1, reads=[call]))
    other: Any = (frozenset([call]), None)
    assert not plain.dominates(dataclasses.replace(needs(2.0, 11), makes=other))


@pytest.mark.parametrize("most", [0, 1, 2, 5, 9])
def test_what_remains_of_many_includes_the_one_with_least_memory(most):
    row: list[Any] = list(range(9))
    kept = _spread(row, most)
    assert len(kept) == min(most, 9) == len(set(kept))
    assert kept == sorted(kept)
    assert not most or kept[-1] == 8
    assert most < 2 or kept[0] == 0
