"""The panel beside the plots, without a browser: each draws what the state says, and only while it is looked at."""

from __future__ import annotations

import dataclasses
import re
from html import unescape

import pytest

import remat_explorer as rx
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.panels.side_panel import Click
from remat_explorer.explorer.panels.solver_panel import progress_svg
from remat_explorer.explorer.state.state import PANELS, HistoryPoint, State
from remat_explorer.explorer.work.screen import show_schedule
from remat_explorer.graph import Graph, Value
from tests.explorer.panel_tools import html, measurement, message, plain


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
    assert "PyTorch's allocator on a GPU: 2.00 MiB reserved, 2.00 KiB allocated" in unescape(plain(shown))
    message(panels, "peak", action="go")
    assert state.stage == stage
    assert 'class="row value selected"' in panels.views["peak"].content.html


def test_the_solver_shows_incumbent_bound_gap_and_phase_while_it_works(panels: Panels, state: State) -> None:
    state.panel = "solver"
    state.busy = "solving"
    state.history = (HistoryPoint(0.5, 34.0, None), HistoryPoint(1.0, 34.0, 20.0), HistoryPoint(2.0, 26.0, 22.1))
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
    chart = progress_svg((HistoryPoint(0, 20, None), HistoryPoint(5, 15, None), HistoryPoint(10, 15, None)), 10.0)
    (line,) = re.findall(r'<polyline class="incumbent" points="([^"]*)"', chart)
    points = [tuple(map(float, point.split(","))) for point in line.split()]
    assert [round(x) for x, _ in points] == [52, 212, 212, 372]
    assert points[0][1] == points[1][1] < points[2][1] == points[3][1]
    assert "+100.0 %" in chart
    assert "+50.0 %" in chart
    assert progress_svg((HistoryPoint(1, None, None),), 10.0) == ""


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
