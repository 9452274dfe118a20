"""The row above the picture without a browser: it and the state follow one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.explanations import values_of_stages
from remat_explorer.explorer.scrubber import Scrubber, stage_sentence
from remat_explorer.explorer.state.state import State
from remat_explorer.graph import Graph, Value, operation


@pytest.fixture
def state() -> State:
    solution: Any = rx.solve(rx.linear(4), budget="100%", strategy="checkpoint-all")
    return State(graph=solution.graph, schedule=solution.schedule)


def test_the_bar_follows_the_state_and_the_state_the_bar(state: State) -> None:
    bar = Scrubber(state).bar
    assert (bar.stage, bar.stages) == (0, 9)
    state.stage = 1
    assert bar.stage == 1
    bar.stage = 8  # what the slider in the browser does
    assert state.stage == 8
    bar.playing, bar.speed = True, 4
    assert (state.playing, state.speed) == (True, 4)
    state.playing = False
    assert not bar.playing


def test_the_last_stage_and_the_end_of_playing_may_come_in_one_message(state: State) -> None:
    bar = Scrubber(state).bar
    bar.playing, bar.stage = True, 7
    heard: list[bool] = []
    bar.observe(lambda change: heard.append(change["new"]), "playing")
    bar.set_state({"stage": 8, "playing": False})  # a page that heard of playing again would begin at stage 0
    assert (state.stage, state.playing, bar.stage, bar.playing) == (8, False, 8, False)
    assert heard == [False]
    assert state.schedule is not None
    assert state.value == values_of_stages(state.schedule)[8]


def test_while_the_stages_play_the_value_is_the_one_that_the_stage_is_about(state: State) -> None:
    bar = Scrubber(state).bar
    bar.stage = 3
    assert state.value == 0
    bar.playing = True
    bar.stage = 4
    assert state.schedule is not None
    assert state.value == values_of_stages(state.schedule)[4] != 0


def test_the_picture_is_switched_both_ways(state: State) -> None:
    view = Scrubber(state)
    view.picture.value = "model"
    assert state.picture == "model"
    state.picture = "matrices"
    assert view.picture.value == "matrices"


def test_every_control_has_a_label_or_an_icon_and_a_tooltip(state: State) -> None:
    view = Scrubber(state)
    assert all(control.tooltip for control in (view.search.field, view.search.next, view.search.previous))
    assert len(view.picture.tooltips) == len(view.picture.options)
    assert all(labelled.description for labelled in (view.picture, view.search.field))


def test_without_a_schedule_nothing_plays() -> None:
    state = State()
    bar = Scrubber(state).bar
    state.playing = True
    assert (bar.stages, bar.playing, bar.sentence) == (0, False, "")
    assert not state.playing


def test_the_sentence_of_a_stage_says_what_it_does() -> None:
    values = (Value("x", 4), Value("y", 4))
    nodes = (operation("<f>", "forward", [], [0], 1.0), operation("g", "backward", [0], [1], 1.0))
    schedule = rx.Schedule(Graph("pair", values, nodes), np.tril(np.ones((2, 2))), np.zeros((2, 2)))
    state = State(graph=schedule.graph, schedule=schedule)
    assert stage_sentence(state) == "computes <f> · starts with 0 kept values (0 B) · peaks at 4 B"
    state.stage = 1
    assert stage_sentence(state) == "computes g · recomputes 1 · starts with 0 kept values (0 B) · peaks at 8 B"
