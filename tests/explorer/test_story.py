"""The story, what is known beside it, and what runs twice: said in the same place whatever happens."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer import solvers
from remat_explorer.explorer import State
from remat_explorer.explorer.controllers.screen import show_schedule
from remat_explorer.explorer.panels.runs_twice import NOTHING, RunsTwiceView, repeated_values
from remat_explorer.explorer.story import Story, StoryView, chips, story_html, tell
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import checkpoint_all, extend_frontier, minimum_budget
from tests.explorer.driven import EQUAL, driver_of, measurement, plain, solved

CHAIN = rx.linear(8)


@pytest.fixture
def known(state: State) -> State:
    """The tight schedule on the screen, the smallest budget, and optima of two more budgets on the curve."""
    solution: Any = state.solution
    state.smallest = minimum_budget(solution.graph)
    found = [solution, *(rx.solve(solution.graph, budget) for budget in (6, 10))]
    state.frontier = extend_frontier(solution.graph, None, found)
    return state


def test_the_story_begins_with_a_model_and_says_when_everything_can_be_kept() -> None:
    state = State()
    assert tell(state) == Story("Choose a model.")
    state.busy = "loading"
    assert tell(state) == Story("A model is being read.")
    driver = driver_of(CHAIN, budget=12)
    assert tell(driver.state).sentence == "This step needs 10 B. In 12 B everything can be kept: nothing runs twice."


def test_a_tight_budget_is_told_with_what_it_costs_and_what_runs_again(known: Any, keep: rx.Solution) -> None:
    runs = np.array(known.schedule.R > 0).sum(axis=0)
    assert runs.max() > 2
    again = f"{np.count_nonzero(runs > 1)} operations run 2 to {runs.max()} times"
    assert tell(known) == Story(f"This step needs 10 B. In 4 B it costs 53 % more: {again}.")
    known.dragged = 6
    show_schedule(known, rx.solve(known.graph, 6).schedule, None)
    assert tell(known).sentence == "This step needs 10 B. In 6 B it costs 24 % more: 4 operations run twice."
    known.dragged, known.budget = 0, 6
    show_schedule(known, checkpoint_all(known.graph), keep)  # of another budget, and it is under way that it changes
    known.busy = "solving"
    assert tell(known).remedy == 0


def test_where_nothing_fits_the_story_says_whether_that_is_proven_and_its_button_sets_what_fits(known: Any) -> None:
    known.budget = 2
    assert tell(known) == Story("Nothing fits into 2 B. The least that is known is 4 B.", 4)
    known.budget = 3  # which is possible, though no point of the curve is there
    assert tell(known) == Story("No schedule is known that fits into 3 B. The least that is known is 4 B.", 4)
    found = rx.solve(known.graph, 3)
    known.frontier = extend_frontier(known.graph, known.frontier, [found])
    assert tell(known) == Story("The schedule on the screen does not fit into 3 B.", 3, "Show one that fits")
    known.budget = 2
    assert tell(known) == Story("Nothing fits into 2 B. The least that any schedule needs is 3 B.", 3)
    view: Any = StoryView(known, lambda: pytest.fail("nothing is under way"))
    known.say("'v7' alone needs 3 B", "warning")
    assert "Use 3 B" in view.widget.html
    assert view.widget.html.count("alone needs 3 B") == 1
    assert "<details>" in view.widget.html  # the button is all that one needs
    view.widget._custom({"action": "remedy"}, [])
    assert known.budget == 3


def test_an_own_schedule_and_memory_that_ran_out_are_told_in_the_same_place(known: Any) -> None:
    known.shortage = "memory ran out at 'compute v3'"
    assert tell(known) == Story("Memory ran out while the step was run.")
    known.budget = 1
    assert tell(known) == Story("Memory ran out while the step was run.", 4)
    driver = driver_of(CHAIN, budget=8)
    driver.edit("everything")
    driver.drop(9, "v2")
    said = "Your schedule needs 9 B and costs 5.9 % more: 1 operation runs twice."
    assert tell(driver.state) == Story(said)
    assert [words for words, _ in chips(driver.state)] == ["uses 9 of 8 B", "no module to run"]


def test_what_is_under_way_stands_beside_its_button_and_a_report_is_behind_a_click(known: Any) -> None:
    cancelled: list[bool] = []
    view = StoryView(known, lambda: cancelled.append(True))
    known.say("Proven best · gap 0 %", "good")
    assert "<details><summary>Report</summary>" in view.widget.html
    assert "Cancel" not in view.widget.html
    known.busy = "solving"
    known.say("Solving within 4 B: <bounds>")
    assert "<details>" not in view.widget.html
    assert "Solving within 4 B: &lt;bounds&gt;" in view.widget.html
    assert ">Cancel</button>" in view.widget.html
    view.widget._custom({"action": "cancel"}, [])
    assert cancelled == [True]
    known.busy, known.improving = "", True
    assert "Stop improving" in view.widget.html
    known.improving = False
    known.say("'batch' is not a batch size", "error")
    assert "<details>" not in view.widget.html  # what was refused is said in full
    known.say("Loaded chain")
    known.stale = True
    assert "The picture is still that of linear8." in plain(story_html(known))


def test_the_chips_say_how_good_how_much_and_whether_it_was_run(known: Any) -> None:
    solution: Any = known.solution
    assert chips(known) == [("proven best", "good"), ("uses 4 of 4 B", "plain"), ("no module to run", "plain")]
    known.inputs, known.solution = object(), replace(solution, status=Status.FEASIBLE, lower_bound=20.0)
    assert chips(known)[::2] == [("at most 30 % from the best", "plain"), ("not yet run: times are estimates", "plain")]
    known.solution = replace(solution, status=Status.FEASIBLE, lower_bound=None)
    assert chips(known)[0] == ("not proven how good", "plain")
    known.budget = 2048
    assert chips(known)[1] == ("uses 4 B of 2.00 KiB", "plain")
    known.budget = 3
    assert chips(known)[0] == ("uses 4 of 3 B", "error")  # what does not fit is not the best of anything
    known.budget = 4
    known.measurement = measurement(known)
    assert chips(known)[2] == ("measured 4 B, gradients equal", "good")
    run = measurement(known, more=3, compared=replace(EQUAL, loss_difference=1.0, gradients_equal=False))
    run.generated_peak = 9  # in the timed runs, which are code
    known.measurement = run
    assert chips(known)[2] == ("measured 9 B, results differ", "warning")
    assert "▲ measured 9 B" in plain(story_html(known))


def branches() -> Graph:
    """Three forward values of 2, 3 and 4 bytes, which cost 1, 5 and 5; the backward pass reads them all."""
    sizes, costs = (2, 3, 4, 1, 1, 1), (1.0, 5.0, 5.0, 1.0, 1.0, 1.0)
    reads = ((), (0,), (1,), (2,), (1, 3), (0, 4))
    passes: Any = ("forward",) * 3 + ("backward",) * 3
    nodes = (operation(f"<v{i}>", passes[i], reads[i], (i,), costs[i]) for i in range(6))
    return Graph("branches", tuple(Value(f"v{i}", size) for i, size in enumerate(sizes)), tuple(nodes))


def test_what_runs_twice_is_listed_by_what_it_costs_with_what_it_saves() -> None:
    graph = branches()
    R = np.eye(6)
    R[4, :2] = R[5, 0] = 1  # stage 4 computes values 0 and 1 again, and stage 5 value 0 once more
    S = np.zeros((6, 6))
    S[1, 0] = S[2, 1] = S[3, 2] = S[4, 3] = S[5, 4] = 1
    rows = repeated_values(rx.Schedule(graph, R, S))
    assert [(row.value, row.stage, row.times, row.bytes) for row in rows] == [(1, 4, 1, 3), (0, 4, 2, 2)]
    assert [row.share for row in rows] == pytest.approx([5 / 14, 2 / 14])


def test_a_row_is_marked_while_its_value_is_selected_and_selects_it(state: Any) -> None:
    view: Any = RunsTwiceView(state)
    rows, schedule = repeated_values(state.schedule), state.schedule
    assert sum(row.times for row in rows) == schedule.recomputations
    assert view.widget.html.count("<tr") == 1 + len(rows)
    view.widget._custom({"value": rows[1].value, "stage": rows[1].stage, "action": ""}, [])
    assert (state.value, state.stage) == (rows[1].value, rows[1].stage)
    assert view.widget.html.count('aria-current="true"') == 1
    state.schedule = checkpoint_all(state.graph)
    assert NOTHING in view.widget.html
    state.schedule = None
    assert "<table" not in view.widget.html


def test_a_budget_that_is_known_to_be_impossible_is_refused_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = driver_of(CHAIN, budget=4)
    monkeypatch.setattr(solvers, "SolveJob", None)
    for budget in (1, 2):
        driver.state.budget = budget
        assert solved(driver).state.tone == "error"
        assert driver.state.answer.status is Status.INFEASIBLE
        assert "alone needs 3 B" in driver.state.status
    assert driver.state.schedule is not None  # the one from before
