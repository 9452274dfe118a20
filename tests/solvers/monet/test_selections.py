"""Graphs with one implementation per operation, made from graphs with choices."""

from __future__ import annotations

import pytest

from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.solvers import checkpoint_all, solve
from remat_explorer.solvers.monet.selections import (
    default_selection,
    fastest_selection,
    make_consistent,
    restricted_to,
)
from tests.solvers.monet.choice_graphs import monet_chain, random_graph
from tests.solvers.monet.synthetic_choices import with_choices


@pytest.fixture(scope="module")
def graph(data) -> Graph:
    return with_choices(Graph.load(data / "captured" / "vgg16.json"))


def test_the_default_selection_is_the_graph_without_choices(graph, data):
    plain = default_selection(graph)
    assert not plain.graph.has_choices
    captured = Graph.load(data / "captured" / "vgg16.json")
    assert [node.default for node in plain.graph.operations] == [node.default for node in captured.operations]


def test_a_selection_has_the_optional_operations_that_it_needs_and_no_others(graph):
    k = next(k for k, node in enumerate(graph.operations) if any(way.name == "bits" for way in node.implementations))
    code = 1 + [way.name for way in graph.operations[k].implementations].index("bits")
    selection = restricted_to(graph, {k: code})
    assert selection.graph.n == graph.stages + 1
    assert [graph.operations[i].optional for i in selection.operations].count(True) == 1


@pytest.mark.parametrize("seed", range(8))
def test_lifted_schedules_are_correct_and_run_the_chosen_implementations(seed):
    graph = random_graph(seed, layers=5)
    choice = {k: len(graph.operations[k].implementations) for k in graph.mandatory if graph.is_backward[k]}
    selection = restricted_to(graph, make_consistent(graph, choice))
    lifted = selection.lift(checkpoint_all(selection.graph))
    checked = check(graph, lifted.R, lifted.S)
    assert lifted.is_frontier_advancing
    assert checked.cost == pytest.approx(selection.graph.total_cost)
    for k, code in choice.items():
        assert lifted.R[graph.first_stage[k], k] == code


def test_the_fastest_selection_reads_and_writes_the_same():
    graph = monet_chain(5, "both")
    assert fastest_selection(graph).codes == default_selection(graph).codes  # the others read something else
    seeds = [seed for seed in range(20) if any("fast" in str(node) for node in random_graph(seed).operations)]
    graph = random_graph(seeds[0])
    fast, plain = fastest_selection(graph).graph, default_selection(graph).graph
    assert fast.total_cost < plain.total_cost
    assert [node.default.inputs for node in fast.operations] == [node.default.inputs for node in plain.operations]


def test_checkmate_on_a_selection_costs_no_less_than_the_joint_problem():
    graph = monet_chain(6, "both")
    budget = 4 * 2**20
    plain, joint = solve(default_selection(graph).graph, budget), solve(graph, budget, "monet")
    assert plain.cost is not None
    assert joint.cost is not None
    assert plain.cost > joint.cost


def test_what_is_not_there_cannot_be_chosen(graph):
    with pytest.raises(SolverError, match="no implementation 7"):
        restricted_to(graph, {0: 7})
    k = next(k for k, node in enumerate(graph.operations) if node.implementations[-1].name == "recomputed")
    code = 1 + [way.name for way in graph.operations[k].implementations].index("small index")
    with pytest.raises(SolverError, match="does not write"):
        restricted_to(graph, {k: code})
    repaired = make_consistent(graph, {k: code})
    assert restricted_to(graph, repaired).graph.n == graph.stages
