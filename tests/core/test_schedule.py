"""Schedules: the rules (1b) to (1e), cost, and U against hand-made and reference answers."""

import json

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.instances import linear
from remat_explorer.plan import Compute
from remat_explorer.schedule import Schedule


def keep_everything(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    n, V = graph.n, len(graph.values)
    S = np.zeros((n, V), dtype=int)
    for v in range(V):
        last = n - 1 if graph.persistent[v] else max(graph.readers[v], default=graph.producer[v])
        S[graph.producer[v] + 1 : last + 1, v] = 1
    return np.eye(n, dtype=int), S


def matrix(rows) -> np.ndarray:
    return np.array([[int(digit) for digit in row] for row in rows])


@pytest.fixture
def training_step() -> Graph:
    """Forward with a mask, backward with a persistent gradient; workspace in both."""
    return Graph(
        "step",
        (Value("x", 10), Value("mask", 2), Value("loss", 1, persistent=True), Value("w.grad", 5, persistent=True)),
        (
            operation("dropout", "forward", [], [0, 1], 3.0, workspace=4),
            operation("loss", "forward", [0], [2], 1.0),
            operation("grad", "backward", [0, 1], [3], 2.0, workspace=7),
        ),
        resident_bytes=100,
    )


def test_every_reference_optimum_of_the_chains_passes_the_checker(data):
    entries = json.loads((data / "optimal_linear.json").read_text())
    for entry in entries:
        graph = linear(int(entry["graph"].removeprefix("linear")))
        found = check(graph, matrix(entry["R"]), matrix(entry["S"]), entry["budget"])
        assert (found.cost, found.U_peak <= entry["budget"]) == (entry["optimum"], True)
        compact = found.schedule.compact()
        assert check(graph, compact.R, compact.S).U_peak <= found.U_peak
        assert compact.cost == found.cost
    assert len(entries) == 20


def test_U_of_a_step_with_workspace_and_persistent_values_by_hand(training_step):
    checked = check(training_step, *keep_everything(training_step))
    # dropout: 10 + 2 + workspace 4; loss: + 1; grad: 10 + 2 + 1 + 5 + workspace 7
    assert np.diag(checked.schedule.U).tolist() == [116, 113, 125]
    assert checked.peak == checked.U_peak == 125
    assert checked.cost == 6.0


def test_U_where_an_operation_does_not_run_is_what_is_held(training_step):
    U = check(training_step, *keep_everything(training_step)).schedule.U
    assert U[1].tolist() == [112, 113, 113]


def test_a_recomputed_persistent_value_keeps_its_first_version():
    graph = Graph(
        "twice",
        (Value("x", 4), Value("statistics", 3, persistent=True), Value("y", 2)),
        (
            operation("norm", "forward", [], [0, 1], 1.0),
            operation("middle", "forward", [0], [2], 1.0),
            operation("last", "backward", [0], [], 1.0),
        ),
    )
    R = matrix(["100", "010", "101"])
    S = matrix(["000", "110", "010"])
    checked = check(graph, R, S)
    assert checked.schedule.U[2].tolist() == [10, 7, 7]  # the statistics that are there, and a second copy
    assert [s.drops for s in checked.plan.statements if isinstance(s, Compute)] == [(), (), (1,), ()]
    assert checked.peak == 10


def test_the_first_violation_is_named_in_words():
    graph = linear(2)
    R, S = keep_everything(graph)
    S[3, 1] = 0
    with pytest.raises(ScheduleError, match="stage 3 computes 'v3' but its input 'v1' is neither"):
        check(graph, R, S)


def test_retaining_what_was_never_there_is_named():
    graph = linear(2)
    R, S = keep_everything(graph)
    S[2, 4] = 1
    with pytest.raises(ScheduleError, match="'v4' is retained into stage 2, but stage 1 neither computes nor retains"):
        check(graph, R, S)


def test_memory_before_the_first_stage_is_empty():
    graph = linear(2)
    R, S = keep_everything(graph)
    S[0, 0] = 1
    with pytest.raises(ScheduleError, match="stage 0 starts with 'v0' in memory"):
        check(graph, R, S)


def test_a_schedule_without_its_last_operation_is_refused():
    graph = linear(2)
    R, S = keep_everything(graph)
    R[4, 4] = 0
    with pytest.raises(ScheduleError, match="'v4' is never computed"):
        check(graph, R, S)


def test_a_dropped_persistent_value_is_named(training_step):
    R, S = keep_everything(training_step)
    S[2, 2] = 0
    with pytest.raises(ScheduleError, match="stage 2 drops the persistent value 'loss'"):
        check(training_step, R, S)


def test_a_budget_that_is_exceeded_by_one_byte_is_refused(training_step):
    R, S = keep_everything(training_step)
    assert check(training_step, R, S, budget=125).peak == 125
    with pytest.raises(ScheduleError, match=r"stage 2 needs 125 B, above the budget of 124 B"):
        check(training_step, R, S, budget=124)


@pytest.mark.parametrize("R", [np.zeros((5, 4)), np.full((5, 5), 2), np.full((5, 5), -1)])
def test_a_matrix_of_wrong_shape_or_content_is_refused(R):
    with pytest.raises(ScheduleError):
        check(linear(2), R, np.zeros((5, 5)))


def test_the_implementation_decides_inputs_outputs_and_cost():
    graph = Graph(
        "ways",
        (Value("x", 4), Value("mask", 1), Value("g", 4)),
        (
            Operation("relu", "forward", (Implementation((), (0,), 1.0), Implementation((), (0, 1), 1.5))),
            Operation("grad", "backward", (Implementation((0,), (2,), 1.0), Implementation((1,), (2,), 1.0))),
        ),
    )
    slim = Schedule(graph, matrix(["20", "02"]), matrix(["000", "010"]))
    assert slim.violation() is None
    assert slim.cost == 2.5
    assert slim.U[1].tolist() == [1, 5]
    broken = Schedule(graph, matrix(["10", "02"]), matrix(["000", "010"]))
    assert broken.violation() == "'mask' is retained into stage 1, but stage 0 neither computes nor retains it"


def test_compact_drops_what_serves_nothing():
    graph = linear(2)
    R, S = keep_everything(graph)
    R[4, 2] = 1  # nobody reads it again
    S[4, 1] = 1  # nor this
    compact = check(graph, R, S).schedule.compact()
    assert compact.R.sum() == graph.n
    assert not compact.S[4, 1]
    assert compact.recomputations == 0


def test_frontier_advancing_schedules_are_told_from_others():
    graph = linear(1)
    assert Schedule(graph, np.eye(3), np.zeros((3, 3))).is_frontier_advancing
    assert not Schedule(graph, matrix(["111", "000", "000"]), np.zeros((3, 3))).is_frontier_advancing
