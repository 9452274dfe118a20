"""The row above the picture without a browser: it and the state follow one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.explorer.controls.scrubber import INTERVAL, Scrubber, stage_html, stage_sentence
from remat_explorer.explorer.state.state import State
from remat_explorer.graph import Graph, Value, operation


@pytest.fixture
def state() -> State:
    solution: Any = rx.solve(rx.linear(4), budget="100%", strategy="checkpoint-all")
    return State(graph=solution.graph, schedule=solution.schedule)


def test_slider_label_and_steps_follow_the_stage(state: State) -> None:
    view = Scrubber(state)
    assert (view.slider.max, view.label.value) == (8, "Stage 0 of 0–8")
    assert (view.back.disabled, view.forward.disabled) == (True, False)
    view.forward.click()
    assert (state.stage, view.slider.value, view.label.value) == (1, 1, "Stage 1 of 0–8")
    view.slider.value = 8  # what the slider in the browser does
    assert state.stage == 8
    assert (view.back.disabled, view.forward.disabled) == (False, True)
    view.back.click()
    assert state.stage == 7


def test_the_player_plays_at_its_speed_and_begins_again_after_the_end(state: State) -> None:
    view = Scrubber(state)
    state.stage = 3
    view.play.click()
    assert state.playing
    assert view.clock.playing
    assert state.stage == 3
    assert view.play.icon == "pause"
    view.speed.value = 4
    assert state.speed == 4
    assert view.clock.interval == INTERVAL // 4
    view.slider.value = 8
    view.clock.playing = False  # what the browser says at the end
    assert not state.playing
    assert view.play.icon == "play"
    state.playing = True
    assert state.stage == view.slider.value == 0


def test_the_picture_is_switched_both_ways(state: State) -> None:
    view = Scrubber(state)
    view.picture.value = "model"
    assert state.picture == "model"
    state.picture = "matrices"
    assert view.picture.value == "matrices"


def test_every_control_has_a_label_or_an_icon_and_a_tooltip(state: State) -> None:
    view = Scrubber(state)
    controls = [view.back, view.play, view.forward, view.slider, view.speed, view.search.field, view.search.next]
    assert all(control.tooltip for control in [*controls, view.search.previous])
    assert len(view.picture.tooltips) == len(view.picture.options)
    assert all(labelled.description for labelled in (view.picture, view.speed, view.search.field))


def test_without_a_schedule_nothing_plays() -> None:
    state = State()
    view = Scrubber(state)
    assert view.play.disabled
    assert view.forward.disabled
    assert view.label.value == "No schedule yet"
    assert stage_sentence(state) == ""


def test_the_sentence_of_a_stage_says_what_it_does_and_is_escaped() -> None:
    values = (Value("x", 4), Value("y", 4))
    nodes = (operation("<f>", "forward", [], [0], 1.0), operation("g", "backward", [0], [1], 1.0))
    schedule = rx.Schedule(Graph("pair", values, nodes), np.tril(np.ones((2, 2))), np.zeros((2, 2)))
    state = State(graph=schedule.graph, schedule=schedule)
    assert stage_sentence(state) == "computes <f> · starts with 0 kept values (0 B) · peaks at 4 B"
    assert "<f>" not in stage_html(state)
    state.stage = 1
    assert stage_sentence(state) == "computes g · recomputes 1 · starts with 0 kept values (0 B) · peaks at 8 B"
