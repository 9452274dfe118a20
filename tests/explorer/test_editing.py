"""A schedule that is edited by hand: rules, steps, what stands on the screen, and who judges."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat_explorer as rx
from remat_explorer.checker import check
from remat_explorer.errors import RematError, ScheduleError, SolutionError, UnknownNameError
from remat_explorer.explorer import State
from remat_explorer.explorer.controllers.driver import Driver
from remat_explorer.explorer.controllers.model_sources import ModelSources
from remat_explorer.explorer.export import require_kind, write_export
from remat_explorer.explorer.matrices import MatrixView
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.state.edited_schedule import EditedSchedule
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import checkpoint_all
from remat_explorer.solvers.methods.two_phase_rounding import minimal_R, retained_values
from tests.explorer.driven import driver_of, html, message, plain, settled, solved, until
from tests.figures.choices import chain_with_choices
from tests.solvers.drawn_graphs import training_graphs
from tests.thorough import thorough

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


@pytest.mark.parametrize("count", [15, thorough(200)])
def test_whatever_is_edited_is_a_schedule_and_every_step_can_be_undone(count: int) -> None:
    @settings(max_examples=count, deadline=None)
    @given(edits())
    def edit_and_undo(drawn: Any) -> None:
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
            assert not (edited.schedule.S & ~retained_values(condensed, edited.kept)).any()
            whole = rx.Schedule(graph, edited.least, retained_values(condensed, edited.kept))
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

    edit_and_undo()


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
    assert driver.solution.cost == cost
    in_vain = driver.state.editing.in_vain
    assert in_vain[15, 3]
    sent = np.frombuffer(MatrixView(driver.state).widget.in_vain, np.uint8).reshape(17, -1)
    assert (np.unpackbits(sent, axis=1)[:, :17] == in_vain).all()
    assert not driver.state.schedule.S[15, 3]


def test_several_values_are_changed_in_one_step_and_what_is_impossible_is_left_out(driver: Any) -> None:
    driver.drop(5, ["v2", "v7", "v16"], until=8)  # v7 is computed in stage 7, and nobody reads v16
    kept = driver.state.editing.kept
    assert not kept[5:9, 2].any()
    assert (kept[4, 2], kept[8, 7], kept[9, 7]) == (True, False, True)
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
        (lambda d: d.keep(9, "w1"), "unknown value 'w1'"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_reason(driver: Any, call: Any, message: str) -> None:
    before = driver.state.editing
    with pytest.raises((ScheduleError, UnknownNameError), match=message):
        call(driver)
    assert driver.state.editing is before


def test_nothing_is_changed_before_editing_has_begun_or_while_something_else_is_under_way() -> None:
    driver = driver_of(CHAIN, 8)
    for call in (driver.undo, driver.judge, lambda: driver.keep(9, 2)):
        with pytest.raises(ScheduleError, match="press Edit first"):
            call()
    with pytest.raises(SolutionError, match='"everything"'):
        driver.edit("nothing")
    driver.edit("everything")
    driver.state.busy = "solving"
    with pytest.raises(RematError, match="Wait until solving is done"):
        driver.drop(9, "v2")
    driver.state.busy = ""
    driver.state.graph = rx.linear(4)
    assert driver.state.editing is None


def test_a_value_that_persists_stays_and_those_that_live_together_are_changed_together() -> None:
    values = (Value("a", 2), Value("b", 3), Value("w.grad", 4, persistent=True), Value("c", 1))
    operations = (
        operation("two", "forward", [], [0, 1], 1.0),
        operation("grad", "backward", [], [2], 1.0),
        operation("more", "backward", [], [3], 1.0),
        operation("end", "backward", [0, 1, 2, 3], [], 1.0),
    )
    edited = EditedSchedule.of(checkpoint_all(Graph("together", values, operations)))
    dropped = edited.drop(2, 0)
    assert not dropped.schedule.S[1:, :2].any()
    assert dropped.schedule.R[3].tolist() == [1, 0, 0, 1]
    assert edited.checked.cost + 1 == dropped.checked.cost
    with pytest.raises(ScheduleError, match=r"'w\.grad' is a parameter's gradient: once computed, it stays"):
        edited.drop(2, 2)
    driver = driver_of(chain_with_choices())
    with pytest.raises(ScheduleError, match=r"several implementations here.*Choose “none” under Implementations"):
        driver.edit()
    assert driver.state.editing is None
    with pytest.raises(ScheduleError, match=r"has 1 stage; .*start from keeping everything"):
        EditedSchedule.of(rx.Schedule(rx.linear(1), np.ones((1, 3)), np.zeros((1, 3))))


def test_it_stands_on_the_screen_as_a_solution_that_is_saved_loaded_and_compared(driver: Any, tmp_path: Path) -> None:
    driver.drop(9, "v2")
    driver.drop(9, "v5")
    solution = driver.solution
    assert (solution.strategy, solution.budget, solution.peak, solution.cost) == ("by hand", 8, 8, 19.0)
    assert driver.state.schedule is solution.schedule
    again: Any = rx.Solution.load(solution.save(tmp_path / "mine.json"), CHAIN)
    assert (again.schedule.R == driver.state.schedule.R).all()
    driver.compare(str(tmp_path / "mine.json"))
    assert driver.state.other.strategy == "by hand"
    driver.undo()  # above the budget: saved for its own peak
    over = driver.solution
    assert (over.peak, over.budget) == (9, 9)
    assert rx.Solution.load(over.save(tmp_path / "over.json"), CHAIN).peak == 9


def test_the_status_says_how_far_it_is_from_the_optimum_and_the_checker_of_the_exercises_judges(driver: Any) -> None:
    solved(driver)
    driver.edit("everything")
    assert driver.state.status == "By hand: overhead +0.0 %, predicted peak 10 B, 2 B above the budget of 8 B"
    assert driver.state.tone == "warning"
    assert driver.judge().startswith("Not yet: stage 9 needs 10 B, 2 B above the budget of 8 B")
    for value in ("v2", "v4", "v6"):
        driver.drop(9, value)
    assert driver.state.status == (
        "By hand: overhead +17.6 %, predicted peak 7 B, within the budget of 8 B, 1 B to spare · "
        "costs 5.3 % more than the optimum"
    )
    assert driver.judge() == "Not yet: it is a schedule and it fits, but costs 20; 19 is enough."
    driver.edit("everything")
    driver.drop(9, "v2")
    driver.drop(9, "v5")
    assert driver.state.status.endswith("within the budget of 8 B · proven best")
    assert (driver.state.tone, driver.solution.status) == ("good", Status.OPTIMAL)
    assert driver.judge() == driver.state.status == "Right: cost 19, peak 8 B."


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
    best = driver.state.frontier.best(9)
    assert (best.schedule, best.strategy, best.cost) == (driver.state.schedule, "by hand", 18)
    assert "nothing that is known within the budget costs less" in driver.state.status
    assert driver.judge() == "Right: cost 18, peak 9 B. Whether anything costs less is not proven."


def test_another_schedule_on_the_screen_leaves_it_to_go_on_with(driver: Any) -> None:
    panels = Panels(driver.state)
    driver.drop(9, "v2")
    mine = driver.state.schedule
    assert solved(driver).state.solution.strategy == "optimal"
    assert not driver.state.is_edited
    assert "Another schedule is on the screen" in html(panels, "edit")
    message(panels, "edit", action="go-on")
    assert driver.state.schedule is mine
    driver.edit("shown")
    assert driver.state.editing.schedule.cost == 18
    driver.undo()
    assert driver.state.editing.schedule.cost == 17
    driver.stop_editing()
    assert driver.state.editing is None
    assert driver.state.schedule is not None


def test_the_panel_tells_how_it_stands_and_reveals_the_best_known_only_when_asked(driver: Any) -> None:
    panels, state = Panels(driver.state), driver.state
    shown = plain(html(panels, "edit"))
    assert "2 B above the budget of 8 B" in shown
    assert "In memory at the peak for later stages only: v0 (1 B) , v1 (1 B) , v2 (1 B) , v3 (1 B) and 3 more" in shown
    message(panels, "edit", value=2, stage=10)
    assert (state.value, state.stage) == (2, 10)
    driver.drop(9, "v2")
    driver.drop(9, "v5")
    shown = plain(html(panels, "edit"))
    assert "peak 8 B within the budget of 8 B" in shown
    assert "recomputed 2 cost 2 more" in shown
    assert "best known" not in shown.partition("overhead")[0]
    message(panels, "edit", action="reveal")
    assert (state.panel, state.other.schedule) == ("compare", state.frontier.best(8).schedule)
    assert state.is_edited
    assert "yours best known" in plain(html(panels, "edit"))
    state.budget = 1
    with pytest.raises(SolutionError, match="smallest"):
        driver.reveal()
    message(panels, "edit", action="stop")
    assert state.editing is None
    for offered in ("Take the solver", "Edit what is shown"):
        assert offered in html(panels, "edit")


def test_the_page_holds_no_curve_while_a_schedule_is_edited_so_that_a_drag_gives_nothing_away() -> None:
    driver = driver_of(CHAIN, 8)
    widget = MatrixView(driver.state).widget
    driver.load()
    settled(driver)
    assert widget.frames
    driver.edit("everything")
    assert widget.frames == []
    driver.stop_editing()
    assert widget.frames


def test_what_was_edited_is_executed_and_exported_like_any_other(tmp_path: Path) -> None:
    driver = settled(
        Driver(State(improve=False, sweep=False, measured_costs=False, batch=16), ModelSources("mlp"), "100%")
    )
    driver.edit("everything")
    schedule = driver.state.schedule
    fixed = driver.state.editing.refusal
    stage, value = next((int(t), int(v)) for t, v in np.argwhere(schedule.S) if not fixed(t, v) and t > 4)
    driver.drop(stage, value)
    assert driver.solution.schedule.recomputations > 0
    driver.execute()
    settled(driver)
    assert driver.measurement.plan.graph is driver.solution.graph
    assert driver.measurement.eager.comparison.gradients_text.startswith("equal")
    write_export(driver.state, require_kind(driver.state, "report"), tmp_path / "report.html")
    assert "by hand" in (tmp_path / "report.html").read_text()
