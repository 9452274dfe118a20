"""Repeated blocks are found by structure, and copies of a block really are alike: networkx says so."""

from dataclasses import replace
from itertools import pairwise

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_explorer.graph import Graph
from remat_explorer.graph.repeated_blocks import RepeatedBlocks, repeated_blocks
from remat_explorer.instances import linear
from tests.core.repeated_graphs import Network, transformer
from tests.solvers.drawn_graphs import training_graphs


def part_of(view: networkx.DiGraph, blocks: RepeatedBlocks, copy: int) -> networkx.DiGraph:
    """A copy's operations and values, numbered as they stand in it, with what does not depend on names and costs."""
    place = {("operation", int(k)): ("operation", i) for i, k in enumerate(blocks.operations[copy])}
    place |= {("value", int(v)): ("value", i) for i, v in enumerate(blocks.values[copy])}
    found = networkx.relabel_nodes(view.subgraph(place), place)
    for node in found:
        for attribute in ("name", "cost"):
            found.nodes[node].pop(attribute, None)
    return found


def check(graph: Graph) -> tuple[RepeatedBlocks, ...]:
    """Every claim of `RepeatedBlocks` that networkx can judge, of every copy beside the next one."""
    view, found = graph.to_networkx(), repeated_blocks(graph)
    everywhere = [int(k) for blocks in found for k in blocks.operations.ravel()]
    assert len(everywhere) == len(set(everywhere))
    for blocks in found:
        assert blocks.copies >= 3
        assert len(blocks.names) == blocks.copies
        assert (np.diff(blocks.forward.ravel()) > 0).all()
        assert not graph.is_backward[blocks.forward].any()
        assert graph.is_backward[blocks.backward].all()
        parts = [part_of(view, blocks, copy) for copy in range(blocks.copies)]
        inside = {("operation", int(k)) for k in blocks.operations.ravel()}
        for one, other in pairwise(parts):
            assert dict(one.nodes(data=True)) == dict(other.nodes(data=True))
            assert set(one.edges) == set(other.edges)
        for i, operations in enumerate(blocks.operations.T):  # what comes from, or goes to, neither copies nor the ends
            outside = [
                {v for v in view.predecessors(("operation", int(k))) if not inside & set(view.predecessors(v))}
                for k in operations[1:-1]
            ]
            assert all(values == outside[0] for values in outside), i
        for i, values in enumerate(blocks.values.T):
            outside = [set(view.successors(("value", int(v)))) - inside for v in values[1:-1]]
            assert all(readers == outside[0] for readers in outside), i
    return found


def test_the_twelve_layers_of_gpt2_are_one_block(data):
    (blocks,) = check(Graph.load(data / "captured" / "gpt2.json"))
    assert blocks.copies == 12
    assert blocks.forward.shape == (12, 22)
    assert blocks.backward.shape == (12, 25)


def test_alike_blocks_of_resnet_fold_and_those_that_change_the_resolution_do_not(data):
    graph = Graph.load(data / "captured" / "resnet50.json")
    found = check(graph)
    assert [blocks.copies for blocks in found] == [3, 5]  # of stages of 4 and 6 blocks, whose first ones differ
    assert all(blocks.forward.shape[1] == 7 and blocks.backward.shape[1] == 13 for blocks in found)


@pytest.mark.parametrize("name", ["unet", "densenet161"])
def test_networks_whose_blocks_all_differ_have_none(data, name):
    assert check(Graph.load(data / "captured" / f"{name}.json")) == ()


def test_layers_of_a_chain_are_blocks_and_a_shared_mask_does_not_part_those_that_read_it():
    (layers,) = check(linear(8))
    assert (layers.forward.ravel().tolist(), layers.saved) == ([1, 2, 3, 4, 5, 6, 7], 12)
    assert check(transformer(2)) == ()  # two are left as they are
    (blocks,) = check(transformer(6))
    assert (blocks.copies, blocks.forward.shape[1], blocks.backward.shape[1]) == (6, 14, 18)
    assert blocks.label == "blocks.0–5"
    assert blocks.names[3] == "blocks.3"


def test_a_block_that_writes_other_bytes_or_that_an_operation_outside_reads_parts_those_beside_it():
    found = check(transformer(10, unlike=(4,)))
    assert [blocks.label for blocks in found] == ["blocks.0–3", "blocks.5–9"]
    graph = transformer(10)
    (whole,) = repeated_blocks(graph)
    head = next(k for k, node in enumerate(graph.operations) if node.name == "head")
    node = graph.operations[head]
    more = replace(node.default, inputs=(*node.default.inputs, int(whole.values[4][5])))
    operations = (*graph.operations[:head], replace(node, implementations=(more,)), *graph.operations[head + 1 :])
    found = check(replace(graph, operations=operations))
    assert [blocks.copies for blocks in found] == [4, 5]


def test_names_decide_nothing():
    graph = transformer(5)
    nodes = (replace(node, name=f"f{(k * 7919) % 1000}") for k, node in enumerate(graph.operations))
    (named,), (blocks,) = repeated_blocks(graph), repeated_blocks(replace(graph, operations=tuple(nodes)))
    assert (named.operations == blocks.operations).all()


def test_costs_may_be_measured_and_a_block_that_is_far_dearer_stands_alone():
    assert check(transformer(8, costs={2: 1.2, 5: 0.8}))[0].copies == 8
    assert [blocks.label for blocks in check(transformer(8, costs={4: 3.0}))] == ["blocks.0–3", "blocks.5–7"]


def test_residuals_that_tell_equal_layers_apart_make_the_block_longer():
    network = Network("residual chain")
    x = y = network.add("entry", (), 1, 1)
    for number in range(12):
        y = network.add(f"layer{number}", (y,) if number % 3 != 2 else (y, x), 1, 1)
        x = y if number % 3 == 2 else x
    (blocks,) = check(network.graph())
    assert blocks.forward.shape == (4, 3)


@st.composite
def repeating(draw: st.DrawFn) -> tuple[Graph, int]:
    """A network that repeats a drawn block of operations of different sizes, between operations like no other."""
    copies, places = draw(st.integers(3, 6)), draw(st.integers(1, 5))
    reads = [draw(st.integers(0, 3)) for _ in range(places)]
    skips = [draw(st.booleans()) for _ in range(places)]
    network = Network("drawn")
    mask, last = network.add("mask", (), 7, 1), network.add("entry", (), 50, 1)
    for copy in range(copies):
        entrance, made = last, [last]
        for place in range(places):
            read = {made[-1 - min(reads[place], len(made) - 1)], made[-1]}
            if skips[place]:
                read.add(mask)
            made.append(network.add(f"b{copy}.{place}", tuple(sorted(read)), 10 + place, 1))
        last = made[-1]
        assert entrance < last
    network.add("exit", (last,), 60, 1)
    return network.graph(), copies * places


@given(repeating(), training_graphs(most_layers=9))
@settings(max_examples=25, deadline=None)
def test_what_was_repeated_is_found_and_blocks_of_any_graph_are_alike(drawn, any_graph):
    check(any_graph)
    graph, repeated = drawn
    found = check(graph)
    assert sum(blocks.forward.size for blocks in found) >= repeated - 2 * repeated // 3
