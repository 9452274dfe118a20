"""The guided tour: it opens where nothing was chosen, follows the person, and stays closed."""

from __future__ import annotations

from typing import Any

import remat_explorer as rx
from remat_explorer.explanations import alive_at, recomputed
from remat_explorer.explorer.panels.compare_panel import ComparePanel
from remat_explorer.explorer.panels.plan_panel import PeakPanel
from remat_explorer.explorer.panels.side_panel import Click
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.tour import STEPS, Tour, TourView
from remat_explorer.explorer.work.model_sources import ModelSources
from tests.explorer.driven import driver_of, settled


def loaded(wanted: bool = True) -> tuple[State, Tour]:
    state = State(busy="loading")
    tour = Tour(state, wanted)
    state.busy = ""
    return state, tour


def test_the_tour_follows_what_the_person_does() -> None:
    driver = driver_of(rx.linear(8))
    tour = Tour(driver.state, wanted=True)
    driver.load()
    settled(driver)
    assert driver.state.hint == 1
    driver.state.budget = 5
    assert driver.state.hint == 2
    driver.solve()
    settled(driver)
    assert driver.state.hint == 3
    tour.close()
    assert driver.state.hint == 0


def test_a_closed_tour_stays_closed() -> None:
    state, tour = loaded()
    tour.close()
    state.budget = 3
    state.busy = "loading"
    state.busy = ""
    assert state.hint == 0


def test_whoever_chose_a_model_gets_no_tour() -> None:
    assert loaded(wanted=False)[0].hint == 0
    assert ModelSources().nothing_chosen
    assert not ModelSources("mlp").nothing_chosen
    assert not ModelSources(graph=rx.linear(2)).nothing_chosen


def test_next_and_back_go_through_the_steps_and_the_last_one_closes() -> None:
    state, tour = loaded()
    view: Any = TourView(state, tour)
    assert view.widget.layout.display == "flex"
    assert view.back.disabled
    for step in (2, 3, 4, 5, 6):
        view.next.click()
        assert state.hint == step
        assert STEPS[step - 1][0] in view._text.value
    view.back.click()
    assert state.hint == 5
    view.next.click()
    view.next.click()
    assert state.hint == 0
    assert view.widget.layout.display == "none"


def test_the_later_steps_follow_a_click_on_orange_the_peak_and_a_comparison_with_keeping_everything() -> None:
    driver = driver_of(rx.linear(8), budget=4)
    state, tour = driver.state, Tour(driver.state, wanted=False)
    driver.solve()
    settled(driver)
    state.stage, state.value = 0, 0
    state.hint = 4
    state.stage = alive_at(state.plan).stage  # not yet asked for
    again = next(iter(recomputed(state.schedule)))
    state.stage = 0
    assert state.hint == 4
    state.stage, state.value = again
    assert state.hint == 5
    panel = PeakPanel(state)
    panel.clicked(Click(action="go"))
    assert state.hint == 6
    compare = ComparePanel(state)
    compare.clicked(Click(action="keep"))
    assert state.other.strategy == "checkpoint-all"
    assert state.hint == 0
    tour.close()
