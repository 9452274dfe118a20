"""Scenes of a presentation without a browser: what they bring to the screen, and what is said."""

from __future__ import annotations

from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.explorer import Scene
from remat_explorer.explorer.presentations import PRESENTATIONS
from remat_explorer.explorer.presenter import PresenterView
from remat_explorer.explorer.recording import Recording
from remat_explorer.explorer.state.state import PICTURES, State
from remat_explorer.explorer.work.executing import describe_proof
from remat_explorer.explorer.work.scenes import ScenePlayer
from remat_explorer.explorer.work.screen import show_schedule
from remat_explorer.models import names
from remat_explorer.solvers import minimum_budget
from tests.explorer.driven import driver_of, settled
from tests.explorer.panel_tools import measurement

SCRIPT = [
    Scene("Everything kept: {keep_all}", "100%", "model", at="peak"),
    Scene("{peak} within {budget}: {saved} less, {overhead}", "4", "matrices", "explain", "recomputation"),
    Scene("Stage 3", panel="plan", at=3),
    Scene("It plays", picture="model", play=True),
]


@pytest.fixture
def presented() -> Any:
    """An explorer on a chain, at the first scene."""
    explorer = driver_of(rx.linear(8), budget=4)
    explorer.solve()
    settled(explorer).present(SCRIPT)
    return explorer


def test_scenes_bring_budget_picture_panel_and_place(presented: Any) -> None:
    state = presented.state
    assert (state.scene, state.caption, state.picture) == (0, "Everything kept: 10 B", "model")
    assert (state.budget, state.plan.peak) == (10, 10)
    assert state.stage == state.plan.timeline.stage[state.plan.timeline.peak_statement]
    state.scene += 1
    assert (state.budget, state.picture, state.panel) == (4, "matrices", "explain")
    assert state.caption == "4 B within 4 B: 60 % less, +52.9 %"
    operation = state.graph.producer[state.value]
    assert state.schedule.R[state.stage, operation] > 0
    assert (state.schedule.R[:, operation] > 0).argmax() < state.stage
    state.scene += 1
    assert (state.stage, state.panel, state.budget, state.picture) == (3, "plan", 4, "matrices")
    state.scene += 1
    assert (state.playing, state.stage, state.picture) == (True, 0, "model")
    state.scene -= 1
    assert not state.playing
    state.scene = 0
    state.scene = 2  # a jump shows what the scenes between would have left
    assert (state.budget, state.picture, state.panel, state.stage) == (4, "matrices", "plan", 3)


def test_the_last_scene_is_the_last_and_an_end_says_nothing_more(presented: Any) -> None:
    state = presented.state
    state.scene = 99
    assert state.scene == 3
    state.scene = -7
    assert (state.scene, state.caption, state.playing) == (-1, "", False)


def test_a_better_schedule_brings_its_numbers_and_its_place(state: State) -> None:
    ScenePlayer(state, lambda: None)
    state.scenes, state.scene = (Scene("{peak}", at="peak"),), 0
    assert state.caption == "4 B"
    other = rx.solve(rx.linear(8), budget=10)
    show_schedule(state, other.schedule, other)
    assert state.caption == "10 B"
    assert state.plan is not None
    assert state.stage == state.plan.timeline.stage[state.plan.timeline.peak_statement]


def test_a_scene_waits_for_its_model() -> None:
    state = State(graph=rx.linear(8), checkpoint_all_peak=10, busy="loading")
    ScenePlayer(state, lambda: None)
    state.scenes, state.scene = (Scene("{peak}", budget="40%"),), 0
    assert (state.budget, state.caption) == (0, "…")
    state.schedule = rx.solve(rx.linear(8), 4).schedule
    state.busy = ""
    assert (state.budget, state.caption) == (4, "4 B")


def test_what_is_to_be_proven_is_executed_once_and_then_said(state: State) -> None:
    executed: list[bool] = []
    ScenePlayer(state, lambda: executed.append(True))
    state.scenes, state.scene = (Scene("Prove it: {proof}", execute=True), Scene("Then")), 0
    assert (executed, state.caption) == ([True], "Prove it: …")
    state.measurement = measurement(state)
    assert state.caption == f"Prove it: {describe_proof(state.measurement)}"
    state.scene = 1
    state.scene = 0
    assert len(executed) == 1


def test_a_budget_that_cannot_be_had_is_said_and_the_scene_goes_on(state: State) -> None:
    ScenePlayer(state, lambda: None)
    state.scenes, state.scene = (Scene("Here", budget="much", picture="model"),), 0
    assert "'much'" in state.status
    assert (state.tone, state.picture, state.caption) == ("error", "model", "Here")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"picture": "modle"}, UnknownNameError, "did you mean 'model'"),
        ({"panel": "plans"}, UnknownNameError, "did you mean 'plan'"),
        ({"at": "top"}, QuantityError, "'top' is no place"),
        ({"at": -1}, QuantityError, "-1 is no place"),
        ({"caption": "{peek}"}, UnknownNameError, "did you mean 'peak'"),
        ({"caption": "100 {"}, QuantityError, "brace"),
    ],
)
def test_a_scene_that_cannot_be_is_refused_in_words(given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Scene(**{"caption": "", **given})


def test_bar_and_state_follow_each_other(state: State) -> None:
    ScenePlayer(state, lambda: None)
    asked: list[bool] = []
    bar = PresenterView(state, lambda: asked.append(True)).widget
    bar._handle_custom_msg({"present": True}, [])
    assert asked == [True]
    state.scenes = tuple(SCRIPT)
    bar._handle_custom_msg({"present": True}, [])  # those that there are
    assert (asked, state.scene) == ([True], 0)
    assert (bar.scene, bar.count, bar.caption) == (0, 4, "Everything kept: 10 B")
    bar.scene = 2
    assert (state.scene, bar.caption) == (2, "Stage 3")


def test_usual_scenes_prove_only_what_can_be_executed(presented: Any) -> None:
    presented.present()
    assert not any(scene.execute for scene in presented.state.scenes)
    assert "linear8: keeping every value" in presented.state.caption
    assert len(presented.state.scenes) == 5


def test_presentations_are_of_models_of_the_zoo_and_of_places_that_there_are() -> None:
    assert list(PRESENTATIONS) == ["checkmate-figure-1", "unet", "gpt2"]
    for shown in PRESENTATIONS.values():
        assert shown.model in names()
        assert len(shown.scenes) >= 5
        assert shown.scenes[0].budget == "100%"


@pytest.mark.parametrize("picture", PICTURES)
def test_a_scene_may_show_every_picture_of_the_explorer(picture: str) -> None:
    state = State(scenes=(Scene("", picture=picture),), schedule=rx.solve(rx.linear(4), 4).schedule)
    ScenePlayer(state, lambda: None)
    state.scene = 0
    assert state.picture == picture


def test_the_live_page_has_each_scene_as_it_is_on_its_curve() -> None:
    graph = rx.linear(8)
    frontier = rx.Frontier(graph, tuple(rx.solve(graph, budget) for budget in (3, 4, 10)))
    recording = Recording(frontier, minimum_budget(graph), 10)
    recorded = recording.presented.scenes([*SCRIPT, Scene("{proof}", execute=True)])
    assert [scene["caption"] for scene in recorded] == [
        "Everything kept: 10 B",
        "4 B within 4 B: 60 % less, +52.9 %",
        "Stage 3",
        "It plays",
    ]  # what was not measured is not proven
    assert [scene["budget"] for scene in recorded] == [10, 4, 4, 4]
    assert [scene["stage"] for scene in recorded[2:]] == [3, 0]
    best = frontier.best(4)
    assert best is not None
    assert best.schedule is not None
    found = measurement(State(graph=graph, schedule=best.schedule))
    measured = Recording(frontier, minimum_budget(graph), 10, measurement=found)
    assert measured.presented.scenes()[-1]["caption"] == f"Proof: {describe_proof(found)}"
    assert measured.presented.scenes()[-1]["draw"]
