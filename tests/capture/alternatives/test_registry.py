"""Which operations offer which implementations, and that nothing changes for those who do not ask."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture.implementations import call_site
from remat_explorer.capture_options import KINDS
from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph
from tests.capture.alternatives.nets import NETS, pooled, residual
from tests.thorough import thorough_but


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
