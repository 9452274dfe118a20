"""Patterns and what they add to a graph, and implementations of several calls of one operation, chosen together."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace, tracing
from remat_explorer.capture.captured_program import CapturedImplementation
from remat_explorer.capture.implementations import call_site
from remat_explorer.capture.implementations.alternatives import ImplementationNeeds, _spread
from remat_explorer.capture.storages import Storages
from remat_explorer.capture_options import KINDS
from remat_explorer.checker import replay
from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph, Operation
from remat_explorer.graph.rules import MOST_IMPLEMENTATIONS
from remat_explorer.runtime.comparison import compare
from tests.capture.implementations.nets import NETS, Classifier, parallel, plan_by, pooled, preferring, residual
from tests.capture.implementations.runner import ROADS, Runner, measured
from tests.thorough import thorough_but

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
    monkeypatch.setattr(tracing, "contract_operations", join_branches)
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


def names(graph: Graph) -> set[str]:
    """Names of all implementations but the default ones, and the operators of optional operations."""
    found = {way.name for node in graph.operations for way in node.implementations[1:]}
    return found | {node.name.split()[-1] for node in graph.operations if node.optional}


@pytest.mark.parametrize("name", thorough_but(NETS, "pooled", "attentive"))
def test_without_alternatives_the_graph_is_the_same_as_ever(name):
    model, args = NETS[name]()
    graph = rx.capture(model, args)
    assert not graph.has_choices
    assert graph == rx.capture(model, args, implementations=[])
    chosen = rx.capture(model, args, implementations="exact")
    mandatory = [chosen.operations[k] for k in chosen.mandatory]
    assert [(node.name, node.default.cost) for node in mandatory] == [
        (n.name, n.default.cost) for n in graph.operations
    ]
    assert [chosen.names(n.default.inputs) for n in mandatory] == [
        graph.names(n.default.inputs) for n in graph.operations
    ]


EXPECTED = {
    "masks": {"from bits", "relu_bits", "hardtanh_bits", "packed_mask"},
    "replay": {"with state", "drawn again"},
    "pooling": {
        *("with places", "maxima alone", "from places", "from indices", "indices recomputed"),
        *("packed_places", "from the input", "from places apart"),
    },
    "statistics": {"with saved statistics"},
    "input-gradients": {"from the gradient"},
    "lean": {"lean"},
    "output-activated": {"from the output"},
    "cross-entropy": {"log sum exp alone", "from log sum exp", "left out"},
    "chunks": {f"in chunks of {n}" for n in (1, 2, 4, 8)},
    "algorithms": {"native", "channels last"},
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_each_kind_gives_its_implementations_and_no_other(kind):
    model, args = pooled()
    assert names(rx.capture(model, args, implementations=[kind])) == EXPECTED[kind]


def test_attention_and_layer_norm_have_theirs():
    model, args = NETS["attentive"]()
    assert names(rx.capture(model, args, implementations=["attention"])) == {"recomputed"}
    graph = rx.capture(model, args, implementations=["output-activated"])
    ways = [way for node in graph.operations if "layer_norm_backward" in node.name for way in node.implementations[1:]]
    assert [way.name for way in ways] == ["from the output"] * 2


def test_relu_backward_reads_the_input_where_the_input_is_kept():
    model, args = pooled()
    graph = rx.capture(model, args, implementations=["activations", "output-activated"])
    node = next(n for n in graph.operations if n.name.endswith("2 relu_backward"))
    assert [way.name for way in node.implementations] == ["default", "from the input"]
    assert node.implementations[1].overwrites == node.default.overwrites is not None


@pytest.mark.parametrize("name", NETS)
def test_exact_kinds_are_bit_equal_and_all_includes_them(name):
    model, args = NETS[name]()
    exact, everything = (rx.capture(model, args, implementations=choice) for choice in ("exact", "all"))
    assert all(way.tolerance == 0 for node in exact.operations for way in node.implementations)
    assert names(exact) <= names(everything)
    inexact = {way.name for node in everything.operations for way in node.implementations if way.tolerance > 0}
    assert "in chunks of 1" in inexact or name == "attentive"


def test_a_weight_of_zero_excludes_the_output_activated_form():
    model, args = residual()
    everywhere = rx.capture(model, args, implementations=["output-activated"])
    nn.init.zeros_(model.get_parameter("body.4.norms.1.weight"))
    without = rx.capture(model, args, implementations=["output-activated"])
    count = [sum(len(n.implementations) > 1 for n in g.operations) for g in (everywhere, without)]
    assert count[1] == count[0] - 1


def test_an_unknown_kind_is_refused():
    model, args = pooled()
    with pytest.raises(UnknownNameError, match=r"'mask'; did you mean 'masks'"):
        rx.capture(model, args, implementations=["mask"])


def test_graphs_with_alternatives_come_back_from_their_file(tmp_path):
    model, args = pooled()
    graph = rx.capture(model, args, implementations="all")
    graph.save(str(tmp_path / "graph.json"))
    again = Graph.load(str(tmp_path / "graph.json"))
    assert again == graph
    assert again.options is not None
    assert again.options.implementations == tuple(KINDS)


def test_elsewhere_than_on_the_cpu_only_what_holds_for_any_order_of_sums_is_called_exact(monkeypatch):
    monkeypatch.setattr(call_site, "on_cpu", lambda tensor: False)
    model, args = pooled()
    graph = rx.capture(model, args, implementations="all")
    inexact = {way.name for node in graph.operations for way in node.implementations if way.tolerance > 0}
    assert {"from the gradient", "with saved statistics", "lean", "in chunks of 1"} <= inexact
    assert not {"from bits", "from the input", "with state", "drawn again", "with places"} & inexact
    first, second = (n for n in graph.operations if "max_pool2d_backward" in n.name)
    backward = {len({way.tolerance for way in node.implementations[1:]}) for node in (first, second)}
    assert backward == {1}
    assert sorted(node.implementations[1].tolerance > 0 for node in (first, second)) == [False, True]  # by overlap
    exact = rx.capture(model, args, implementations="exact")
    assert all(way.tolerance == 0 for node in exact.operations for way in node.implementations)
    assert names(exact) == names(rx.capture(model, args, implementations=["activations", "masks", "replay", "pooling"]))


def test_tf32_widens_the_tolerance_of_convolutions_on_cuda_alone(monkeypatch):
    class OnCuda(SimpleNamespace):
        dtype, device = torch.float32, SimpleNamespace(type="cuda")

    cuda: Any = OnCuda()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert call_site.reordered_products(cuda) == call_site.TF32
    assert call_site.reordered_products(torch.ones(1)) == call_site.reordered(torch.ones(1)) < call_site.TF32
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert call_site.reordered_products(cuda) == call_site.reordered(cuda)


def test_grouped_convolutions_with_channels_last_are_not_called_exact():
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3, groups=4))
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    args = (torch.ones(2, 8, 9, 9).contiguous(memory_format=torch.channels_last),)
    assert names(rx.capture(model, args, implementations=["input-gradients"])) == set()


@pytest.mark.parametrize("name", thorough_but(NETS, "pooled"))
def test_every_alternative_says_of_what_kinds_it_is(name):
    model, args = NETS[name]()
    graph = rx.capture(model, args, implementations="all")
    ways = [way for node in graph.operations for way in node.implementations[1:]]
    assert all(way.kinds and set(way.kinds) <= set(KINDS) for way in ways)
    assert {way.kinds for way in ways if way.name == "from the output, lean"} <= {("output-activated", "lean")}
    assert set(graph.kinds) >= {kind for kind in KINDS if rx.capture(model, args, implementations=[kind]).has_choices}
