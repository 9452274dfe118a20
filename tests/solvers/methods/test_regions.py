"""Layers and attention are found by the names of modules, and by structure where there are none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.operation_details import Details
from remat_explorer.solvers.methods.regions import forward_operations, layers_of
from remat_explorer.solvers.methods.typed_rules import attention_cores, attention_modules

DATA = Path(__file__).parents[2] / "data"


def captured(name: str) -> Graph:
    return Graph.load(str(DATA / "captured" / f"{name}.json"))


@pytest.fixture(scope="module")
def gpt2() -> Graph:
    return captured("gpt2")


def in_modules(graph: Graph, names: dict[int, str]) -> Graph:
    """A graph whose operations are in modules, by their numbers."""
    operations = tuple(
        dataclasses.replace(node, details=Details(module=names.get(k, ""))) for k, node in enumerate(graph.operations)
    )
    return dataclasses.replace(graph, operations=operations)


def named(graph: Graph) -> Graph:
    """GPT-2 with the modules that it has in its code."""
    modules = {}
    for i, layer in enumerate(layers_of(graph)):
        for place, k in enumerate(layer.operations):
            part = "attention.inner.0" if 1 <= place <= 13 else "attention_norm" if place == 0 else "feed_forward"
            modules[k] = f"transformer.h.{i}.{part}"
    return in_modules(graph, modules)


def test_the_blocks_of_gpt2_are_its_layers_with_and_without_names(gpt2):
    found = layers_of(gpt2)
    assert [len(layer.operations) for layer in found] == [22] * 12
    layers = layers_of(named(gpt2))
    assert [layer.name for layer in layers] == [f"transformer.h.{i}" for i in range(12)]
    assert [layer.operations for layer in layers] == [layer.operations for layer in found]


def test_inner_containers_that_hold_nearly_everything_are_taken_and_groups_beside_each_other_all():
    graph = linear(30)
    inner = {k: f"stages.{k // 10}.{k % 10 // 2}" for k in range(20)} | dict.fromkeys((20, 21, 22), "merge.0")
    layers = layers_of(in_modules(graph, inner | dict.fromkeys((24, 25, 26), "merge.1")))
    assert [layer.name for layer in layers] == [
        *(f"stages.{i}.{j}" for i in range(2) for j in range(5)),
        "merge.0",
        "merge.1",
    ]


@pytest.mark.parametrize("name", ["vgg16", "mobilenet_v1"])
def test_a_sequence_of_single_operations_is_cut_into_about_sqrt_n_runs_that_hold_all_of_it(name):
    graph = captured(name)
    layers = layers_of(graph)
    assert 4 <= len(layers) <= 9
    assert [k for layer in layers for k in layer.operations] == forward_operations(graph)


def test_experts_within_a_layer_are_no_layers_and_a_module_that_runs_twice_is_two():
    graph = linear(12)
    experts = {k: f"layers.{k // 6}.experts.{k % 6 // 2}" for k in range(12) if k % 6 < 4}
    attention = {k: f"layers.{k // 6}.attention" for k in range(12) if k % 6 >= 4}
    assert [layer.name for layer in layers_of(in_modules(graph, experts | attention))] == ["layers.0", "layers.1"]
    twice = in_modules(graph, {k: f"blocks.{k // 3 % 2}" for k in range(12)})
    assert [layer.name for layer in layers_of(twice)] == ["blocks.0", "blocks.1"] * 2


def test_a_graph_of_one_layer_has_none():
    assert layers_of(linear(1)) == ()


def test_the_core_of_attention_begins_and_ends_with_a_product_and_is_part_of_its_module(gpt2):
    graph = named(gpt2)
    layer = layers_of(graph)[3]
    (module,) = attention_modules(graph, layer)
    (core,) = attention_cores(graph, layer)
    names = [graph.operations[k].name for k in core]
    assert names[0].startswith("bmm")
    assert names[-1].startswith("bmm")
    assert any("softmax" in name for name in names)
    assert set(core) < set(module) < set(layer.operations)
    assert module == layer.operations[1:14]
    bare = layers_of(gpt2)[3]
    assert attention_modules(gpt2, bare) == attention_cores(gpt2, bare) == (core,)
