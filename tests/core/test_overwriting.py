"""An output that takes over the storage of a dying input: in the graph, its file, the plan, U and the checker."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from remat_explorer.checker import check, replay
from remat_explorer.errors import GraphError, ScheduleError
from remat_explorer.figures.memory_map import holdings
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.graph.file import dump_graph
from remat_explorer.instances import linear
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.schedule import Schedule


def residual(**values: Value) -> Graph:
    """x; y = f(x); z = x + y in place of y; loss of z, and then of y if it is computed again."""
    named = {"x": Value("x", 4), "y": Value("y", 4), "z": Value("z", 4), "loss": Value("loss", 1, persistent=True)}
    return Graph(
        "residual",
        tuple((named | values).values()),
        (
            operation("x", "forward", [], [0], 1.0),
            operation("f", "forward", [0], [1], 1.0, workspace=1),
            operation("add", "forward", [0, 1], [2], 1.0, workspace=2, overwrites=1),
            operation("loss", "backward", [2], [3], 1.0),
        ),
        resident_bytes=10,
    )


@pytest.fixture
def graph() -> Graph:
    return residual()


@pytest.fixture
def plan(graph) -> Plan:
    return Plan.from_sequence(graph, [(k, k, 1) for k in range(4)])


def test_a_round_trip_keeps_what_is_overwritten(graph, tmp_path):
    graph.save(tmp_path / "graph.json")
    assert Graph.load(tmp_path / "graph.json") == graph
    assert Graph.load(tmp_path / "graph.json").sha256 == graph.sha256


def test_only_implementations_that_overwrite_say_so_in_the_file(graph):
    entries = [node["implementations"][0] for node in json.loads(dump_graph(graph))["operations"]]
    assert [entry.get("overwrites") for entry in entries] == [None, None, 1, None]
    assert ["overwrites" in entry for entry in entries] == [False, False, True, False]
    assert "overwrites" not in dump_graph(linear(8))


@pytest.mark.parametrize("entry", [None, True, 2, 99, -1, "y", 1.5, [1], {}])
def test_a_file_that_overwrites_what_is_no_input_is_refused(graph, entry):
    document = json.loads(dump_graph(graph))
    document["operations"][2]["implementations"][0]["overwrites"] = entry
    with pytest.raises(GraphError, match=r"operation 2 \('add'\) overwrites a value that is none of its inputs"):
        Graph.from_document(document)


def test_a_value_that_is_no_input_cannot_be_overwritten(graph):
    way = dataclasses.replace(graph.operations[3].default, overwrites=0)
    broken = (*graph.operations[:3], Operation("loss", "backward", (way,)))
    with pytest.raises(GraphError, match=r"'loss' overwrites 0, which is none of its inputs \(2,\)"):
        dataclasses.replace(graph, operations=broken)


def test_a_value_of_another_size_cannot_be_overwritten():
    with pytest.raises(GraphError, match=r"'add' overwrites 'y' of 8 bytes, but its outputs have \[4\] bytes"):
        residual(y=Value("y", 8))


def test_a_persistent_value_cannot_be_overwritten():
    with pytest.raises(GraphError, match="'add' overwrites the persistent value 'y'"):
        residual(y=Value("y", 4, persistent=True))


def test_of_several_outputs_one_that_may_go_takes_over_the_storage():
    way = Implementation((0,), (1, 2, 3), 1.0, overwrites=0)
    values = (Value("x", 4), Value("y", 2), Value("z", 4, persistent=True), Value("u", 4))
    graph = Graph("fork", values, (operation("x", "forward", [], [0], 1.0), Operation("f", "forward", (way,))))
    assert graph.heir(1) == 3
    assert graph.heir(0) is None
    plan = Plan.from_sequence(graph, [(0, 0, 1), (1, 1, 1), (1, 0, 1), (1, 1, 1)])
    first, again = (s for s in plan.statements if isinstance(s, Compute) and s.operation == 1)
    assert first.overwrites == again.overwrites == 0
    assert again.drops == (2,)  # the first version of what persists stays; the storage goes to another output
    assert plan.timeline.during.tolist()[:2] == [4, 10]
    assert replay(plan) == (4.0, plan.peak)


def test_a_dying_input_is_overwritten_instead_of_freed(plan):
    add = plan.statements[2]
    assert isinstance(add, Compute)
    assert add.overwrites == 1
    assert [s.value for s in plan.statements if isinstance(s, Free)] == [0, 2]
    assert plan.text(add) == "compute add in place of y"
    # x; x, y, workspace 1; x, z, workspace 2 and then without x; z, loss; without z
    assert plan.timeline.during.tolist() == [14, 19, 20, 18, 15, 15]
    assert plan.timeline.after.tolist() == [14, 18, 18, 14, 15, 11]
    assert replay(plan) == (4.0, 20)


def test_the_layers_of_the_figure_add_up_to_the_timeline(plan):
    parts = holdings(plan)
    assert parts.total.tolist() == plan.timeline.during[parts.statement].tolist()


def test_U_and_the_summary_count_the_storage_once(graph):
    S = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]]
    found = check(graph, np.eye(4), np.array(S))
    assert np.diag(found.schedule.U).tolist() == [14, 19, 20, 15]
    assert found.peak == found.U_peak == graph.summary().peak == 20


def test_an_input_that_lives_on_is_not_overwritten(graph):
    """Where f's output is kept into the next stage, the sum has a storage of its own, in U and in a longer plan."""
    S = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0]]
    assert Schedule(graph, np.eye(4), np.array(S)).U[2, 2] == 24
    sequence = [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 2, 1), (3, 3, 1)]
    plan = Plan.from_sequence(graph, sequence)
    assert [s.overwrites for s in plan.statements if isinstance(s, Compute)] == [None, None, None, 1, None]
    assert plan.timeline.peak == 24


def test_a_value_that_is_computed_again_is_overwritten_each_time(graph):
    sequence = [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 1, 1), (3, 2, 1), (3, 3, 1)]
    plan = Plan.from_sequence(graph, sequence)
    assert [s.overwrites for s in plan.statements if isinstance(s, Compute)] == [None, None, 1, None, 1, None]
    assert replay(plan) == (6.0, plan.timeline.peak)


def test_a_result_that_is_computed_again_is_dropped_and_takes_over_nothing():
    graph = residual(z=Value("z", 4, persistent=True))
    R = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]
    S = [[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]]
    found = check(graph, np.array(R), np.array(S))
    sums = [s for s in found.plan.statements if isinstance(s, Compute) and s.operation == 2]
    assert [(s.drops, s.overwrites) for s in sums] == [((), 1), ((2,), None)]
    assert found.schedule.U[3, 2] == found.peak == 10 + 4 + 4 + 4 + 4 + 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"overwrites": 0}, "statement 2 computes 'add' in place of a value that it cannot overwrite"),
        ({"drops": (2,)}, "statement 2 overwrites 'y' with an output that is not kept in its place"),
        ({"overwrites": None}, "the plan never frees 'y'"),
    ],
)
def test_the_checker_finds_a_wrong_takeover(plan, changes, message):
    statements = list(plan.statements)
    statements[2] = dataclasses.replace(statements[2], **changes)
    with pytest.raises(ScheduleError, match=message):
        replay(Plan(plan.graph, tuple(statements)))


def test_the_checker_finds_what_reads_an_overwritten_value(graph, plan):
    again = Compute(3, 2, 1, first=False, overwrites=1)
    statements = (*plan.statements[:3], Free(2, 2), again, *plan.statements[3:])
    with pytest.raises(ScheduleError, match="statement 4 computes 'add' without 'y' in memory"):
        replay(Plan(graph, statements))


def in_place(way: Implementation | None = None, **changes: object) -> Graph:
    """The graph of `residual`, whose addition has a second implementation that may run in place only."""
    graph = residual()
    add = graph.operations[2]
    only = dataclasses.replace(way or add.default, name="only", in_place=True, cost=0.5, **changes)  # type: ignore[arg-type]
    elsewhere = dataclasses.replace(add.default, overwrites=None)
    changed = dataclasses.replace(add, implementations=(elsewhere, only))
    again = operation("again", "backward", [2], [], 1.0)
    return dataclasses.replace(graph, operations=(*graph.operations[:2], changed, graph.operations[3], again))


def runs(graph: Graph, code: int, y_again: bool) -> tuple[np.ndarray, np.ndarray]:
    """R and S of each operation once, where a last stage reads y too, if asked."""
    R = np.eye(graph.n, dtype=int)
    R[2, 2] = code
    return R, Schedule(graph, R, np.zeros((graph.n, len(graph.values)))).compact().S


def test_a_round_trip_keeps_what_may_run_in_place_only(tmp_path):
    graph = in_place()
    graph.save(tmp_path / "graph.json")
    assert Graph.load(tmp_path / "graph.json") == graph
    entries = [way for node in json.loads(dump_graph(graph))["operations"] for way in node["implementations"]]
    assert [entry.get("in_place") for entry in entries] == [None, None, None, True, None, None]


@pytest.mark.parametrize("entry", [None, False, 1, "true", [True], {}])
def test_a_file_whose_in_place_is_not_true_is_refused(entry):
    document = json.loads(dump_graph(in_place()))
    document["operations"][2]["implementations"][1]["in_place"] = entry
    with pytest.raises(GraphError, match=r"operation 2 \('add'\) has an in_place flag that is not true"):
        Graph.from_document(document)


def test_what_overwrites_nothing_cannot_run_in_place_only():
    with pytest.raises(GraphError, match="'only' of operation 'add' may run in place only, but overwrites nothing"):
        in_place(overwrites=None)


def test_a_default_that_may_run_in_place_only_is_refused(graph):
    way = dataclasses.replace(graph.operations[2].default, in_place=True)
    broken = (*graph.operations[:2], Operation("add", "forward", (way,)), graph.operations[3])
    with pytest.raises(GraphError, match="the default implementation must be able to run wherever it is"):
        dataclasses.replace(graph, operations=broken)


@pytest.mark.parametrize("changes", [{"inputs": (1,)}, {"tolerance": -1.0}])
def test_what_may_run_in_place_only_needs_another_for_elsewhere(changes):
    with pytest.raises(GraphError, match=r"no other implementation|tolerance"):
        in_place(**changes)


def test_in_place_only_is_executed_where_its_input_dies():
    graph = in_place()
    checked = check(graph, *runs(graph, 2, False))
    assert checked.cost == 4.5
    assert [s.overwrites for s in checked.plan.statements if isinstance(s, Compute)] == [None, None, 1, None, None]


def test_in_place_only_is_refused_where_its_input_is_read_again():
    base = in_place()
    again = operation("again", "backward", [1], [], 1.0)
    graph = dataclasses.replace(base, operations=(*base.operations[:4], again))
    assert check(graph, *runs(graph, 1, True)).cost == 5.0
    message = "stage 2 computes 'add' with 'only', which may run in place only, but 'y' is read again later"
    with pytest.raises(ScheduleError, match=message):
        check(graph, *runs(graph, 2, True))


def test_a_plan_that_runs_elsewhere_what_may_run_in_place_only_is_refused():
    graph = in_place()
    plan = Plan.from_sequence(graph, [(k, k, 2 if k == 2 else 1) for k in range(5)])
    statements = [dataclasses.replace(s, overwrites=None) if isinstance(s, Compute) else s for s in plan.statements]
    with pytest.raises(ScheduleError, match="statement 2 computes 'add' with 'only', which may run in place only"):
        replay(Plan(graph, tuple(statements)))
