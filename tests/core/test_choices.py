"""Graphs whose operations have several implementations, or need not run at all."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.errors import GraphError, ScheduleError, SolverError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.graph.file import dump_graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all, solve

X, MASK, SAVED, Y, LOSS, G = range(6)


def masked(optional: bool = True) -> Graph:
    """y = f(x) saves statistics; its gradient reads x, or an eighth of it that an optional operation makes."""
    f = (Implementation((X,), (Y, SAVED), 3.0), Implementation((X, SAVED), (Y,), 1.0, name="renormalize"))
    gradient = (Implementation((LOSS, X), (G,), 2.0), Implementation((LOSS, MASK), (G,), 2.5, name="bits"))
    return Graph(
        "masked",
        (
            Value("x", 80),
            Value("mask", 10),
            Value("saved", 2),
            Value("y", 80),
            Value("loss", 4),
            Value("g", 80, persistent=True),
        ),
        (
            operation("x", "forward", [], [X], 1.0),
            Operation("mask", "forward", (Implementation((X,), (MASK,), 0.5),), optional),
            Operation("f", "forward", f),
            operation("loss", "backward", [Y], [LOSS], 1.0),
            Operation("g", "backward", gradient),
        ),
    )


@pytest.fixture
def graph() -> Graph:
    return masked()


def test_only_mandatory_operations_have_a_stage(graph):
    assert graph.mandatory.tolist() == [0, 2, 3, 4]
    assert graph.stages == 4
    assert graph.first_stage.tolist() == [0, 1, 1, 2, 3]
    assert graph.has_choices


def test_the_cost_reference_runs_mandatory_operations_once_in_their_defaults(graph):
    assert graph.total_cost == 1 + 3 + 1 + 2
    everything = checkpoint_all(graph)
    assert everything.overhead == 1.0
    assert everything.is_frontier_advancing
    assert Plan.of(everything).peak == graph.summary().peak == 80 + 80 + 4


def test_the_file_says_which_operations_are_optional(graph):
    entries = json.loads(dump_graph(graph))["operations"]
    assert [entry.get("optional") for entry in entries] == [None, True, None, None, None]
    assert Graph.from_document(json.loads(dump_graph(graph))) == graph


@pytest.mark.parametrize("flag", [False, None, 1, "yes"])
def test_the_file_has_no_other_word_for_optional(graph, flag):
    document = json.loads(dump_graph(graph))
    document["operations"][1]["optional"] = flag
    with pytest.raises(GraphError, match=r"'mask'.*not true"):
        Graph.from_document(document)


def test_a_schedule_with_a_mask_runs_the_optional_operation_in_one_stage(graph):
    R = np.array([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 2]])
    lean = Schedule(graph, R, np.zeros((4, 6))).compact()
    assert lean.S[3].nonzero()[0].tolist() == [MASK, LOSS]
    assert lean.is_frontier_advancing
    checked = check(graph, lean.R, lean.S)
    assert checked.cost == 1 + 0.5 + 3 + 1 + 2.5
    assert checked.peak == 80 + 10 + 80 + 2  # while f runs


def test_what_is_made_for_nobody_is_dropped_even_at_its_first_run(graph):
    R = np.array([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [1, 1, 0, 0, 1]])
    lean = Schedule(graph, R, np.zeros((4, 6))).compact()
    assert lean.R[:, 1].tolist() == [0, 0, 0, 0]


def test_an_implementation_may_read_what_an_earlier_run_of_its_operation_saved(graph):
    R = np.array([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [1, 0, 2, 1, 0], [1, 0, 0, 0, 1]])
    lean = Schedule(graph, R, np.zeros((4, 6))).compact()
    assert lean.S[2].nonzero()[0].tolist() == [SAVED]
    assert check(graph, lean.R, lean.S).cost == 7 + 1 + 1 + 1
    with pytest.raises(ScheduleError, match="its input 'saved' is neither computed nor retained"):
        check(graph, np.array([[1, 0, 0, 0, 0], [1, 0, 2, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 1]]), np.zeros((4, 6)))


def replace_implementations(graph: Graph, k: int, *ways: Implementation) -> None:
    operations = list(graph.operations)
    operations[k] = dataclasses.replace(operations[k], implementations=ways)
    dataclasses.replace(graph, operations=tuple(operations))


def test_plain_execution_must_not_need_an_optional_operation(graph):
    with pytest.raises(GraphError, match="default implementation of 'g' reads 'mask'"):
        replace_implementations(graph, 4, *graph.operations[4].implementations[::-1])


def test_a_default_implementation_must_not_read_its_own_earlier_run(graph):
    with pytest.raises(GraphError, match=r"'f' \(number 2\) reads 'saved'"):
        replace_implementations(graph, 2, *graph.operations[2].implementations[::-1])


def test_a_default_implementation_writes_what_persists(graph):
    ways = Implementation((LOSS, X), (), 2.0), Implementation((LOSS, X), (G,), 2.0)
    with pytest.raises(GraphError, match="persistent value 'g' is written by no mandatory operation's default"):
        replace_implementations(graph, 4, *ways)


def test_something_must_be_mandatory(graph):
    operations = tuple(dataclasses.replace(node, optional=True) for node in graph.operations)
    with pytest.raises(GraphError, match="optional operations only"):
        dataclasses.replace(graph, operations=operations)


@pytest.mark.parametrize("strategy", ["optimal", "checkpoint-last", "rotor", "dtr"])
def test_strategies_that_run_every_operation_refuse_optional_ones(graph, strategy):
    with pytest.raises(SolverError, match="'mask' is optional"):
        solve(graph, 1000, strategy)


def test_checkpoint_all_runs_no_optional_operation_and_proves_only_the_cheapest_implementations(graph):
    solution = solve(graph, 1000, "checkpoint-all")
    assert solution.cost == 7
    assert solution.lower_bound == 5  # f alone has a cheaper one


def test_the_file_states_the_tolerance_of_implementations_that_are_not_bit_equal(graph):
    ways = graph.operations[4].implementations
    inexact = (ways[0], dataclasses.replace(ways[1], tolerance=4e-7))
    operations = (*graph.operations[:4], dataclasses.replace(graph.operations[4], implementations=inexact))
    stated = dataclasses.replace(graph, operations=operations)
    entries = json.loads(dump_graph(stated))["operations"][4]["implementations"]
    assert [entry.get("tolerance") for entry in entries] == [None, 4e-7]
    assert Graph.from_document(json.loads(dump_graph(stated))) == stated
    entries[1]["tolerance"] = -1
    document = json.loads(dump_graph(stated))
    document["operations"][4]["implementations"] = entries
    with pytest.raises(GraphError, match=r"\('g'\): the tolerance is not a number of at least 0: -1"):
        Graph.from_document(document)


def of_kinds() -> Graph:
    """The masked graph with kinds: masks, statistics, and one by hand that is masks, too."""
    graph = masked()
    kinds = {"bits": ("masks", "by hand"), "renormalize": ("statistics",)}
    return dataclasses.replace(
        graph,
        operations=tuple(
            dataclasses.replace(
                node,
                implementations=tuple(
                    dataclasses.replace(way, kinds=kinds.get(way.name, ())) for way in node.implementations
                ),
            )
            for node in graph.operations
        ),
    )


def test_a_graph_knows_its_kinds_those_of_capture_first_in_their_order():
    assert of_kinds().kinds == ("masks", "statistics", "by hand")
    assert [way.kind for way in of_kinds().operations[-1].implementations] == ["", "masks"]
    assert masked().kinds == ()


def test_the_file_says_of_what_kinds_an_implementation_is(graph):
    document = json.loads(dump_graph(of_kinds()))
    assert document["operations"][-1]["implementations"][1]["kinds"] == ["masks", "by hand"]
    assert Graph.from_document(document) == of_kinds()
    assert "kinds" not in dump_graph(graph)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [([], "empty list"), ("masks", "not a list"), ([3], "not a string"), (["a", "a"], "'a', 'a'"), ([""], "empty")],
)
def test_kinds_that_are_none_are_refused(kinds, message):
    document = json.loads(dump_graph(of_kinds()))
    document["operations"][-1]["implementations"][1]["kinds"] = kinds
    with pytest.raises(GraphError, match=message):
        Graph.from_document(document)


def test_a_schedule_of_a_graph_without_kinds_serves_the_same_graph_with_kinds(graph):
    assert of_kinds().structure == graph.structure
    assert of_kinds().sha256 != graph.sha256
    solution = solve(graph, 10**6, "checkpoint-all")
    assert solution.on(of_kinds()).cost == solution.cost
