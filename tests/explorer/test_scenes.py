"""Scenes of a presentation and the guided tour without a browser: what they bring, and what is said."""

from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.explanations import alive_at, recomputed
from remat_explorer.explorer import Scene
from remat_explorer.explorer.controllers.executing import describe_proof
from remat_explorer.explorer.controllers.model_sources import ModelSources
from remat_explorer.explorer.controllers.scenes import ScenePlayer
from remat_explorer.explorer.controllers.screen import auto_select, show_schedule
from remat_explorer.explorer.panels.compare_panel import ComparePanel
from remat_explorer.explorer.panels.plan_panel import PeakPanel
from remat_explorer.explorer.panels.side_panel import Click
from remat_explorer.explorer.presentations import PRESENTATIONS
from remat_explorer.explorer.state.state import PICTURES, State
from remat_explorer.explorer.tour import STEPS, Tour, TourView
from remat_explorer.models import names
from tests.explorer.driven import SCRIPT, driver_of, measurement, settled, solved


@pytest.fixture
def played(state: State) -> Any:
    """A state whose scenes are played, and where an execution is only noted."""
    executed: list[bool] = []
    ScenePlayer(state, lambda: executed.append(True))
    state.executed = executed  # type: ignore[attr-defined]
    return state


def test_scenes_bring_budget_picture_panel_and_place_and_the_last_is_the_last() -> None:
    presented = solved(driver_of(rx.linear(8), budget=4))
    presented.present(SCRIPT)
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
    state.scene = 99
    assert state.scene == 3
    state.scene = -7
    assert (state.scene, state.caption, state.playing) == (-1, "", False)
    presented.present()  # the usual ones prove only what can be executed
    assert not any(scene.execute for scene in state.scenes)
    assert "linear8: keeping every value" in state.caption
    assert len(state.scenes) == 5


def test_a_scene_waits_for_its_model_and_a_better_schedule_brings_its_numbers_and_its_place(played: Any) -> None:
    played.scenes, played.scene = (Scene("{peak}", at="peak"),), 0
    assert played.caption == "4 B"
    other = rx.solve(rx.linear(8), budget=10)
    show_schedule(played, other.schedule, other)
    assert played.caption == "10 B"
    assert played.stage == played.plan.timeline.stage[played.plan.timeline.peak_statement]
    state = State(graph=rx.linear(8), checkpoint_all_peak=10, busy="loading")
    ScenePlayer(state, lambda: None)
    state.scenes, state.scene = (Scene("{peak}", budget="40%"),), 0
    assert (state.budget, state.caption) == (0, "…")
    state.schedule = rx.solve(rx.linear(8), 4).schedule
    state.busy = ""
    assert (state.budget, state.caption) == (4, "4 B")


def test_what_is_to_be_proven_is_executed_once_and_then_said(played: Any) -> None:
    played.scenes, played.scene = (Scene("Prove it: {proof}", execute=True), Scene("Then")), 0
    assert (played.executed, played.caption) == ([True], "Prove it: …")
    played.measurement = measurement(played)
    assert played.caption == f"Prove it: {describe_proof(played.measurement)}"
    played.scene = 1
    played.scene = 0
    assert len(played.executed) == 1
    played.scenes, played.scene = (Scene("Here", budget="much", picture="model"),), 0  # a budget that cannot be had
    assert "'much'" in played.status
    assert (played.tone, played.picture, played.caption) == ("error", "model", "Here")


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


def test_presentations_are_of_models_of_the_zoo_and_every_picture_may_be_shown(played: Any) -> None:
    assert list(PRESENTATIONS) == ["checkmate-figure-1", "unet", "gpt2"]
    for shown in PRESENTATIONS.values():
        assert shown.model in names()
        assert len(shown.scenes) >= 5
        assert shown.scenes[0].budget == "100%"
    played.scenes = tuple(Scene("", picture=picture) for picture in PICTURES)
    for place, picture in enumerate(PICTURES):
        played.scene = place
        assert played.picture == picture


def test_the_tour_follows_what_the_person_does() -> None:
    driver = driver_of(rx.linear(8), budget=10)
    state, tour = driver.state, Tour(driver.state, wanted=True)
    driver.load()
    settled(driver)
    assert state.hint == 1
    state.budget = 4
    assert state.hint == 2
    solved(driver)
    assert state.hint == 3
    state.stage, state.value = 0, 0
    state.hint = 4
    state.stage = alive_at(state.plan).stage  # not yet asked for
    state.stage = 0
    auto_select(state)  # as when a better schedule is found, or the budget is dragged
    assert state.hint == 4
    other = next(at for at in recomputed(state.schedule) if at != state.auto_selection)
    state.stage, state.value = other  # a click on orange
    assert state.hint == 5
    PeakPanel(state).clicked(Click(action="go"))
    assert state.hint == 6
    ComparePanel(state).clicked(Click(action="keep"))
    assert state.other.strategy == "checkpoint-all"
    assert state.hint == 0
    state.hint, state.model = 3, "mlp"  # the hints end with their model
    assert settled(driver).state.hint == 0
    tour.close()


def test_next_and_back_go_through_the_steps_and_a_closed_tour_stays_closed() -> None:
    state, other = State(busy="loading"), State(busy="loading")
    view: Any = TourView(state, Tour(state, wanted=True))
    Tour(other, wanted=False)
    state.busy = other.busy = ""
    assert other.hint == 0  # to whom it is not offered
    assert (ModelSources().nothing_chosen, ModelSources("mlp").nothing_chosen) == (True, False)
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
    state.budget = 3
    state.busy = "loading"
    state.busy = ""
    assert state.hint == 0
