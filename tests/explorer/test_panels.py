"""The panel beside the plots, without a browser: each draws what the state says, and only while it is looked at."""

from __future__ import annotations

import dataclasses
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.explorer import executing
from remat_explorer.explorer.clickable import Click
from remat_explorer.explorer.comparing import open_other, pin, swap
from remat_explorer.explorer.execution_panel import card_html
from remat_explorer.explorer.loading import Inputs
from remat_explorer.explorer.panels import Panels
from remat_explorer.explorer.progress_chart import progress_svg
from remat_explorer.explorer.solving import show_schedule
from remat_explorer.explorer.state import PANELS, Moment, State
from remat_explorer.graph import Graph, Value
from remat_explorer.plan import Plan


@pytest.fixture
def state() -> State:
    """The eight-layer chain with its optimum within 4 bytes on the screen."""
    solution = rx.solve(rx.linear(8), budget=4)
    found = State(graph=solution.graph, budget=4, checkpoint_all_peak=10)
    show_schedule(found, solution.schedule, solution)
    return found


@pytest.fixture
def panels(state: State) -> Panels:
    return Panels(state)


def html(panels: Panels, name: str) -> str:
    panels._state.panel = name
    return panels.views[name].content.html


def plain(content: str) -> str:
    """What a person reads."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", content))


def message(panels: Panels, name: str, **content: Any) -> None:
    """What a click in the browser sends."""
    panels.views[name].content._custom({"value": None, "stage": None, "action": "", **content}, [])


def test_there_is_one_tab_with_a_tooltip_for_each_panel(panels: Panels) -> None:
    assert [name for _, name in panels.tabs.options] == list(PANELS) == list(panels.views)
    assert all(panels.tabs.tooltips)
    assert len(panels.tabs.tooltips) == len(PANELS)


def test_tabs_and_state_follow_each_other(panels: Panels, state: State) -> None:
    state.panel = "peak"
    assert panels.tabs.value == "peak"
    assert panels._body.children == (panels.views["peak"].widget,)
    panels.tabs.value = "plan"
    assert state.panel == "plan"
    assert panels._body.children == (panels.views["plan"].widget,)


def test_only_the_visible_panel_draws_and_the_others_catch_up_when_they_are_chosen(
    panels: Panels, state: State
) -> None:
    state.panel = "plan"
    explained = panels.views["explain"].content.html
    state.stage = 9
    assert panels.views["explain"].content.html == explained
    assert "t=9" in panels.views["plan"].content.html
    state.panel = "explain"
    assert "in stage 9" in plain(panels.views["explain"].content.html)


def test_a_panel_that_is_chosen_again_unchanged_is_not_drawn_again(panels: Panels, state: State, monkeypatch) -> None:
    state.panel = "plan"
    state.panel = "explain"
    monkeypatch.setattr(panels.views["plan"], "html", lambda: pytest.fail("drawn again"))
    state.panel = "plan"


@pytest.mark.parametrize("name", PANELS)
def test_every_panel_says_what_to_do_before_there_is_anything(name: str) -> None:
    assert len(plain(html(Panels(State()), name))) > 40


def test_the_selected_value_is_explained_in_the_selected_stage(panels: Panels, state: State) -> None:
    state.value, state.stage = 4, 9
    shown = plain(html(panels, "explain"))
    assert "Kept: recomputing it would run" in shown
    assert "it reads v3 read by v5 , v12" in shown
    state.stage = 0
    assert "Not computed yet" in plain(panels.views["explain"].content.html)


def test_a_click_on_a_name_selects_its_value_and_stage(panels: Panels, state: State) -> None:
    html(panels, "explain")
    message(panels, "explain", value=5, stage=11)
    assert (state.value, state.stage) == (5, 11)
    message(panels, "explain", stage=3)
    assert (state.value, state.stage) == (5, 3)
    message(panels, "explain", value=10**9, stage=-4)  # a click that is older than the schedule
    assert (state.value, state.stage) == (16, 0)


def test_clicking_a_statement_selects_its_stage_and_value(panels: Panels, state: State) -> None:
    shown = html(panels, "plan")
    assert 'data-value="1" data-stage="1"' in shown
    message(panels, "plan", value=1, stage=1)
    assert (state.value, state.stage) == (1, 1)
    assert re.search(
        r'<tr class="first selected[^"]* own" data-value="1" data-stage="1">', panels.views["plan"].content.html
    )


def test_the_peak_lists_what_is_alive_and_leads_there(panels: Panels, state: State) -> None:
    state.value = 16
    shown = html(panels, "peak")
    plan = state.plan
    assert plan is not None
    stage = int(plan.timeline.stage[plan.timeline.peak_statement])
    assert f"4 B at statement {plan.timeline.peak_statement}" in plain(shown)
    assert shown.count('class="row value') == 4  # four bytes of one each
    message(panels, "peak", action="go")
    assert state.stage == stage
    assert 'class="row value selected"' in panels.views["peak"].content.html


def test_the_solver_shows_incumbent_bound_gap_and_phase_while_it_works(panels: Panels, state: State) -> None:
    state.panel = "solver"
    state.busy = "solving"
    state.history = (Moment(0.5, 34.0, None), Moment(1.0, 34.0, 20.0), Moment(2.0, 26.0, 22.1))
    state.say("Solving within 4 B: branch and bound")
    shown = panels.views["solver"].content.html
    assert "branch and bound" in shown
    assert "+52.9 %" in shown  # 26 of 17
    assert "+30.0 %" in shown
    assert "15.0 %" in shown
    assert shown.count("<polyline") == 2
    state.busy, state.answer = "", state.solution
    assert "Optimal : optimal, highs, within 4 B" in plain(panels.views["solver"].content.html)


def test_steps_of_the_chart_hold_until_the_next_one(state: State) -> None:
    chart = progress_svg((Moment(0, 20, None), Moment(5, 15, None), Moment(10, 15, None)), 10.0)
    (line,) = re.findall(r'<polyline class="incumbent" points="([^"]*)"', chart)
    points = [tuple(map(float, point.split(","))) for point in line.split()]
    assert [round(x) for x, _ in points] == [52, 212, 212, 372]
    assert points[0][1] == points[1][1] < points[2][1] == points[3][1]
    assert "+100.0 %" in chart
    assert "+50.0 %" in chart
    assert progress_svg((Moment(1, None, None),), 10.0) == ""


def test_two_solutions_are_compared_swapped_and_parted(panels: Panels, state: State) -> None:
    assert "disabled" in html(panels, "compare")
    message(panels, "compare", action="pin")
    first = state.solution
    assert state.other is first
    second = rx.solve(rx.linear(8), budget=5)
    show_schedule(state, second.schedule, second)
    shown = plain(panels.views["compare"].content.html)
    assert "4 B of 4 B" in shown
    assert "5 B of 5 B" in shown
    message(panels, "compare", action="swap")
    assert (state.solution, state.other) == (first, second)
    assert first is not None
    assert state.schedule is first.schedule
    message(panels, "compare", action="stop")
    assert state.other is None


def test_cells_of_only_one_schedule_are_counted(panels: Panels, state: State) -> None:
    keep = rx.solve(rx.linear(8), budget=10, strategy="checkpoint-all")
    state.other = keep
    assert state.schedule is not None
    assert keep.schedule is not None
    more = int(((state.schedule.R > 0) & (keep.schedule.R == 0)).sum())
    assert more == state.schedule.recomputations
    assert f"computed only here {more} 0" in plain(html(panels, "compare"))


def test_a_solution_file_is_opened_as_the_other(panels: Panels, state: State, tmp_path: Path) -> None:
    path = rx.solve(rx.linear(8), budget=5).save(tmp_path / "five.json")
    state.panel = "compare"
    compare: Any = panels.views["compare"]
    compare.path.value = str(path)
    compare.open.click()
    assert state.other is not None
    assert state.other.budget == 5
    assert "five.json" in state.status


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), ("[]", "is not a JSON object"), ("other graph", "another graph")]
)
def test_a_file_that_cannot_be_compared_is_a_sentence(
    state: State, tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "solution.json"
    if content == "other graph":
        rx.solve(rx.linear(3), budget=5).save(path)
    elif content is not None:
        path.write_text(content)
    open_other(state, str(path))
    assert state.other is None
    assert state.tone == "error"
    assert reason in state.status


def test_nothing_to_compare_is_a_sentence() -> None:
    empty = State()
    for action in (pin, swap):
        action(empty)
        assert empty.tone == "warning"


def test_the_other_solution_goes_with_its_graph(panels: Panels, state: State) -> None:
    pin(state)
    state.schedule = state.solution = None
    state.graph = rx.linear(3)
    assert state.other is None


def measurement(state: State, more: int = 0) -> Any:
    """A measurement of the solution on the screen, with ``more`` bytes of workspace at statement 3."""
    plan = state.plan
    assert plan is not None
    during = plan.timeline.during.copy()
    during[3] += more
    compared = SimpleNamespace(
        gradients_equal=True, gradient_difference=0.0, loss_difference=0.0, buffers_equal=True, random_state_equal=True
    )
    return SimpleNamespace(
        plan=plan,
        during=during,
        after=np.asarray(plan.timeline.after),
        peak=int(during.max()),
        predicted_peak=plan.peak,
        resident_bytes=0,
        generated_peak=int(during.max()),
        error=(int(during.max()) - plan.peak) / plan.peak,
        dynamic_error=0.0,
        budget=4,
        within_budget=int(during.max()) <= 4,
        predicted_overhead=1.5,
        overhead=1.6,
        seconds=0.2,
        checkpoint_all_seconds=0.125,
        eager=SimpleNamespace(peak=10, seconds=0.1, comparison=compared),
        allocator=SimpleNamespace(requested=100, allocated=200, reserved=300),
        device="cuda",
        missing="",
    )


def test_the_validation_card_has_predicted_beside_measured(panels: Panels, state: State) -> None:
    state.measurement = measurement(state)
    shown = plain(html(panels, "execution"))
    for part in (
        "peak 4 B 4 B +0.00 %",
        "overhead +50.0 % +60.0 % 200 ms against 125 ms",
        "held : at most 4 B of 4 B",
        "equal : max difference 0",
        "plain PyTorch 10 B, 100 ms",
        "requested 100 B · allocated 200 B · reserved 300 B",
        "measured and predicted memory are equal at every statement",
    ):
        assert part in shown


def test_the_card_says_where_prediction_and_measurement_differ_most_and_why(state: State) -> None:
    shown = card_html(measurement(state, 7))
    assert "exceeded" in shown
    assert "+7 B at statement 3, compute v2 : the workspace of v2 was 7 B larger than predicted" in plain(shown)
    assert 'data-stage="2"' in shown


def test_running_out_of_memory_is_shown_as_a_result(panels: Panels, state: State, monkeypatch: Any) -> None:
    import remat_explorer.runtime as runtime

    def run_out(*args: Any, **kwargs: Any) -> None:
        raise OutOfMemoryError("memory ran out at 'compute v3' (statement 6 of 52)", statement=5)

    monkeypatch.setattr(runtime, "measure", run_out)
    state.inputs = Inputs(None, ())
    executing.execute(state, threading.Event())
    assert state.shortage.startswith("memory ran out at")
    assert state.tone == "warning"
    assert state.stage == Plan.of(state.schedule).statements[5].stage  # type: ignore[arg-type]
    assert state.panel == "execution"
    shown = plain(panels.views["execution"].content.html)
    assert "Out of memory on cpu. Predicted: 4 B. Memory ran out at" in shown
    other = rx.solve(rx.linear(8), budget=5)
    show_schedule(state, other.schedule, other)
    assert state.shortage == ""
    assert "Out of memory" not in panels.views["execution"].content.html


def test_the_legend_explains_terms_and_strategies_until_a_tab_is_chosen(panels: Panels, state: State) -> None:
    panels.legend.value = True
    assert state.legend
    shown = plain(panels._body.children[0].html)
    for term in ("stage t", "R", "S", "U", "budget", "overhead", "gap", "peak"):
        assert f" {term} " in shown
    assert "checkmate-ilp" in shown
    panels.tabs.value = "plan"
    assert not state.legend
    assert panels._body.children == (panels.views["plan"].widget,)


def test_names_are_escaped_everywhere(state: State) -> None:
    evil = '<img src=x onerror="alert(1)">'
    graph = state.graph
    assert graph is not None
    assert state.solution is not None
    named = Graph(
        evil,
        tuple(Value(f"{evil}{v}", value.bytes) for v, value in enumerate(graph.values)),
        tuple(dataclasses.replace(node, name=f"{evil}{k}") for k, node in enumerate(graph.operations)),
    )
    found = State(graph=named, budget=4)
    solution = rx.solve(named, budget=4)
    show_schedule(found, solution.schedule, solution)
    found.other, found.answer, found.shortage = solution, solution, evil
    shown = Panels(found)
    for name in PANELS:
        content = html(shown, name)
        assert "<img" not in content
    found.shortage, found.measurement = "", measurement(found, 7)
    assert "<img" not in html(shown, "execution")


def test_a_click_without_numbers_selects_nothing(state: State) -> None:
    panels = Panels(state)
    state.value = 3
    message(panels, "explain", value="7", stage=None)
    assert state.value == 3
    assert Click() == Click(None, None, "")


def test_a_schedule_with_fewer_stages_is_drawn_before_the_stage_follows(panels: Panels, state: State) -> None:
    state.stage, state.value = 16, 16
    small = rx.solve(rx.linear(2), budget="100%", strategy="checkpoint-all")
    for name in PANELS:
        state.panel = name
        state.schedule = rx.solve(rx.linear(8), budget=4).schedule
        state.schedule = small.schedule
    assert "in stage 4" in plain(html(panels, "explain"))
