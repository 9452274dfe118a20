"""Patterns and what they add to a graph, implementations of several calls chosen together, and their rooflines."""

import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.implementations import call_site
from remat_explorer.capture_options import KINDS
from remat_explorer.checker import replay
from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph, Operation
from remat_explorer.graph.rules import MOST_IMPLEMENTATIONS
from tests.capture.implementations import nets
from tests.capture.implementations.nets import ROADS, Runner, measured, plan_by, preferring
from tests.capture.implementations.numerics import relative
from tests.thorough import thorough_but

aten = torch.ops.aten


def joined(graph: Graph) -> list[Operation]:
    return [node for node in graph.operations if node.details and node.details.operator.count("weight_gradient") == 2]


def test_weight_gradients_that_are_one_operation_come_in_chunks_together_and_mixed_where_that_takes_less():
    runner = Runner(nets.parallel, ["chunks", "algorithms"])
    assert len(joined(runner.graph)) == 2
    for node in joined(runner.graph):
        names = {way.name for way in node.implementations}
        assert {"native", *(f"in chunks of {n}" for n in (1, 2, 4, 8))} <= names
        assert len(names) == len(node.implementations) <= MOST_IMPLEMENTATIONS
        # as much memory as with 8 everywhere, and more launches
        assert "in chunks of 8 for call 1, in chunks of 1 for call 2" not in names
        # the pointwise one needs no room without oneDNN, and no chunks
        assert any("native for call" in name and "in chunks of" in name for name in names)
    names = {way.name for node in joined(runner.graph) for way in node.implementations[1:]}
    for name in names:
        plan = plan_by(runner.graph, preferring(runner.graph, name))
        replay(plan)
        for road in ROADS:
            found = runner.by(plan, road).outcome.gradients
            for key, gradient in runner.reference.outcome.gradients.items():
                assert relative(found[key], gradient) <= 3e-5, road


def test_together_they_need_the_workspace_of_a_part_and_the_peak_is_the_predicted_one():
    model, args = nets.parallel(40, 10)
    graph = rx.profile(rx.capture(model, args, implementations=["chunks"]), model, args, repeats=1)
    for node in joined(graph):
        by_name = {way.name: way.workspace for way in node.implementations}
        single = [size for name, size in by_name.items() if "for call" in name]
        assert by_name["in chunks of 1"] < by_name["default"] / 2
        assert min(single) >= by_name["in chunks of 1"] < max(single)
    program = trace(model, args, options=graph.options)
    plan = plan_by(graph, preferring(graph, "in chunks of 1"))
    assert abs(measured(plan, program, model, args) - plan.peak) <= 0.001 * plan.peak


def names(graph: Graph) -> set[str]:
    """Names of all implementations but the default ones, and the operators of optional operations."""
    found = {way.name for node in graph.operations for way in node.implementations[1:]}
    return found | {node.name.split()[-1] for node in graph.operations if node.optional}


def test_alternatives_leave_the_rest_of_the_graph_as_it_is_and_say_of_what_kinds_they_are():
    def told(graph: Graph) -> list[Any]:
        nodes = [graph.operations[k] for k in graph.mandatory]
        return [(node.name, node.default.cost, graph.names(node.default.inputs)) for node in nodes]

    model, args = nets.pooled()
    plain, exact, everything = (rx.capture(model, args, implementations=choice) for choice in ([], "exact", "all"))
    assert not plain.has_choices
    assert plain == rx.capture(model, args)
    assert told(plain) == told(exact)
    assert all(way.tolerance == 0 for node in exact.operations for way in node.implementations)
    assert names(exact) <= names(everything)
    ways = [way for node in everything.operations for way in node.implementations[1:]]
    assert "in chunks of 1" in {way.name for way in ways if way.tolerance > 0}
    assert all(way.kinds and set(way.kinds) <= set(KINDS) for way in ways)
    assert {way.kinds for way in ways if way.name == "from the output, lean"} == {("output-activated", "lean")}
    assert set(everything.kinds) >= set(EXPECTED)


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


def test_each_kind_gives_its_implementations_and_no_other():
    model, args = nets.pooled()
    for kind, expected in EXPECTED.items():
        assert names(rx.capture(model, args, implementations=[kind])) == expected, kind
    model, args = nets.NETS["attentive"]()
    graph = rx.capture(model, args, implementations=["output-activated"])
    ways = [way.name for node in graph.operations if "layer_norm_backward" in node.name for way in node.implementations]
    assert ways == ["default", "from the output"] * 2
    with pytest.raises(UnknownNameError, match=r"'mask'; did you mean 'masks'"):
        rx.capture(model, args, implementations=["mask"])


def test_relu_backward_reads_the_input_where_the_input_is_kept():
    model, args = nets.pooled()
    graph = rx.capture(model, args, implementations=["activations", "output-activated"])
    node = next(n for n in graph.operations if n.name.endswith("2 relu_backward"))
    assert [way.name for way in node.implementations] == ["default", "from the input"]
    assert node.implementations[1].overwrites == node.default.overwrites is not None


def test_a_weight_of_zero_excludes_the_output_activated_form():
    model, args = nets.residual()
    count = []
    for spoil in (nn.init.ones_, nn.init.zeros_):
        spoil(model.get_parameter("body.4.norms.1.weight"))
        graph = rx.capture(model, args, implementations=["output-activated"])
        count.append(sum(len(node.implementations) > 1 for node in graph.operations))
    assert count[1] == count[0] - 1


def test_elsewhere_than_on_the_cpu_only_what_holds_for_any_order_of_sums_is_called_exact(monkeypatch):
    monkeypatch.setattr(call_site, "on_cpu", lambda tensor: False)
    model, args = nets.pooled()
    graph = rx.capture(model, args, implementations="all")
    inexact = {way.name for node in graph.operations for way in node.implementations if way.tolerance > 0}
    assert {"from the gradient", "with saved statistics", "lean", "in chunks of 1"} <= inexact
    assert not {"from bits", "from the input", "with state", "drawn again", "with places"} & inexact
    pools = [node.implementations[1:] for node in graph.operations if "max_pool2d_backward" in node.name]
    assert sorted(sorted({way.tolerance > 0 for way in ways}) for ways in pools) == [[False], [True]]  # by overlap
    exact = rx.capture(model, args, implementations="exact")
    assert all(way.tolerance == 0 for node in exact.operations for way in node.implementations)
    assert names(exact) == names(rx.capture(model, args, implementations=["activations", "masks", "replay", "pooling"]))


def test_tf32_widens_the_tolerance_of_convolutions_on_cuda_alone(monkeypatch):
    cuda: Any = SimpleNamespace(dtype=torch.float32, device=SimpleNamespace(type="cuda"))
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


SIZES = {"pooled": (64, 32), "residual": (64, 32), "attentive": (32, 8)}
LEAN = {"indices recomputed", "lean", "from the output, lean"}
SLOWER = {"pooled": LEAN, "residual": LEAN, "attentive": {"recomputed"}}  # cost more than the default on every device
PLACES = {"with places", "from places"}  # on a CPU a few samples at a time, on a GPU one kernel that moves less
PUBLISHED = {"vgg16": 176, "resnet50": 184}  # batches of MONeT's evaluation


@cache
def captured(name: str, device: str = "P100") -> Graph:
    model, args = nets.NETS[name](*SIZES[name])
    return rx.capture(model, args, device=device, implementations="all")


def costs(node: Operation) -> dict[str, float]:
    return {way.name: way.cost for way in node.implementations}


ON_DEVICES = [(name, device) for name in nets.NETS for device in ("cpu", "P100", "H100")]
QUICK = [("pooled", "cpu"), ("residual", "P100"), ("attentive", "H100")]


@pytest.mark.parametrize(("name", "device"), thorough_but(ON_DEVICES, *QUICK))
def test_every_implementation_costs_something_and_none_is_free_by_doing_less(name, device):
    graph = captured(name, device)
    assert all(0 < node.default.cost < math.inf for node in graph.operations)
    assert all(0.1 < way.cost / node.default.cost < 1000 for node in graph.operations for way in node.implementations)


@pytest.mark.parametrize("name", nets.NETS)
def test_what_computes_more_than_the_default_costs_more(name):
    ways = [(node, way) for node in captured(name).operations for way in node.implementations]
    compared = [(node, way) for node, way in ways if way.name in SLOWER[name]]
    assert {way.name for _, way in compared} == SLOWER[name]
    for node, way in compared:
        assert way.cost > node.default.cost, (node.name, way.name)
