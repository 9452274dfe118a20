"""Operations with several implementations, that need not run, or whose output takes over the storage of an input."""

import dataclasses

import numpy as np
import pytest

from remat_explorer.checker import CheckedSchedule, check, replay
from remat_explorer.errors import GraphError, ScheduleError, SolverError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all, solve

X, MASK, SAVED, Y, LOSS, G = range(6)


@pytest.fixture
def masks() -> Graph:
    """y = f(x) saves statistics; its gradient reads x, or an eighth of it that an optional operation makes."""
    f = (Implementation((X,), (Y, SAVED), 3.0), Implementation((X, SAVED), (Y,), 1.0, name="renormalize"))
    gradient = (Implementation((LOSS, X), (G,), 2.0), Implementation((LOSS, MASK), (G,), 2.5, name="bits"))
    sizes = {"x": 80, "mask": 10, "saved": 2, "y": 80, "loss": 4}
    values = (*(Value(name, size) for name, size in sizes.items()), Value("g", 80, persistent=True))
    operations = (
        operation("x", "forward", [], [X], 1.0),
        Operation("mask", "forward", (Implementation((X,), (MASK,), 0.5),), optional=True),
        Operation("f", "forward", f),
        operation("loss", "backward", [Y], [LOSS], 1.0),
        Operation("g", "backward", gradient),
    )
    return Graph("masked", values, operations)


def test_only_mandatory_operations_have_a_stage_and_a_part_in_what_plain_execution_costs(masks):
    assert masks.mandatory.tolist() == [0, 2, 3, 4]
    assert masks.stages == 4
    assert masks.first_stage.tolist() == [0, 1, 1, 2, 3]
    assert masks.total_cost == 1 + 3 + 1 + 2
    everything = checkpoint_all(masks)
    assert everything.overhead == 1.0
    assert everything.is_frontier_advancing
    assert Plan.of(everything).peak == masks.summary().peak == 80 + 80 + 4


def test_a_schedule_with_a_mask_runs_the_optional_operation_in_one_stage(masks):
    R = np.array([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 2]])
    lean = Schedule(masks, R, np.zeros((4, 6))).compact()
    assert lean.S[3].nonzero()[0].tolist() == [MASK, LOSS]
    assert lean.is_frontier_advancing
    checked = check(masks, lean.R, lean.S)
    assert checked.cost == 1 + 0.5 + 3 + 1 + 2.5
    assert checked.peak == 80 + 10 + 80 + 2  # while f runs
    R[3] = [1, 1, 0, 0, 1]
    lean = Schedule(masks, R, np.zeros((4, 6))).compact()
    assert lean.R[:, 1].tolist() == [0, 0, 0, 0]  # what is made for nobody is dropped even at its first run


def test_an_implementation_may_read_what_an_earlier_run_of_its_operation_saved(masks):
    R = np.array([[1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [1, 0, 2, 1, 0], [1, 0, 0, 0, 1]])
    lean = Schedule(masks, R, np.zeros((4, 6))).compact()
    assert lean.S[2].nonzero()[0].tolist() == [SAVED]
    assert check(masks, lean.R, lean.S).cost == 7 + 1 + 1 + 1
    with pytest.raises(ScheduleError, match="its input 'saved' is neither computed nor retained"):
        check(masks, np.array([[1, 0, 0, 0, 0], [1, 0, 2, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 1]]), np.zeros((4, 6)))


@pytest.mark.parametrize(
    ("k", "outputs", "message"),
    [
        (4, None, "default implementation of 'g' reads 'mask'"),
        (2, None, r"'f' \(number 2\) reads 'saved'"),
        (4, (), "persistent value 'g' is written by no mandatory operation's default"),
    ],
)
def test_defaults_must_run_by_themselves_and_write_what_persists(masks, k, outputs, message):
    operations = list(masks.operations)
    first, *others = operations[k].implementations
    ways = (*others, first) if outputs is None else (dataclasses.replace(first, outputs=outputs), first)
    operations[k] = dataclasses.replace(operations[k], implementations=ways)
    with pytest.raises(GraphError, match=message):
        dataclasses.replace(masks, operations=tuple(operations))


def test_something_must_be_mandatory_and_strategies_that_run_every_operation_refuse_optional_ones(masks):
    for strategy in ("optimal", "rotor"):
        with pytest.raises(SolverError, match="'mask' is optional"):
            solve(masks, 1000, strategy)
    operations = tuple(dataclasses.replace(node, optional=True) for node in masks.operations)
    with pytest.raises(GraphError, match="optional operations only"):
        dataclasses.replace(masks, operations=operations)


def test_checkpoint_all_runs_no_optional_operation_and_proves_only_the_cheapest_implementations(masks):
    solution = solve(masks, 1000, "checkpoint-all")
    assert solution.cost == 7
    assert solution.lower_bound == 5  # f alone has a cheaper one


def test_a_schedule_of_a_graph_without_kinds_serves_the_same_graph_with_kinds(masks):
    *others, gradient = masks.operations
    ways = (gradient.default, dataclasses.replace(gradient.implementations[1], kinds=("masks",)))
    operations = (*others, dataclasses.replace(gradient, implementations=ways))
    with_kinds = dataclasses.replace(masks, operations=operations)
    solution = solve(masks, 10**6, "checkpoint-all")
    assert solution.on(with_kinds).cost == solution.cost


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


def test_U_and_the_summary_count_the_storage_once(graph):
    S = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]]
    found = check(graph, np.eye(4), np.array(S))
    assert np.diag(found.schedule.U).tolist() == [14, 19, 20, 15]
    assert found.peak == found.U_peak == graph.summary().peak == 20


def test_an_input_that_lives_on_is_not_overwritten(graph):
    S = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0]]
    assert Schedule(graph, np.eye(4), np.array(S)).U[2, 2] == 24
    sequence = [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 2, 1), (3, 3, 1)]
    plan = Plan.from_sequence(graph, sequence)
    assert [s.overwrites for s in plan.statements if isinstance(s, Compute)] == [None, None, None, 1, None]
    assert plan.timeline.peak == 24
    sequence = [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 1, 1), (3, 2, 1), (3, 3, 1)]  # computed again: each time
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
    again = (Free(2, 2), Compute(3, 2, 1, first=False, overwrites=1))
    with pytest.raises(ScheduleError, match="statement 4 computes 'add' without 'y' in memory"):
        replay(Plan(plan.graph, (*plan.statements[:3], *again, *plan.statements[3:])))


def in_place(**changes: object) -> Graph:
    """The graph of `residual`, whose addition has a second implementation that may run in place only."""
    graph = residual()
    add = graph.operations[2]
    only = dataclasses.replace(add.default, name="only", in_place=True, cost=0.5, **changes)  # type: ignore[arg-type]
    elsewhere = dataclasses.replace(add.default, overwrites=None)
    changed = dataclasses.replace(add, implementations=(elsewhere, only))
    again = operation("again", "backward", [2], [], 1.0)
    return dataclasses.replace(graph, operations=(*graph.operations[:2], changed, graph.operations[3], again))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"overwrites": None}, "'only' of operation 'add' may run in place only, but overwrites nothing"),
        ({"inputs": (1,)}, "no other implementation"),
        ({"tolerance": -1.0}, "tolerance"),
    ],
)
def test_what_may_run_in_place_only_overwrites_something_and_needs_another_for_elsewhere(changes, message):
    with pytest.raises(GraphError, match=message):
        in_place(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_place": True}, "the default implementation must be able to run wherever it is"),
        ({"overwrites": 3}, r"'add' overwrites 3, which is none of its inputs \(0, 1\)"),
    ],
)
def test_a_default_in_place_only_and_one_that_overwrites_what_it_may_not_are_refused(graph, changes, message):
    for y, why in ((Value("y", 8), r"8 bytes, but its outputs have \[4\]"), (Value("y", 4, True), "persistent value")):
        with pytest.raises(GraphError, match=why):
            residual(y=y)
    way = dataclasses.replace(graph.operations[2].default, **changes)
    broken = (*graph.operations[:2], Operation("add", "forward", (way,)), graph.operations[3])
    with pytest.raises(GraphError, match=message):
        dataclasses.replace(graph, operations=broken)


def checked(graph: Graph, code: int) -> CheckedSchedule:
    """Every operation runs once, the addition by this implementation."""
    R = np.eye(graph.n, dtype=int)
    R[2, 2] = code
    return check(graph, R, Schedule(graph, R, np.zeros((graph.n, len(graph.values)))).compact().S)


def test_in_place_only_is_executed_where_its_input_dies_and_refused_where_it_is_read_again():
    graph = in_place()
    found = checked(graph, 2)
    assert found.cost == 4.5
    assert [s.overwrites for s in found.plan.statements if isinstance(s, Compute)] == [None, None, 1, None, None]
    again = operation("again", "backward", [1], [], 1.0)
    read_again = dataclasses.replace(graph, operations=(*graph.operations[:4], again))
    assert checked(read_again, 1).cost == 5.0
    message = "stage 2 computes 'add' with 'only', which may run in place only, but 'y' is read again later"
    with pytest.raises(ScheduleError, match=message):
        checked(read_again, 2)
    made = found.plan.statements
    statements = [dataclasses.replace(s, overwrites=None) if isinstance(s, Compute) else s for s in made]
    with pytest.raises(ScheduleError, match="statement 2 computes 'add' with 'only', which may run in place only"):
        replay(Plan(graph, tuple(statements)))
