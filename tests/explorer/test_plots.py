"""Curve, trade-off and timeline follow the state, hear clicks, and send what changed at once in one message."""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.explorer import State
from remat_explorer.explorer.controllers.screen import choose_solution
from remat_explorer.explorer.curve import CurveView, curve_of, points_on_curve
from remat_explorer.explorer.plots_figure import PlotsScene
from remat_explorer.explorer.plots_view import PlotsView, live_figure
from remat_explorer.figures import hits, points_of, stack
from remat_explorer.solvers import Frontier, solve
from tests.explorer.driven import until

GRAPH = rx.linear(8)


class Silent:
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
    state = State(graph=GRAPH, checkpoint_all_peak=10, methods=True, picture="plots")
    choose_solution(state, solutions[5])
    return state


@pytest.fixture
def view(state: State) -> PlotsView:
    return PlotsView(state)


def test_plots_are_drawn_only_while_they_are_looked_at(solutions: dict[int, Any], monkeypatch: Any) -> None:
    assert PlotsView(State(graph=GRAPH, picture="plots")).figure is None  # there is no schedule yet
    state = State(graph=GRAPH, checkpoint_all_peak=10)
    view = PlotsView(state)
    choose_solution(state, solutions[5])
    assert (view.figure, view.widget.layout.display) == (None, "none")
    state.picture = "plots"
    assert until(lambda: view.figure)
    assert max(trace(view, "predicted", "x2").y) == 5
    assert view.widget.layout.display is None
    state.picture = "overview"
    composed = PlotsScene.compose
    monkeypatch.setattr(PlotsScene, "compose", lambda *given: pytest.fail("drawn"))
    choose_solution(state, solutions[8])
    monkeypatch.setattr(PlotsScene, "compose", composed)
    state.picture = "plots"
    assert max(trace(view, "predicted", "x2").y) == 8


def trace(view: PlotsView, name: str, axis: str = "x") -> Any:
    return next(t for t in view.figure.data if t.name == name and t.xaxis == axis)


def click(view: PlotsView, clicked: Any, point: int) -> None:
    view.page._handle_custom_msg({"trace": clicked.name, "point": point}, [])


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


def test_a_click_on_the_curve_makes_a_point_the_current_solution(view: PlotsView, state: State, frontier: Any) -> None:
    state.frontier = frontier
    for strategy in ("chen-sqrt-n", "optimal"):
        click(view, trace(view, strategy), 0)
        point = points_of(frontier, strategy)[0]
        assert (state.solution, state.schedule) == (point, point.schedule)
        assert (state.budget, state.strategy) == (point.budget, strategy)
        ring = trace(view, "selected")
        assert (ring.x[0], ring.y[0]) == (point.peak, pytest.approx(100 * ((point.overhead or 0) - 1)))
        assert state.status.startswith("Chosen: ")
    before = state.solution, state.stage
    click(view, trace(view, "selected"), 0)  # which stands for no solution
    click(view, trace(view, "optimal"), 100)  # of a curve that has become shorter meanwhile
    choose_solution(state, solve(GRAPH, 2))  # which has no schedule
    assert (state.solution, state.stage) == before


def test_strategies_come_and_go_with_their_points(view: PlotsView, state: State, solutions: Any, frontier: Any) -> None:
    state.frontier = Frontier(GRAPH, (solutions[4],))
    traces = len(view.figure.data)
    state.frontier = frontier
    assert len(view.figure.data) == traces + 1
    state.frontier = Frontier(GRAPH, (*frontier.solutions, solve(GRAPH, 4, strategy="checkpoint-all")))
    assert "optimal" in view._marks.value
    assert "chen-sqrt-n" in view._marks.value
    assert "checkpoint-all" not in view._marks.value  # it has no point

    def drawn() -> int:
        return sum(len(t.x) for t in view.figure.data if t.name in frontier.strategies and t.xaxis == "x")

    every, best = drawn(), {(point.peak, point.strategy) for point in frontier.nondominated()}
    state.methods = False
    assert drawn() == len(best) < every
    assert "chen-sqrt-n" not in view._marks.value
    click(view, trace(view, "optimal"), 0)
    assert state.solution is not None
    assert state.solution.peak == min(peak for peak, _ in best)
    state.methods = True
    assert drawn() == every
    state.frontier = None
    assert len(view.figure.data) == traces - 1


def test_what_changes_at_once_is_one_message(view: PlotsView, state: State, frontier: Any, solutions: Any) -> None:
    state.frontier = frontier
    sent, seen = [], []
    kinds = [f"_py2js_{kind}" for kind in ("update", "restyle", "relayout", "addTraces", "deleteTraces")]
    view.figure.observe(lambda change: sent.append(change["new"]) if change["new"] else None, kinds)
    names = ["budget", "strategy", "solution", "schedule"]
    state.observe(lambda change: seen.append((state.budget, state.strategy, state.solution)), names)
    for _ in range(2):
        choose_solution(state, solutions[8])
        assert len(sent) == 1
    assert set(seen) == {(8, "optimal", solutions[8])}
    assert max(trace(view, "predicted", "x2").y) == 8
    whole = view.figure.get_state()  # as a reloaded page asks for it
    assert [t["name"] for t in whole["_widget_data"]][-2:] == ["optimal", "chen-sqrt-n"]
    assert whole["_widget_layout"]["annotations"][0]["visible"] is False
    revision = view.page.revision
    choose_solution(state, solutions[8])
    assert view.page.revision == revision
    state.budget = 6
    assert tuple(trace(view, "budget", "x2").y) == tuple(trace(view, "budget 6 B").x) == (6, 6)
    assert {view.figure.data[i].name for i in sent[1]["style_traces"]} == {"budget", "budget 6 B"}


def test_what_is_compared_and_measured_has_a_line(view: PlotsView, state: State, frontier: Any, solutions: Any) -> None:
    state.frontier = frontier
    line, plan = trace(view, "compared", "x2"), state.plan
    assert not line.visible
    state.other = solutions[8]
    assert line.visible
    assert max(line.y) == 8
    state.other = None
    assert not line.visible
    assert plan is not None
    state.measurement = SimpleNamespace(during=plan.timeline.during + 2, peak=7, overhead=1.5)
    assert max(trace(view, "measured", "x2").y) == 7
    assert (trace(view, "measured").x[0], trace(view, "measured").y[0]) == (7, pytest.approx(50))
    state.measurement = None
    assert not trace(view, "measured").visible
    assert not trace(view, "measured", "x2").visible
    with state.at_once():  # an incumbent
        state.solution, state.schedule = None, solve(GRAPH, 4).schedule
    assert trace(view, "selected").x[0] == 4


def test_a_click_on_the_timeline_selects_the_stage(view: PlotsView, state: State) -> None:
    plan: Any = state.plan
    layers = stack(plan)
    places = hits(layers, 1.08 * 5)
    place = int(np.flatnonzero(places.computation == 20)[0])
    click(view, trace(view, "places", "x2"), place)
    assert state.stage == layers.stage[20]
    assert state.value == 0
    assert (view.page.start, view.page.end) == layers.span(state.stage)


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


def test_what_a_worker_draws_meanwhile_is_sent(view: PlotsView, state: State, solutions: Any, monkeypatch: Any) -> None:
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


def test_what_a_page_that_is_behind_reports_takes_nothing_away(view: PlotsView, state: State, solutions: Any) -> None:
    choose_solution(state, solutions[8])
    figure = view.figure
    line = trace(view, "predicted", "x2")
    reported = [{"uid": one.uid, "name": "older", "y": [1, 2], "visible": False} for one in figure.data]
    figure.set_state({"_js2py_traceDeltas": {"trace_deltas": reported, "trace_edit_id": figure._last_trace_edit_id}})
    figure.set_state(
        {"_js2py_layoutDelta": {"layout_delta": {"meta": 0}, "layout_edit_id": figure._last_layout_edit_id}}
    )
    assert (line.name, line.visible, max(line.y)) == ("predicted", True, 8)
    sent = figure.get_state()
    kept = next(one for one in sent["_widget_data"] if one.get("uid") == line.uid)
    assert (kept["name"], kept["visible"]) == ("predicted", True)
    assert "y" in kept
    assert sent["_widget_layout"]["meta"] == view.page.revision


def test_every_trace_of_a_message_is_whole_for_a_page_without_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_curve_has_the_best_what_is_proven_and_the_points_of_other_methods_by_shape(frontier: Any) -> None:
    best, every = (curve_of(frontier, points_on_curve(frontier, others), "light") for others in (False, True))
    assert curve_of(None, [], "light") == {}
    assert [peak for peak, _ in best["best"]] == [4, 5, 6, 8]
    assert [overhead for _, overhead in best["best"]] == pytest.approx(
        [100 * (cost / 17 - 1) for cost in (26, 22, 21, 19)]
    )
    assert best["bound"][0] == [4, pytest.approx(100 * 9 / 17)]  # up to 4 bytes nothing is cheaper
    assert best["infeasible"] == every["infeasible"] == 0
    assert curve_of(Frontier(GRAPH, (solve(GRAPH, 2),)), [], "light")["infeasible"] == 2
    assert {strategy for *_, strategy in best["points"]} == set(best["marks"]) == {"optimal"}
    assert set(every["marks"]) == {"optimal", "chen-sqrt-n"}
    assert every["marks"]["optimal"][0] != every["marks"]["chen-sqrt-n"][0]  # corners
    proven = {strategy: is_proven for _, _, is_proven, _, strategy in every["points"]}
    assert proven == {"optimal": True, "chen-sqrt-n": False}


def test_a_press_on_a_point_of_the_curve_chooses_it_and_its_handle_stays_with_the_budget(frontier: Any) -> None:
    state = State(graph=GRAPH, checkpoint_all_peak=10, frontier=frontier, methods=True)
    slider = CurveView(state, lambda budget: None).slider
    (wanted,) = (i for i, (peak, *_, name) in enumerate(slider.curve["points"]) if (peak, name) == (6, "chen-sqrt-n"))
    slider._handle_custom_msg({"point": wanted}, [])
    assert (state.strategy, state.plan and state.plan.peak, slider.value) == ("chen-sqrt-n", 6, state.budget)
    for point in (-1, 99, "0", None):
        slider._handle_custom_msg({"point": point}, [])
    assert state.strategy == "chen-sqrt-n"
    for budget in (1, 30):  # below all that is possible, and above all that is needed
        state.budget = budget
        assert slider.low <= slider.value == budget <= slider.high
    assert slider.keep_all == 10
