"""A schedule that is edited by hand: rules, steps, what stands on the screen, and who judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat_explorer as rx
from remat_explorer.checker import check
from remat_explorer.errors import RematError, ScheduleError, SolutionError, UnknownNameError
from remat_explorer.explorer.state.edited_schedule import EditedSchedule
from remat_explorer.graph import Graph, Implementation, Operation, Value
from remat_explorer.graph.parts import operation
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import checkpoint_all
from remat_explorer.solvers.methods.two_phase_rounding import minimal_R, values_of
from remat_explorer.solvers.solution import Solution, Status
from tests.explorer.driven import driver_of, settled, until
from tests.solvers.drawn_graphs import training_graphs

CHAIN = rx.linear(8)  # v0 to v8, the loss included, and their gradients v9 to v16; stage 9 has the peak of 10 bytes


@pytest.fixture
def driver() -> Any:
    """The chain within 8 bytes, everything kept."""
    driver = driver_of(CHAIN, 8)
    driver.edit("everything")
    return driver


@st.composite
def edits(draw: st.DrawFn) -> tuple[Graph, list[tuple[int, int, bool, int | None]]]:
    graph = draw(training_graphs())
    stage, value = st.integers(0, graph.n - 1), st.integers(0, len(graph.values) - 1)
    until = st.none() | st.integers(0, graph.n + 1)
    return graph, draw(st.lists(st.tuples(stage, value, st.booleans(), until), min_size=1, max_size=12))


@settings(max_examples=60, deadline=None)
@given(edits())
def test_whatever_is_edited_is_a_schedule_with_the_least_R_and_every_step_can_be_undone(drawn: Any) -> None:
    graph, steps = drawn
    edited = first = EditedSchedule.of(checkpoint_all(graph))
    states = [edited]
    for stage, value, keep, last in steps:
        if edited.refusal(stage, value):
            with pytest.raises(ScheduleError):
                edited.keep(stage, value)
            continue
        edited = (edited.keep if keep else edited.drop)(stage, value, last)
        condensed = edited.condensed
        assert (edited.least == minimal_R(condensed, edited.kept)).all()  # though only some rows were made anew
        assert not (edited.schedule.S & ~values_of(condensed, edited.kept)).any()
        whole = Schedule(graph, edited.least, values_of(condensed, edited.kept))
        assert edited.schedule.cost <= whole.cost
        assert check(graph, edited.schedule.R, edited.schedule.S).peak == edited.checked.peak
        if edited is not states[-1]:
            states.append(edited)
    for before in reversed(states[:-1]):
        edited = edited.undo()
        assert (edited.kept == before.kept).all()
        assert (edited.schedule.R == before.schedule.R).all()
    assert edited.undo() is edited
    for after in states[1:]:
        edited = edited.redo()
        assert (edited.kept == after.kept).all()
    assert (edited.reset(first.schedule).schedule.R == first.schedule.R).all()


def test_a_drop_reaches_from_the_last_use_to_the_next_and_a_keep_brings_it_back(driver: Any) -> None:
    before = driver.state.schedule.S.copy()
    driver.drop(9, "v2")  # stage 3 reads v2, and stage 14, which computes its gradient, next
    S = driver.state.schedule.S
    assert np.flatnonzero(before[:, 2]).tolist() == list(range(3, 15))
    assert np.flatnonzero(S[:, 2]).tolist() == [3]
    assert driver.state.schedule.R[14, 2] == 1
    assert driver.solution.schedule.recomputations == 1
    driver.keep(6, "v2")
    assert (before == driver.state.schedule.S).all()
    assert driver.solution.cost == CHAIN.total_cost


def test_what_is_kept_for_nobody_is_not_held_until_something_reads_it(driver: Any) -> None:
    driver.drop(9, ["v1", "v2", "v3"], until=16)
    cost = driver.solution.cost
    driver.keep(15, "v3")  # stage 13 read it last
    edited = driver.state.editing
    assert driver.solution.cost == cost
    assert edited.in_vain[15, 3]
    assert not driver.state.schedule.S[15, 3]


def test_several_values_are_changed_in_one_step_and_what_is_impossible_is_left_out(driver: Any) -> None:
    driver.drop(5, ["v2", "v7", "v16"], until=8)  # v7 is computed in stage 7, and nobody reads v16
    kept = driver.state.editing.kept
    assert not kept[5:9, 2].any()
    assert kept[4, 2]
    assert not kept[8, 7]
    assert kept[9, 7]
    driver.undo()
    assert driver.solution.cost == CHAIN.total_cost
    driver.redo()
    assert not driver.state.editing.kept[5:9, 2].any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.drop(2, "v5"), "'v5' is computed in stage 5 first, and can be kept from stage 6 on"),
        (lambda d: d.keep(12, "v16"), "no operation reads 'v16', so it is never kept"),
        (lambda d: d.keep(99, "v1"), "there is no stage 99; the stages are 0 to 16"),
        (lambda d: d.keep(9, 17), "there is no value 17; the values are 0 to 16"),
        (lambda d: d.keep(9, "v1", until=3), "the last stage, 3, comes before the first, 9"),
        (lambda d: d.drop(3, ["v5", "v6"]), "'v5' is computed in stage 5 first"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_reason_and_changes_nothing(
    driver: Any, call: Any, message: str
) -> None:
    before = driver.state.editing
    with pytest.raises(ScheduleError, match=message.replace("(", "\\(")):
        call(driver)
    assert driver.state.editing is before
    with pytest.raises(UnknownNameError, match="unknown value 'w1'"):
        driver.keep(9, "w1")


def test_nothing_is_changed_before_editing_has_begun() -> None:
    driver = driver_of(CHAIN, 8)
    for call in (driver.undo, driver.judge, lambda: driver.keep(9, 2)):
        with pytest.raises(ScheduleError, match="press Edit first"):
            call()
    with pytest.raises(SolutionError, match='"everything"'):
        driver.edit("nothing")


def test_a_value_that_persists_stays_and_those_that_live_together_are_changed_together() -> None:
    values = (Value("a", 2), Value("b", 3), Value("w.grad", 4, persistent=True), Value("c", 1))
    operations = (
        operation("two", "forward", [], [0, 1], 1.0),
        operation("grad", "backward", [], [2], 1.0),
        operation("more", "backward", [], [3], 1.0),
        operation("end", "backward", [0, 1, 2, 3], [], 1.0),
    )
    graph = Graph("together", values, operations)
    edited = EditedSchedule.of(checkpoint_all(graph))
    dropped = edited.drop(2, 0)
    assert not dropped.schedule.S[1:, :2].any()
    assert dropped.schedule.R[3].tolist() == [1, 0, 0, 1]
    assert edited.checked.cost + 1 == dropped.checked.cost
    with pytest.raises(ScheduleError, match=r"'w\.grad' is a parameter's gradient: once computed, it stays"):
        edited.drop(2, 2)


def test_with_implementations_to_choose_editing_is_refused_with_the_reason() -> None:
    ways = (Implementation((), (0,), 1.0, name="fast"), Implementation((), (0,), 2.0, name="small"))
    last = Operation("read", "backward", (Implementation((0,), (1,), 1.0),))
    driver = driver_of(Graph("pair", (Value("x", 4), Value("y", 4)), (Operation("make", "forward", ways), last)))
    with pytest.raises(ScheduleError, match=r"several implementations here.*Choose “none” under Implementations"):
        driver.edit()
    assert driver.state.editing is None


def test_a_schedule_with_other_stages_is_refused_and_leaves_the_way_of_keeping_everything() -> None:
    graph = rx.linear(1)
    with pytest.raises(ScheduleError, match=r"has 1 stage; .*start from keeping everything"):
        EditedSchedule.of(Schedule(graph, np.ones((1, 3)), np.zeros((1, 3))))


def test_it_stands_on_the_screen_as_a_solution_that_is_saved_loaded_and_compared(driver: Any, tmp_path: Path) -> None:
    driver.drop(9, "v2")
    driver.drop(9, "v5")
    solution = driver.solution
    assert (solution.strategy, solution.budget, solution.peak, solution.cost) == ("by hand", 8, 8, 19.0)
    assert driver.state.schedule is solution.schedule
    again: Any = Solution.load(solution.save(tmp_path / "mine.json"), CHAIN)
    assert (again.schedule.R == driver.state.schedule.R).all()
    driver.compare(str(tmp_path / "mine.json"))
    assert driver.state.other.strategy == "by hand"
    driver.undo()  # above the budget: saved for its own peak
    over = driver.solution
    assert (over.peak, over.budget) == (9, 9)
    assert Solution.load(over.save(tmp_path / "over.json"), CHAIN).peak == 9


def test_the_status_says_how_far_it_is_from_the_budget_and_from_the_optimum(driver: Any) -> None:
    driver.solve()
    settled(driver)
    driver.edit("everything")
    assert driver.state.status == "By hand: overhead +0.0 %, predicted peak 10 B, 2 B above the budget of 8 B"
    assert driver.state.tone == "warning"
    for value in ("v2", "v4", "v6"):
        driver.drop(9, value)
    assert driver.state.status == (
        "By hand: overhead +17.6 %, predicted peak 7 B, within the budget of 8 B, 1 B to spare · "
        "costs 5.3 % more than the optimum"
    )
    driver.edit("everything")
    driver.drop(9, "v2")
    driver.drop(9, "v5")
    assert driver.state.status.endswith("within the budget of 8 B · optimal (proven)")
    assert (driver.state.tone, driver.solution.status) == ("good", Status.OPTIMAL)


def test_the_checker_of_the_exercises_judges(driver: Any) -> None:
    driver.solve()
    settled(driver)
    driver.edit("everything")
    assert driver.judge().startswith("Not yet: stage 9 needs 10 B, above the budget of 8 B")
    driver.drop(9, "v2")
    driver.drop(9, "v5")
    assert driver.judge() == driver.state.status == "Right: cost 19, peak 8 B."
    driver.drop(9, "v7")
    assert driver.judge() == "Not yet: it is a schedule and it fits, but costs 20; 19 is enough."


def test_another_budget_keeps_it_on_the_screen_and_judges_it_again(driver: Any) -> None:
    driver.drop(9, "v2")
    mine = driver.state.schedule
    for budget, said in ((9, "within the budget of 9 B"), (7, "2 B above the budget of 7 B"), (12, "3 B to spare")):
        driver.state.budget = budget
        assert driver.state.schedule is mine
        assert said in driver.state.status
        assert driver.solution.budget == max(budget, 9)
    driver.preview(5)  # as the slider does while it is dragged
    assert driver.state.schedule is mine


def test_improving_goes_on_behind_it_and_does_not_take_the_screen() -> None:
    driver = driver_of(CHAIN, 8, improve=True)
    driver.edit("everything")
    driver.drop(9, "v2")
    mine = driver.state.schedule
    driver.state.budget = 4
    assert until(lambda: driver.state.frontier.best(4) is not None and driver.state.frontier.best(4).cost == 26)
    assert driver.wait_for_sweep(60)
    assert driver.state.schedule is mine
    driver.stop()


def test_a_schedule_that_beats_what_is_known_joins_the_curve(driver: Any) -> None:
    driver.state.budget = 9
    driver.drop(9, "v2")
    assert driver.solution.cost == 18
    best = driver.state.frontier.best(9)
    assert (best.schedule, best.strategy) == (driver.state.schedule, "by hand")
    assert "nothing that is known within the budget costs less" in driver.state.status
    assert driver.judge() == "Right: cost 18, peak 9 B. Whether anything costs less is not proven."


def test_revealing_compares_with_the_best_that_is_known(driver: Any) -> None:
    driver.reveal()
    assert driver.state.panel == "compare"
    assert driver.state.other.schedule is driver.state.frontier.best(8).schedule
    assert driver.state.is_edited
    driver.state.budget = 1
    with pytest.raises(SolutionError, match="smallest"):
        driver.reveal()


def test_another_schedule_on_the_screen_leaves_it_to_go_on_with(driver: Any) -> None:
    driver.drop(9, "v2")
    mine = driver.state.schedule
    driver.solve()
    settled(driver)
    assert not driver.state.is_edited
    assert driver.state.solution.strategy == "optimal"
    driver.edit()
    assert driver.state.schedule is mine
    driver.edit("shown")
    assert driver.state.editing.schedule.cost == 18
    driver.undo()
    assert driver.state.editing.schedule.cost == 17
    driver.stop_editing()
    assert driver.state.editing is None
    assert driver.state.schedule is not None


def test_another_graph_ends_it(driver: Any) -> None:
    driver.state.graph = rx.linear(4)
    assert driver.state.editing is None


def test_while_something_else_is_under_way_nothing_is_edited(driver: Any) -> None:
    driver.state.busy = "solving"
    try:
        with pytest.raises(RematError, match="Wait until solving is done"):
            driver.drop(9, "v2")
    finally:
        driver.state.busy = ""
