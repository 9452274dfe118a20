"""Schedules and their plans: rules, cost, U and frees against hand-made and reference answers; plans are made once."""

import dataclasses
import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from remat_explorer.checker import check, replay
from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.instances import linear
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers.solution import Solution
from remat_explorer.solvers.solver_interface import checkpoint_all


def keep_everything(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    n, V = graph.n, len(graph.values)
    S = np.zeros((n, V), dtype=int)
    for v in range(V):
        last = n - 1 if graph.persistent[v] else max(graph.readers[v], default=graph.producer[v])
        S[graph.producer[v] + 1 : last + 1, v] = 1
    return np.eye(n, dtype=int), S


def matrix(rows) -> np.ndarray:
    return np.array([[int(digit) for digit in row] for row in rows])


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


def test_U_of_a_step_with_workspace_and_persistent_values_by_hand():
    graph = training_step()
    checked = check(graph, *keep_everything(graph))
    # dropout: 10 + 2 + workspace 4; loss: + 1; grad: 10 + 2 + 1 + 5 + workspace 7
    assert np.diag(checked.schedule.U).tolist() == [116, 113, 125]
    assert checked.schedule.U[1].tolist() == [112, 113, 113]  # where an operation does not run: what is held
    assert checked.peak == checked.U_peak == 125
    assert checked.cost == 6.0
    assert check(graph, *keep_everything(graph), budget=125).peak == 125
    with pytest.raises(ScheduleError, match=r"stage 2 needs 125 B, above the budget of 124 B"):
        check(graph, *keep_everything(graph), budget=124)


def test_a_recomputed_persistent_value_keeps_its_first_version():
    operations = (
        operation("norm", "forward", [], [0, 1], 1.0),
        operation("middle", "forward", [0], [2], 1.0),
        operation("last", "backward", [0], [], 1.0),
    )
    graph = Graph("twice", (Value("x", 4), Value("statistics", 3, persistent=True), Value("y", 2)), operations)
    checked = check(graph, matrix(["100", "010", "101"]), matrix(["000", "110", "010"]))
    assert checked.schedule.U[2].tolist() == [10, 7, 7]  # the statistics that are there, and a second copy
    assert [s.drops for s in checked.plan.statements if isinstance(s, Compute)] == [(), (), (1,), ()]
    assert checked.peak == 10


@pytest.mark.parametrize(
    ("graph", "which", "cell", "message"),
    [
        (linear(2), "S", (3, 1), "stage 3 computes 'v3' but its input 'v1' is neither"),
        (linear(2), "S", (2, 4), "'v4' is retained into stage 2, but stage 1 neither computes nor retains"),
        (linear(2), "S", (0, 0), "stage 0 starts with 'v0' in memory"),
        (linear(2), "R", (4, 4), "'v4' is never computed"),
        (training_step(), "S", (2, 2), "stage 2 drops the persistent value 'loss'"),
    ],
)
def test_a_violation_is_named_in_words(graph, which, cell, message):
    R, S = keep_everything(graph)
    turned = {"R": R, "S": S}[which]
    turned[cell] = 1 - turned[cell]
    with pytest.raises(ScheduleError, match=message):
        check(graph, R, S)


@pytest.mark.parametrize("R", [np.zeros((5, 4)), np.full((5, 5), 2), np.full((5, 5), -1)])
def test_a_matrix_of_wrong_shape_or_content_is_refused(R):
    with pytest.raises(ScheduleError):
        check(linear(2), R, np.zeros((5, 5)))


def test_the_implementation_decides_inputs_outputs_and_cost():
    operations = (
        Operation("relu", "forward", (Implementation((), (0,), 1.0), Implementation((), (0, 1), 1.5))),
        Operation("grad", "backward", (Implementation((0,), (2,), 1.0), Implementation((1,), (2,), 1.0))),
    )
    graph = Graph("ways", (Value("x", 4), Value("mask", 1), Value("g", 4)), operations)
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
    assert compact.is_frontier_advancing
    assert not Schedule(linear(1), matrix(["111", "000", "000"]), np.zeros((3, 3))).is_frontier_advancing


EVERYTHING = [(k, k, 1) for k in range(5)]


def random_schedule(layers: int, seed: int) -> Schedule:
    """Values retained at random, and the fewest recomputations that make it valid."""
    graph, rng = linear(layers), np.random.default_rng(seed)
    n = graph.n
    R, S = np.eye(n, dtype=int), np.tril(rng.random((n, n)) < 0.4, -1).astype(int)
    for t in range(n):
        for k in range(t, -1, -1):
            if t + 1 < n and S[t + 1, k] and not S[t, k]:
                R[t, k] = 1
            if R[t, k]:
                for v in graph.inputs(k):
                    R[t, v] |= not S[t, v]
    return Schedule(graph, R, S)


def test_the_plan_never_peaks_above_U_and_replays_to_its_own_prediction():
    for seed in range(40):
        schedule = random_schedule(6, seed)
        found = check(schedule.graph, schedule.R, schedule.S)
        assert replay(found.plan) == (schedule.cost, found.plan.timeline.peak)
        assert found.peak <= found.U_peak
        compact = schedule.compact()
        assert check(compact.graph, compact.R, compact.S).peak <= found.peak
        assert compact.cost <= schedule.cost


def test_a_value_is_freed_right_after_its_last_use():
    plan = Plan.from_sequence(linear(2), EVERYTHING)
    frees = {s.value: i for i, s in enumerate(plan.statements) if isinstance(s, Free)}
    computes = {s.operation: i for i, s in enumerate(plan.statements) if isinstance(s, Compute)}
    assert frees[0] > computes[4]
    assert computes[3] < frees[1] < computes[4]
    timeline = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]).timeline
    assert timeline.during.tolist() == [1, 2, 3, 3, 2, 1]  # outputs are counted before inputs are freed
    assert timeline.after.tolist() == [1, 2, 3, 2, 1, 0]
    assert timeline.peak_statement == 2


def test_a_recomputation_replaces_the_version_before_it():
    plan = Plan.from_sequence(linear(2), [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 0, 1), (4, 4, 1)])
    kinds = [(s.operation, s.first) if isinstance(s, Compute) else -s.value for s in plan.statements]
    assert kinds.index(0) < kinds.index((0, False))  # v0 is freed before it is computed again
    assert plan.text(plan.statements[0]) == "compute v0"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda s: s[1:], "without 'v0' in memory"),
        (lambda s: (*s, Free(4, 0)), "frees 'v0', which is not held"),
        (lambda s: s[:-1], "never frees"),
        (lambda s: (s[0], *s), "overwrites 'v0', which is still held"),
        (lambda s: (dataclasses.replace(s[0], first=False), *s[1:]), "mislabels the first run of 'v0'"),
    ],
)
def test_the_checker_finds_a_broken_plan(broken, message):
    with pytest.raises(ScheduleError, match="statement 1 computes 'v2' but its input 'v1' was never computed"):
        Plan.from_sequence(linear(2), [(0, 0, 1), (1, 2, 1)])
    plan = Plan.from_sequence(linear(2), EVERYTHING)
    with pytest.raises(ScheduleError, match=message):
        replay(Plan(plan.graph, broken(plan.statements)))


GRAPH = linear(2)


class Thing:
    """Something that can be referred to weakly, and equals every other."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_equal_objects_are_told_apart_and_so_is_one_in_the_place_of_another():
    asked = []
    number = memoize_by_identity(lambda thing: asked.append(1) or len(asked))
    first, second = Thing(), Thing()
    assert (number(first), number(second), number(first)) == (1, 2, 1)
    for expected in range(3, 50):
        assert number(Thing()) == expected  # each dies at once, and the next may have its id


def fresh() -> Schedule:
    return checkpoint_all(GRAPH)


def test_whoever_has_a_schedule_shares_its_plan() -> None:
    schedule = fresh()
    solutions = [Solution(GRAPH, name, Status.FEASIBLE, 99, schedule, None, 0.0) for name in ("one", "another")]
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda _: Plan.of(schedule), range(64)), *(solution.plan for solution in solutions)]
    assert all(plan is found[0] for plan in found)
    assert Plan.of(fresh()) is not found[0]


def test_neither_schedule_nor_plan_outlives_those_who_need_them() -> None:
    schedule = fresh()
    gone = weakref.ref(schedule), weakref.ref(Plan.of(schedule))
    assert Plan.peak_of(schedule) == Plan.of(schedule).peak
    del schedule
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
