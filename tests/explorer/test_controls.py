"""Fields and buttons: what they take, refuse and say; strategies, their options, and kinds of implementations."""

from dataclasses import replace
from typing import Any

import ipywidgets as w
import numpy as np
import pytest
import torch

import remat_explorer as rx
from remat_explorer.errors import QuantityError, SolutionError, SolverError, UnknownNameError
from remat_explorer.explorer import State
from remat_explorer.explorer.app import ExplorerPage
from remat_explorer.explorer.controllers.driver import Driver
from remat_explorer.explorer.controllers.model_sources import ModelSources
from remat_explorer.explorer.controls import Controls, parse_image
from remat_explorer.explorer.curve import CurveSlider, CurveView
from remat_explorer.explorer.implementations_view import ImplementationsView
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.state.strategy_choice import default_implementations, unsuitable_strategies
from remat_explorer.graph import Value, operation
from remat_explorer.solvers import STRATEGIES, SolveJob, Support, minimum_budget
from tests.explorer.driven import QUIET, driver_of, settled, solved
from tests.figures.choices import chain_with_choices


@pytest.fixture
def chain() -> Any:
    return driver_of(rx.linear(8))


def skipping() -> rx.Graph:
    """A chain of three whose first value the third reads, too, and its backward pass."""
    values = tuple(Value(f"v{i}", 1) for i in range(4))
    reads = ((), (0,), (0, 1), (2,))
    passes: Any = ("forward", "forward", "forward", "backward")
    operations = (operation(f"v{i}", passes[i], reads[i], (i,), 1.0) for i in range(4))
    return rx.Graph("skipping", values, tuple(operations))


def controls_of(driver: Any) -> Controls:
    return Controls(driver.state, driver, ModelSources(graph=driver.state.graph))


def field_of(driver: Any, name: str) -> Any:
    return controls_of(driver)._fields[name][1]


def test_a_disabled_button_says_why(chain: Any) -> None:
    controls, state = controls_of(chain), chain.state
    assert controls.execute.tooltip == "This is a graph without a module, so nothing can run."
    state.busy = "solving"
    assert controls.solve.disabled
    assert controls.solve.tooltip == "Wait until solving is done, or cancel it"
    state.busy, state.improving = "", True
    assert not controls.solve.disabled
    state.improving = False


def test_options_are_read_shown_taken_by_the_solver_and_go_with_their_strategy(chain: Any) -> None:
    field = field_of(chain, "options")
    assert field.disabled
    chain.state.strategy = "checkmate-ilp"
    assert not field.disabled
    assert field.placeholder == "splits=1"
    field.value = "splits=2"
    assert chain.state.options == {"splits": 2}
    field.value = "split=2"
    assert "has no option 'split'; its options: splits" in chain.state.status
    assert (chain.state.tone, field.value) == ("error", "splits=2")
    chain.state.strategy = "griewank"
    assert (chain.state.options, field.value) == ({}, "")
    chain.state.budget, chain.state.options = 6, {"slots": 2}
    with_two = solved(chain).solution.cost
    chain.state.options = {}
    assert solved(chain).solution.cost < with_two


def test_the_cursor_is_moved_by_names_and_a_comparison_takes_a_solution_a_strategy_or_nothing(chain: Any) -> None:
    chain.select(operation="v3")
    assert (chain.state.stage, chain.state.value) == (3, 3)
    chain.select(stage=5, value="v2")
    assert (chain.state.stage, chain.state.value) == (5, 2)
    with pytest.raises(UnknownNameError, match="unknown operation 'v99'"):
        chain.select(operation="v99")
    chain.compare("checkpoint-all")
    assert (chain.state.other.strategy, chain.state.panel) == ("checkpoint-all", "compare")
    chain.compare(chain.solution)
    assert chain.state.other is chain.solution
    chain.compare(None)
    assert chain.state.other is None
    with pytest.raises(UnknownNameError, match="'griewnk'"):
        chain.compare("griewnk")
    with pytest.raises(SolutionError, match="of the loaded graph"):
        chain.compare(rx.solve(rx.linear(4), 5))


def test_the_list_of_devices_has_the_gpu_once_a_module_is_loaded(chain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    field: w.Dropdown = field_of(chain, "device")
    assert field.options == ("cpu",)
    chain.state.device = "cuda:1"
    settled(chain)  # another device loads the graph again, which sets the inputs
    chain.state.inputs = object()
    assert field.options == ("cpu", "cuda", "cuda:1")
    assert (field.value, chain.state.device) == ("cuda:1", "cuda:1")
    chain.state.inputs = None


@pytest.mark.parametrize(("name", "wrong", "said"), [("batch", "1e99", "batch size"), ("time_limit", "soon", "limit")])
def test_an_entry_that_is_no_number_is_refused_until_one_is_taken(chain: Any, name: str, wrong: str, said: str) -> None:
    controls = controls_of(chain)
    field = controls._fields[name][1]
    status, shown = chain.state.status, field.value
    for entry in ("never", wrong):  # two refusals one after the other go together
        field.value = entry
        assert chain.state.tone == "error"
        assert f"{entry!r} is not a" in chain.state.status
        assert said in chain.state.status
        assert field.value == shown
    controls._fields["time_limit"][1].value = "30"
    assert chain.state.time_limit == 30
    assert (chain.state.status, chain.state.tone) == (status, "plain")


def test_budgets_and_image_sizes_are_understood_or_asked_back_for(chain: Any) -> None:
    chain.state.smallest = replace(chain.state.smallest, lower_bound=1 << 20)
    view, budget = CurveView(chain.state, lambda count: None), chain.state.budget
    view.field.value = "60"
    assert chain.state.budget == budget
    assert '\'60\' alone is bytes, and nothing fits below 1.00 MiB; write "60%" or "60 MiB"' in chain.state.status
    view.field.value = "60%"
    assert (chain.state.budget, view.slider.value) == (6, 6)
    assert chain.state.tone != "error"
    view.field.value = "a lot"
    assert (chain.state.budget, view.field.value) == (6, "6 B")
    assert "'a lot' is not a number of bytes" in chain.state.status
    chain.state.smallest = minimum_budget(chain.state.graph)
    chain.state.set_budget("smallest")
    assert chain.state.budget == 3
    with pytest.raises(QuantityError, match="none is known yet"):
        State().set_budget("smallest")
    assert (parse_image("64"), parse_image("416 x 608"), parse_image(" ")) == (64, (416, 608), None)
    with pytest.raises(QuantityError, match="'big' is not an image size"):
        parse_image("big")


def test_the_kernel_does_not_send_back_where_the_thumb_was(chain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slider, sent = CurveView(chain.state, lambda count: None).slider, []
    monkeypatch.setattr(CurveSlider, "_send", lambda slider, message, buffers=None: sent.append(message["state"]))
    slider.set_state({"dragged": 5.0, "moving": 5.0, "value": 5.0})
    assert slider.answered == slider.dragged == 5
    assert {name for state in sent for name in state} >= {"answered", "value"}
    assert not [state for state in sent if "dragged" in state or "moving" in state]


def test_everything_but_model_batch_and_buttons_is_under_more_which_marks_what_was_changed(chain: Any) -> None:
    controls = controls_of(chain)
    first, others = controls.widget.children
    assert [child.description for child in first.children[:2]] == ["Model", "Batch"]
    said = {child.description for child in others.children}
    assert said >= {"Image", "Strategy", "Limit (s)", "Other methods"}
    assert (others.layout.display, controls.more.description) == ("none", "⋯")
    chain.state.strategy, chain.state.time_limit = "dtr", 5
    assert controls.more.description == "⋯ •"
    assert controls.more.tooltip.endswith("Changed: strategy dtr, limit 5 s")
    controls.more.value = True
    assert chain.state.more
    assert (others.layout.display, controls.more.description) == (None, "⋯")
    chain.state.more = False
    assert not controls.more.value
    controls.methods.value = True
    assert chain.state.methods


def test_strategies_say_what_they_are_and_why_they_are_not_for_the_graph_or_for_a_part_of_it() -> None:
    net = driver_of(skipping())
    field, fits = field_of(net, "strategy"), ExplorerPage(net.state).fits
    options = {name: label for label, name in field.options}
    assert options["griewank"] == "griewank · only for chains"
    assert options["checkpoint-all"] == "keep everything (checkpoint-all)"
    for name, refused, reason in (
        ("griewank", True, "'v2' (number 2) reads from 'v0', 'v1'"),
        ("checkpoint-sequential", False, "3 operations falls into 2 blocks, the largest of 2"),
        ("ap-greedy", False, "checkpoints are at articulation points"),
    ):
        assert fits[name]["is_refused"] == refused
        assert reason in fits[name]["reason"]
    assert "optimal" not in fits
    for name, said in (
        ("griewank", "'skipping' is no chain: forward operation 'v2'"),  # a script may, and hears why
        ("checkpoint-sequential", "Takes this graph in part only: the forward pass of 3 operations"),
    ):
        net.state.strategy = name
        assert field.value == name
        assert field.tooltip.startswith(said)
        assert STRATEGIES[name].summary in field.tooltip
        assert STRATEGIES[name].source in field.tooltip
    assert ("griewank", "griewank") in field_of(driver_of(rx.linear(4)), "strategy").options


@pytest.mark.parametrize("graph", [skipping(), rx.linear(4), rx.linear(1)], ids=lambda graph: graph.name)
def test_strategies_are_refused_in_the_list_if_and_only_if_they_refuse_the_graph(graph: rx.Graph) -> None:
    for name in (name for name, method in STRATEGIES.items() if method.general_graphs is not Support.YES):
        try:
            rx.solve(graph, "100%", name)
            refused = False
        except SolverError:
            refused = True
        fit = unsuitable_strategies(graph).get(name)
        assert refused == (fit is not None and fit.is_refused), name
    graph = chain_with_choices()  # of which strategies are asked about the default implementations
    assert unsuitable_strategies(graph) == unsuitable_strategies(default_implementations(graph).graph)


BUDGET = 3600  # 15 with all kinds, 16 with masks, 17 with algorithms, 19 with none


@pytest.fixture
def driver() -> Any:
    return solved(driver_of(chain_with_choices(), BUDGET))


def shown_cost(driver: Any) -> float:
    return settled(driver).solution.cost


def test_kinds_that_are_toggled_are_solved_for_and_known_when_they_are_toggled_back(driver: Any) -> None:
    state, view = driver.state, ImplementationsView(driver.state, driver.toggle)
    assert (state.strategy, state.implementations) == ("monet", "all")
    assert set(state.kinds) == {"masks", "chunks", "algorithms"}
    assert shown_cost(driver) == 15
    assert state.smallest.lower_bound <= state.smallest.known_feasible <= state.checkpoint_all_peak
    with_all = state.frontier.best(BUDGET)
    assert {kind: button.value for kind, button in view.toggles.items()} == dict.fromkeys(state.kinds, True)
    assert "Results are equal bit for bit" in view.toggles["masks"].tooltip
    assert "Results differ by rounding" in view.toggles["chunks"].tooltip
    view.toggles["masks"].value = False
    assert shown_cost(driver) == 17
    state.implementations = ()
    assert shown_cost(driver) == 19
    with_none = state.frontier.best(BUDGET)
    assert with_none.cost == 19
    assert with_none.lower_bound >= with_all.lower_bound  # fewer choices cost no less
    state.implementations = ("masks",)
    assert shown_cost(driver) == 16
    assert view.toggles["masks"].value
    again = state.frontier.best(BUDGET)
    assert (again.cost, again.lower_bound <= 16) == (16, True)  # a bound is claimed only for what it was proven for
    state.implementations = "all"
    assert state.busy == ""  # at once: this question was answered before
    assert driver.solution.cost == 15
    assert "Solved before with all kinds of implementations" in state.status
    with pytest.raises(UnknownNameError, match="unknown kind of implementations 'mask'; did you mean 'masks'"):
        driver.toggle("mask")
    assert ImplementationsView(State(graph=rx.linear(4)), driver.toggle).widget.layout.display == "none"


def test_models_are_captured_again_for_implementations_and_the_field_shows_what_is_chosen() -> None:
    state: Any = State(measured_costs=False, batch=4, time_limit=1.0, **QUIET)
    driver = settled(Driver(state, ModelSources("mlp")))
    field = Controls(state, driver, ModelSources("mlp"))._fields["implementations"][1]
    assert not state.graph.has_choices
    field.value = "exact"
    settled(driver)
    assert state.graph.has_choices
    assert state.strategy == "monet"
    assert all(way.tolerance == 0 for node in state.graph.operations for way in node.implementations)
    captured = state.graph
    driver.toggle("masks")
    settled(driver)
    assert state.graph is captured
    assert "masks" not in state.kinds
    assert field.value == "chosen"
    state.implementations = "none"
    settled(driver)
    assert not state.graph.has_choices
    assert state.strategy == "optimal"  # the one from before
    driver.stop()


def test_an_answer_for_kinds_that_were_given_up_meanwhile_is_kept_and_not_shown(driver: Any, monkeypatch: Any) -> None:
    ended = SolveJob.solution

    def end_late(job: SolveJob) -> rx.Solution:
        found = ended(job)
        driver.toggle("masks")
        return found

    monkeypatch.setattr(SolveJob, "solution", end_late)
    driver.toggle("masks")
    assert shown_cost(driver) == 15
    assert driver.state.status.startswith("Solved before with all kinds of implementations")
    assert driver.state.known_solutions.last_solve(("algorithms", "chunks"), BUDGET).cost == 17


def test_a_plain_strategy_runs_default_implementations_and_claims_no_more(driver: Any) -> None:
    driver.state.strategy = "optimal"
    assert solved(driver).solution.cost == 19
    assert set(np.unique(driver.solution.schedule.R)) == {0, 1}
    assert driver.solution.lower_bound is None
    assert "default implementations only" in driver.state.status
    assert driver.state.frontier.best(BUDGET).cost == 15


def test_panels_name_the_implementations(driver: Any) -> None:
    state, panels = driver.state, Panels(driver.state)
    state.panel = "plan"
    driver.select(operation="relu backward")
    assert "compute relu backward · from bits" in panels.views["plan"].content.html
    state.panel = "explain"
    said = panels.views["explain"].content.html
    assert "reads mask (100 B) instead of relu (800 B), costs 1 more than the default" in said
    state.panel = "ways"
    assert "results equal bit for bit" in panels.views["ways"].content.html
    driver.select(operation="conv gradient")
    ways = panels.views["ways"].content.html
    assert ways.count("<svg") == 2  # forward and weight gradient of the convolution
    assert "native: 3.0 s, 1.56 KiB of workspace" in ways
