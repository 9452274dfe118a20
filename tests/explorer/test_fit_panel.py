"""The panel Fit: whether a training step fits into a memory, asked and answered without a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import UnknownNameError
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.state.state import OPTIMIZERS, PRECISIONS, State
from remat_explorer.explorer.work import fit_answers
from remat_explorer.explorer.work.driver import Driver
from remat_explorer.explorer.work.exploration_cache import show_cached, store_exploration
from remat_explorer.explorer.work.fit_answers import FIT_SETTINGS
from remat_explorer.explorer.work.model_sources import NO_WEIGHTS, ModelSources, ModuleInputs
from remat_explorer.fit import optimizers
from remat_explorer.models import PRECISIONS as KNOWN_PRECISIONS
from tests.explorer.panel_tools import html, message, plain

SOON = 60.0


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    found = Driver(State(batch=64, improve=False, sweep=False), ModelSources("mlp"))
    assert found.wait(SOON)
    yield found
    found.stop()


def test_what_can_be_asked_is_what_fit_takes() -> None:
    assert set(OPTIMIZERS) == set(optimizers.OPTIMIZERS)
    assert set(PRECISIONS) == set(KNOWN_PRECISIONS)
    assert all(State().has_trait(f"fit_{name}") for name in FIT_SETTINGS)


def test_a_question_is_answered_beside_everything_else_and_another_optimizer_is_a_click(driver: Driver) -> None:
    state, panels = driver.state, Panels(driver.state)
    assert "Does it fit?" in html(panels, "fit")
    driver.fit("1 GB", optimizer="adam")
    assert (state.panel, state.fit_asked, state.busy) == ("fit", True, "")
    assert driver.wait_for_fit(SOON)
    found = state.fitted
    assert (found.verdict, found.batch, found.recipe.optimizer) == ("yes", 64, "adam")
    shown = plain(html(panels, "fit"))
    for said in ("Fits into 1 GB (954 MiB) without recomputation", "activations", "Largest batch", "adamw with master"):
        assert said in shown
    sgd = next(i for i, other in enumerate(found.alternatives) if other.recipe.optimizer == "sgd")
    message(panels, "fit", action=f"recipe-{sgd}")
    assert driver.wait_for_fit(SOON)
    assert (state.fit_optimizer, state.fitted.recipe.optimizer) == ("sgd", "sgd")
    assert state.fitted.keep_all < found.keep_all
    state.fit_memory = "1 MB"
    assert not state.fitted, "what was answered was another question"
    message(panels, "fit", action="ask")
    assert driver.wait_for_fit(SOON)
    assert state.fitted.verdict == "no"
    assert "Does not fit into 1 MB" in plain(html(panels, "fit"))


def test_what_cannot_be_read_is_said_in_the_panel(driver: Driver) -> None:
    driver.fit("much")
    assert driver.wait_for_fit(SOON)
    assert "much&#x27; is not a number of bytes" in plain(html(Panels(driver.state), "fit"))
    with pytest.raises(UnknownNameError, match="optimiser"):
        driver.fit("1 GB", optimiser="adam")


def test_a_question_is_given_up_when_it_is_cancelled_and_when_another_model_is_chosen(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, panels, cancelled = driver.state, Panels(driver.state), []

    def wait(state: State, event) -> str:
        cancelled.append(event.wait(SOON))
        return "an answer that nobody waits for"

    monkeypatch.setattr(fit_answers, "_fit", wait)
    driver.fit("1 GB")
    assert "Cancel" in html(panels, "fit")
    message(panels, "fit", action="stop")
    assert driver.wait_for_fit(SOON)
    driver.fit("1 GB")
    state.batch = 32
    assert driver.wait_for_fit(SOON)
    assert cancelled == [True, True]
    assert (state.fitted, state.fit_asked) == (None, False)


def test_a_module_of_ones_own_is_asked_about_and_a_graph_alone_cannot_be() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.zeros(4, 8)
    own = Driver(State(improve=False, sweep=False), ModelSources(model, (x,)))
    assert own.wait(SOON)
    assert isinstance(own.state.inputs, ModuleInputs)
    own.fit("1 MB", optimizer="momentum")
    assert own.wait_for_fit(SOON)
    assert own.state.fitted.verdict == "yes"
    assert own.state.fitted.parameters == 72
    bare = Driver(State(improve=False, sweep=False), ModelSources(graph=rx.linear(4)))
    assert bare.wait(SOON)
    assert bare.state.panel == "explain"
    bare.fit("1 MB")
    assert bare.wait_for_fit(SOON)
    assert "Choose a model" in bare.state.fit_refusal


def test_a_model_that_is_too_large_to_run_shows_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remat_explorer.explorer.work.model_sources.MAX_WEIGHT_BYTES", 0)
    large = Driver(State(batch=4, improve=False, sweep=False), ModelSources("mlp"))
    assert large.wait(SOON)
    assert large.state.panel == "fit"
    assert large.state.no_execution == NO_WEIGHTS
    assert store_exploration(large.state)
    assert show_cached(State(model="mlp", batch=4))  # before it is captured once more
