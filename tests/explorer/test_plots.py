"""Trade-off and timeline follow the state, hear clicks, and send what changed at once in one message."""

from __future__ import annotations

import dataclasses
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.explorer.plots_view import PlotsView, live_figure
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.screen import choose_solution
from remat_explorer.figures.memory_stack import stack
from remat_explorer.figures.memory_timeline import hits
from remat_explorer.figures.tradeoff import points_of
from remat_explorer.solvers import Frontier, solve

GRAPH = rx.linear(8)


class Silent:
    """A connection to nobody."""

    kernel, comm_id = None, "none"

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: None


@pytest.fixture(scope="module")
def solutions() -> dict[int, Any]:
    return {budget: solve(GRAPH, budget) for budget in (4, 5, 6, 8)}


@pytest.fixture(scope="module")
def frontier(solutions: dict[int, Any]) -> Any:
    others = [solve(GRAPH, budget, strategy="chen-sqrt-n") for budget in (6, 8)]
    return Frontier(GRAPH, (*solutions.values(), *others))


@pytest.fixture
def state(solutions: dict[int, Any]) -> State:
    state = State(graph=GRAPH, checkpoint_all_peak=10, methods=True)
    choose_solution(state, solutions[5])
    return state


@pytest.fixture
def view(state: State) -> PlotsView:
    return PlotsView(state)


def test_a_sketch_stands_in_for_the_figure_until_a_page_has_drawn_it(view: PlotsView, state: State) -> None:
    first = view.sketch.value
    assert "predicted" in first
    assert "peak memory" in first
    state.budget = 9
    assert view.sketch.value != first
    view.page._handle_custom_msg({"arrived": True}, [])
    assert view.sketch.value == ""
    state.budget = 8
    assert view.sketch.value == ""


def trace(view: PlotsView, name: str, axis: str = "x") -> Any:
    return next(t for t in view.figure.data if t.name == name and t.xaxis == axis)


def click(view: PlotsView, clicked: Any, point: int) -> None:
    """What the browser sends when a point is clicked."""
    view.page._handle_custom_msg({"trace": clicked.name, "point": point}, [])


def messages(view: PlotsView) -> list[Any]:
    """What is sent to the browser from now on."""
    sent: list[Any] = []
    names = ["_py2js_update", "_py2js_restyle", "_py2js_relayout", "_py2js_addTraces", "_py2js_deleteTraces"]
    view.figure.observe(lambda change: sent.append(change["new"]) if change["new"] else None, names)
    return sent


def test_there_is_no_figure_before_there_is_a_schedule(state: State, solutions: dict[int, Any]) -> None:
    fresh = State(graph=GRAPH)
    view = PlotsView(fresh)
    assert view.figure is None
    choose_solution(fresh, solutions[4])
    assert view.figure is not None


def test_the_trade_off_says_when_it_will_appear(view: PlotsView, state: State, frontier: Any) -> None:
    said = view.figure.layout.annotations[0]
    assert said.visible
    assert "The trade-off curve appears here<br>while budgets are planned" in said.text
    state.frontier = Frontier(GRAPH, ())
    assert said.visible
    state.frontier = frontier
    assert not said.visible
    state.frontier = Frontier(GRAPH, (solve(GRAPH, 2),))
    assert said.visible
    assert "No strategy has a schedule" in said.text


def test_a_click_on_the_curve_makes_the_point_the_current_solution(
    view: PlotsView, state: State, frontier: Any
) -> None:
    state.frontier = frontier
    for strategy in ("chen-sqrt-n", "optimal"):
        click(view, trace(view, strategy), 0)
        point = points_of(frontier, strategy)[0]
        assert state.solution is point
        assert state.schedule is point.schedule
        assert (state.budget, state.strategy) == (point.budget, strategy)
        ring = trace(view, "selected")
        assert (ring.x[0], ring.y[0]) == (point.peak, pytest.approx(100 * ((point.overhead or 0) - 1)))
        assert state.status.startswith("Chosen: ")


def test_points_of_a_strategy_that_came_later_can_be_clicked_and_go_again(
    view: PlotsView, state: State, solutions: dict[int, Any], frontier: Any
) -> None:
    state.frontier = Frontier(GRAPH, (solutions[4],))
    before = len(view.figure.data)
    state.frontier = frontier
    assert len(view.figure.data) == before + 1
    click(view, trace(view, "chen-sqrt-n"), 0)
    assert state.strategy == "chen-sqrt-n"
    state.frontier = None
    assert len(view.figure.data) == before - 1


def test_a_click_on_the_timeline_selects_the_stage(view: PlotsView, state: State) -> None:
    plan: Any = state.plan
    layers = stack(plan)
    places = hits(layers, 1.08 * 5)
    place = int(np.flatnonzero(places.computation == 20)[0])
    click(view, trace(view, "places", "x2"), place)
    assert state.stage == layers.stage[20]
    assert state.value == 0
    assert (view.page.start, view.page.end) == layers.span(state.stage)


def test_a_click_on_what_stands_for_no_solution_changes_nothing(view: PlotsView, state: State, frontier: Any) -> None:
    state.frontier = frontier
    before = state.solution, state.stage
    click(view, trace(view, "selected"), 0)
    click(view, trace(view, "optimal"), 100)  # of a curve that has become shorter meanwhile
    assert (state.solution, state.stage) == before


def test_what_changes_at_once_is_one_message(
    view: PlotsView, state: State, frontier: Any, solutions: dict[int, Any]
) -> None:
    state.frontier = frontier
    sent = messages(view)
    choose_solution(state, solutions[8])
    assert len(sent) == 1
    choose_solution(state, solutions[8])
    assert len(sent) == 1
    assert max(trace(view, "predicted", "x2").y) == 8


def test_a_new_budget_sends_lines_and_axes_and_no_layers(view: PlotsView, state: State, frontier: Any) -> None:
    state.frontier = frontier
    state.budget = 7
    sent = messages(view)
    state.budget = 6
    assert tuple(trace(view, "budget", "x2").y) == (6, 6)
    assert tuple(trace(view, "budget 6 B").x) == (6, 6)
    names = {view.figure.data[i].name for i in sent[0]["style_traces"]}
    assert names == {"budget", "budget 6 B", "places"}


def test_the_legend_names_strategies_that_have_points(view: PlotsView, state: State, frontier: Any) -> None:
    marks = view._marks
    assert marks.value == ""
    state.frontier = Frontier(GRAPH, (*frontier.solutions, solve(GRAPH, 4, strategy="checkpoint-all")))
    assert "optimal" in marks.value
    assert "chen-sqrt-n" in marks.value
    assert "checkpoint-all" not in marks.value


def test_the_compared_solution_has_a_line_of_its_own(view: PlotsView, state: State, solutions: dict[int, Any]) -> None:
    line = trace(view, "compared", "x2")
    assert not line.visible
    state.other = solutions[8]
    assert line.visible
    assert max(line.y) == 8
    state.other = None
    assert not line.visible


def test_a_measurement_appears_in_both_plots(view: PlotsView, state: State, frontier: Any) -> None:
    state.frontier = frontier
    plan: Any = state.plan
    state.measurement = SimpleNamespace(during=plan.timeline.during + 2, peak=7, overhead=1.5)
    assert max(trace(view, "measured", "x2").y) == 7
    assert (trace(view, "measured").x[0], trace(view, "measured").y[0]) == (7, pytest.approx(50))
    state.measurement = None
    assert not trace(view, "measured").visible
    assert not trace(view, "measured", "x2").visible


def test_an_incumbent_without_a_solution_is_drawn(view: PlotsView, state: State, frontier: Any) -> None:
    state.frontier = frontier
    schedule = solve(GRAPH, 4).schedule
    with state.at_once():
        state.solution, state.schedule = None, schedule
    assert trace(view, "selected").x[0] == 4


def test_the_figure_that_a_reloaded_page_asks_for_is_the_present_one(
    view: PlotsView, state: State, frontier: Any, solutions: dict[int, Any]
) -> None:
    state.frontier = frontier
    choose_solution(state, solutions[8])
    sent = view.figure.get_state()
    assert [t["name"] for t in sent["_widget_data"]][-2:] == ["optimal", "chen-sqrt-n"]
    assert sent["_widget_layout"]["annotations"][0]["visible"] is False


def test_the_page_hears_of_the_figure_when_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "ipywidgets.widgets.widget.comm.create_comm", lambda **given: opened.append(given["data"]["state"]) or Silent()
    )
    figure = live_figure([{"type": "scatter", "x": [1, 2], "y": [3, 4]}], {"title": {"text": "both"}})
    (first,) = [state for state in opened if "_widget_data" in state]
    assert [len(trace["y"]) for trace in first["_widget_data"]] == [2]
    assert first["_widget_layout"]["title"]["text"] == "both"
    assert first["_config"]["displayModeBar"] is False
    assert figure.comm is not None


def test_what_a_worker_draws_while_the_kernel_hears_the_page_is_sent(
    view: PlotsView, state: State, solutions: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    figure, sent = view.figure, []
    worker = threading.Thread(target=choose_solution, args=(state, solutions[8]))
    plain = figure._trait_from_json

    def slowly(value: Any, widget: Any) -> Any:
        worker.start()
        worker.join(0.5)  # it waits for the kernel to have heard
        return plain(value, widget)

    monkeypatch.setattr(figure, "_trait_from_json", slowly)
    monkeypatch.setattr(type(figure), "_send", lambda self, message, buffers=None: sent.append(message))
    figure.set_state({"_view_count": 1})
    worker.join(30)
    updates = [message["state"]["_py2js_update"] for message in sent if "_py2js_update" in message.get("state", {})]
    assert any(update is not None for update in updates)


def test_what_a_page_that_is_behind_reports_takes_nothing_away(
    view: PlotsView, state: State, solutions: dict[int, Any]
) -> None:
    choose_solution(state, solutions[8])
    figure = view.figure
    line = trace(view, "predicted", "x2")
    reported = [{"uid": one.uid, "name": "older", "y": [1, 2], "visible": False} for one in figure.data]
    figure.set_state(
        {"_js2py_traceDeltas": {"trace_deltas": reported, "trace_edit_id": figure._last_trace_edit_id}},
    )
    figure.set_state(
        {"_js2py_layoutDelta": {"layout_delta": {"meta": 0}, "layout_edit_id": figure._last_layout_edit_id}},
    )
    assert (line.name, line.visible, max(line.y)) == ("predicted", True, 8)
    sent = figure.get_state()
    kept = next(one for one in sent["_widget_data"] if one.get("uid") == line.uid)
    assert (kept["name"], kept["visible"]) == ("predicted", True)
    assert "y" in kept
    assert sent["_widget_layout"]["meta"] == view.page.revision


def test_every_trace_of_a_message_is_whole_as_a_page_without_a_view_takes_away_what_is_not_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces = [
        {"type": "scatter", "name": "a", "x": [1], "y": [2], "marker": {"symbol": "star", "size": 3}},
        {"type": "scatter", "name": "b", "x": [3], "y": [4]},
    ]
    figure, sent = live_figure(traces, {}), []
    monkeypatch.setattr(type(figure), "_send", lambda self, message, buffers=None: sent.append(message["state"]))
    with figure.batch_update():
        figure.data[0].update(y=[5])
        figure.data[1].update(name="c", marker={"symbol": "circle"})
    (style,) = [state["_py2js_update"]["style_data"] for state in sent if state.get("_py2js_update")]
    assert [list(y) for y in style["y"]] == [[5], [4]]
    assert style["name"] == ["a", "c"]
    assert style["marker.symbol"] == ["star", "circle"]


def test_a_page_that_missed_changes_gets_the_figure_anew(
    view: PlotsView, state: State, solutions: dict[int, Any]
) -> None:
    first = view.figure
    before = view.page.revision
    assert first.layout.meta == before
    choose_solution(state, solutions[8])
    wanted = view.page.revision
    assert first.layout.meta == wanted > before
    view.page._handle_custom_msg({"missed": before}, [])
    assert view.figure is first  # the page has been told of something newer meanwhile
    view.page._handle_custom_msg({"missed": wanted}, [])
    renewed = view.figure
    assert renewed is not first
    assert view.widget.children[1].children == (view.sketch, renewed)
    assert renewed.layout.meta == view.page.revision > wanted
    assert max(trace(view, "predicted", "x2").y) == 8


def test_what_changes_nothing_is_no_revision(view: PlotsView, state: State, solutions: dict[int, Any]) -> None:
    before = view.page.revision
    choose_solution(state, solutions[5])
    state.budget = state.budget
    assert view.page.revision == before


def test_another_theme_changes_colours_and_no_numbers(view: PlotsView, state: State) -> None:
    before = [None if t.y is None else list(t.y) for t in view.figure.data]
    ink = view.figure.layout.font.color
    state.theme = "dark"
    assert view.figure.layout.font.color != ink
    assert [None if t.y is None else list(t.y) for t in view.figure.data] == before


def test_buttons_step_through_the_points_that_no_other_beats(view: PlotsView, state: State, frontier: Any) -> None:
    state.frontier = frontier
    choose_solution(state, frontier.nondominated()[1])
    before = state.plan.peak if state.plan else 0
    view.more.click()
    assert state.plan is not None
    assert state.plan.peak > before
    view.less.click()
    view.less.click()
    assert state.solution is frontier.nondominated()[0]
    view.less.click()
    assert state.status == "No point of the curve takes less memory."
    assert state.solution is frontier.nondominated()[0]


def test_a_solution_without_a_schedule_is_not_chosen(state: State) -> None:
    shown = state.schedule
    choose_solution(state, solve(GRAPH, 2))
    assert state.schedule is shown
    assert state.budget == 5


def test_choosing_reaches_observers_when_everything_is_in_place(state: State, solutions: dict[int, Any]) -> None:
    seen: list[tuple[Any, ...]] = []
    names = ["budget", "strategy", "solution", "schedule"]
    state.observe(lambda change: seen.append((state.budget, state.strategy, state.solution)), names)
    chosen = dataclasses.replace(solutions[8], strategy="checkmate-ilp")
    choose_solution(state, chosen)
    assert set(seen) == {(8, "checkmate-ilp", chosen)}


def test_the_curve_begins_with_its_best_points_and_shows_the_others_when_asked(
    view: PlotsView, state: State, frontier: Any
) -> None:
    state.frontier = frontier
    best = {(point.peak, point.strategy) for point in frontier.nondominated()}

    def drawn() -> int:
        return sum(len(t.x) for t in view.figure.data if t.name in frontier.strategies and t.xaxis == "x")

    every = drawn()
    view.methods.value = False
    assert not state.methods
    assert drawn() == len(best) < every
    assert "chen-sqrt-n" not in view._marks.value
    click(view, trace(view, "optimal"), 0)
    assert state.solution is not None
    assert state.solution.peak == min(peak for peak, _ in best)
    state.methods = True
    assert view.methods.value
    assert drawn() == every
