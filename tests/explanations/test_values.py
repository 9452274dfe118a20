"""Why a value is in memory or not, on chains whose schedules are written down here."""

import dataclasses

import numpy as np
import pytest

from remat_explorer.explanations import Mention, explain_value, lives_of
from remat_explorer.explanations.choices import operations_again
from remat_explorer.explanations.values import Presence
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import solve


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    """Four layers: v0 and v1 are freed on the way up, and computed again in stage 7 for the gradient v7."""
    R, S = np.eye(9, dtype=int), np.zeros((9, 9), dtype=int)
    R[7, [0, 1]] = 1
    for t, kept in {1: [0], 2: [1], 3: [2], 4: [2, 3], 5: [2, 3, 4], 6: [2, 5], 7: [6], 8: [0, 7]}.items():
        S[t, kept] = 1
    made = Schedule(linear(4), R, S)
    assert made.violation() is None
    return made


def why(schedule: Schedule, stage: int, value: int, budget: int | None = None) -> str:
    return explain_value(schedule, Plan.of(schedule), stage, value, budget).sentence


def test_a_kept_value_is_worth_what_would_have_to_run_without_it(schedule):
    # v2 without S[6]: v0 and v1 are not in memory either, so all three run
    found = explain_value(schedule, Plan.of(schedule), 5, 2)
    assert found.sentence == "Kept: recomputing it would run 3 operations, cost 3, before v6 needs it in stage 6."
    assert (found.kind, found.operations, found.cost) == (Presence.KEPT, (0, 1, 2), 3.0)
    led = [word for word in found.words if isinstance(word, Mention)]
    assert led == [Mention("v6", value=6, stage=6), Mention("stage 6", stage=6)]


def test_the_next_reader_and_the_reads_after_it_are_counted(schedule):
    found = explain_value(schedule, Plan.of(schedule), 3, 2)
    assert found.sentence.endswith("before v3 needs it in this stage. 1 more read follows, in stage 6.")
    assert found.next_read is not None
    statement = Plan.of(schedule).statements[found.next_read]
    assert isinstance(statement, Compute)
    assert (statement.stage, statement.operation) == (3, 3)


def test_a_recomputed_value_says_for_whom_and_what_keeping_it_would_have_meant(schedule):
    found = explain_value(schedule, Plan.of(schedule), 7, 1, budget=4)
    assert found.sentence == (
        "Recomputed here (2 operations, cost 2) for v7: keeping it from stage 2 would hold 1 B more at stage 5, which "
        "is 1 B above the budget, 4 B."
    )
    assert found.operations == (0, 1)
    assert why(schedule, 7, 0).endswith("which is 1 B above the peak of this plan, 4 B.")
    assert why(schedule, 7, 0, budget=5).endswith(
        "would hold 1 B more and reach 5 B at stage 5: by itself that is within the budget, 5 B."
    )


@pytest.mark.parametrize(
    ("stage", "value", "kind", "sentence"),
    [
        (2, 5, Presence.LATER, "Not computed yet: v5 computes it in stage 5."),
        (6, 4, Presence.DONE, "Not needed any more: v5 was the last to read it, in stage 5."),
        (4, 1, Presence.BETWEEN, "Not in memory now: freed in stage 2, computed again in stage 7 for v7 (2 op"),
        (1, 1, Presence.COMPUTED, "Computed here for the first time, by v1. v2 is the last to read it, in stage 2; "),
        (8, 8, Presence.COMPUTED, "Computed here for the first time, by v8. Nothing reads it, so it is freed at once."),
    ],
)
def test_every_way_to_stand_has_its_sentence(schedule, stage, value, kind, sentence):
    found = explain_value(schedule, Plan.of(schedule), stage, value)
    assert found.kind == kind
    assert found.sentence.startswith(sentence)


def test_what_is_kept_for_nobody_or_never_computed_is_called_so(schedule):
    S = schedule.S.copy()
    S[6, 3] = 1  # v3 was read for the last time in stage 5
    idle = Schedule(schedule.graph, schedule.R, S)
    found = explain_value(idle, Plan.of(idle), 6, 3)
    assert found.kind == Presence.IDLE
    assert found.sentence == (
        "S keeps it, but nothing reads it any more: the plan has freed it in stage 5, so it takes no memory."
    )
    S = schedule.S.copy()
    S[2:7, 0] = 1  # kept until stage 7, which computes v0 again
    idle = Schedule(schedule.graph, schedule.R, S)
    assert "before it is computed again in stage 7" in why(idle, 4, 0)
    never = Schedule(linear(1), np.diag([1, 1, 0]), np.zeros((3, 3)))
    assert why(never, 1, 2) == "Never computed: nothing that must be computed needs it."


def gradients() -> Schedule:
    """x -> loss, and a weight's gradient from x and the loss."""
    graph = Graph(
        "step",
        (Value("x", 4), Value("loss", 1, True), Value("w.grad", 2, True), Value("end", 1)),
        (
            operation("make x", "forward", [], [0], 0.25),
            operation("loss", "forward", [0], [1], 0.5),
            operation("w gradient", "backward", [0, 1], [2], 0.5),
            operation("end", "backward", [0], [3], 0.5),
        ),
    )
    S = np.zeros((4, 4), dtype=int)
    S[1:, 0] = S[2:, 1] = S[3:, 2] = 1
    return Schedule(graph, np.eye(4), S)


def test_persistent_values_say_what_they_are_and_that_they_stay():
    schedule = gradients()
    assert why(schedule, 3, 2) == "A parameter's gradient: it stays to the end from stage 2."
    assert why(schedule, 2, 1) == (
        "A result of the training step: it stays to the end. Next, w gradient reads it in this stage."
    )
    assert "A parameter's gradient: it stays to the end." in why(schedule, 2, 2)
    assert "1 operation, 250 ms, before w gradient needs it" in why(schedule, 2, 0)  # costs that are seconds


def test_operations_again_use_what_the_stage_computes_anyway(schedule):
    assert operations_again(schedule, 7, 1) == (1,)  # stage 7 computes v0
    assert operations_again(schedule, 7, 1, use_computed=False) == (0, 1)
    assert operations_again(schedule, 6, 2) == (0, 1, 2)


def test_lives_are_what_the_plan_holds_at_each_statement(schedule):
    for graph in (schedule.graph, overwriting(schedule.graph)):
        plan = Plan.of(Schedule(graph, schedule.R, schedule.S))
        lives = lives_of(plan)
        bytes_of = graph.value_bytes
        for i, statement in enumerate(plan.statements):
            held = sum(int(bytes_of[life.value]) for life in lives.at(i))
            assert held == plan.timeline.during[i]  # no workspace, nothing resident, nothing dropped
            if isinstance(statement, Free):
                assert any(life.last == i for life in lives.of_value[statement.value])


def overwriting(graph: Graph) -> Graph:
    """The chain whose forward operations write in place of their input where that dies."""
    operations = []
    for node in graph.operations:
        way = node.default
        over = way.inputs[0] if node.phase == "forward" and way.inputs else None
        operations.append(dataclasses.replace(node, implementations=(dataclasses.replace(way, overwrites=over),)))
    return dataclasses.replace(graph, operations=tuple(operations))


def test_a_value_that_is_overwritten_where_it_is_read_is_kept_until_then(schedule):
    in_place = Schedule(overwriting(schedule.graph), schedule.R, schedule.S)
    plan = Plan.of(in_place)
    assert any(getattr(statement, "overwrites", None) == 1 for statement in plan.statements)
    assert "before v2 needs it in this stage" in explain_value(in_place, plan, 2, 1).sentence


def test_every_stage_and_value_of_a_real_schedule_agrees_with_R_and_S(data):
    graph = Graph.load(str(data / "captured" / "vgg16.json"))
    schedule = solve(graph, budget="100%", strategy="ap-sqrt-n").schedule
    assert schedule is not None
    plan = Plan.of(schedule)
    for stage in range(0, schedule.stages, 7):
        for v in range(len(graph.values)):
            found = explain_value(schedule, plan, stage, v)
            if found.kind in (Presence.COMPUTED, Presence.RECOMPUTED):
                assert schedule.computed[stage, v]
            elif found.kind in (Presence.KEPT, Presence.PERSISTENT, Presence.IDLE):
                assert schedule.S[stage, v]
            else:
                assert not schedule.S[stage, v]
            if found.kind == Presence.LATER:
                assert not schedule.computed[: stage + 1, v].any()
