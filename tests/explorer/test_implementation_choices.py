"""A graph with alternative implementations in the explorer: toggles, the ablation live, plain strategies, colours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import remat_explorer as rx
from remat_explorer.errors import UnknownNameError
from remat_explorer.explanations import explain_value
from remat_explorer.explorer.controls import Controls
from remat_explorer.explorer.implementations_view import ImplementationsView
from remat_explorer.explorer.matrices import MatrixView
from remat_explorer.explorer.panels.case_view import CaseView, compared_schedules
from remat_explorer.explorer.panels.explain_panel import explanation_html
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.driver import Driver
from remat_explorer.explorer.work.model_sources import ModelSources
from remat_explorer.solvers import SolveJob
from tests.explorer.driven import driver_of, settled
from tests.figures.choices import chain_with_choices

BUDGET = 3600  # 15 with all kinds, 16 with masks, 17 with algorithms, 19 with none


@pytest.fixture
def driver() -> Any:
    """The chain, solved with all kinds."""
    found = driver_of(chain_with_choices(), BUDGET)
    found.solve()
    return settled(found)


def shown_cost(driver: Any) -> float:
    return settled(driver).solution.cost


def test_a_graph_with_choices_is_solved_by_monet_with_all_kinds(driver: Any) -> None:
    state = driver.state
    assert (state.strategy, state.implementations) == ("monet", "all")
    assert set(state.kinds) == {"masks", "chunks", "algorithms"}
    assert shown_cost(driver) == 15
    assert state.smallest.lower_bound <= state.smallest.known_feasible <= state.checkpoint_all_peak


def test_a_kind_that_is_toggled_is_solved_for_and_known_when_it_is_toggled_back(driver: Any) -> None:
    driver.toggle("masks")
    assert shown_cost(driver) == 17
    driver.toggle("algorithms")
    assert shown_cost(driver) == 19
    driver.toggle("masks")
    assert shown_cost(driver) == 16
    driver.state.implementations = "all"
    assert driver.state.busy == ""  # at once: this question was answered before
    assert driver.solution.cost == 15
    assert "Solved before with all kinds of implementations" in driver.state.status


def test_an_answer_for_kinds_that_were_given_up_meanwhile_is_kept_and_not_shown(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_bound_is_claimed_only_for_the_kinds_that_it_was_proven_for(driver: Any) -> None:
    with_all = driver.state.frontier.best(BUDGET)
    driver.state.implementations = ()
    assert shown_cost(driver) == 19
    with_none = driver.state.frontier.best(BUDGET)
    assert with_none.cost == 19
    assert with_none.lower_bound >= with_all.lower_bound  # fewer choices cost no less
    driver.state.implementations = ("masks",)
    settled(driver)
    again = driver.state.frontier.best(BUDGET)
    assert again.cost == 16
    assert again.lower_bound <= 16


def test_a_plain_strategy_runs_default_implementations_and_claims_no_more(driver: Any) -> None:
    driver.state.strategy = "optimal"
    driver.solve()
    assert shown_cost(driver) == 19
    assert set(np.unique(driver.solution.schedule.R)) == {0, 1}
    assert driver.solution.lower_bound is None
    assert "default implementations only" in driver.state.status
    assert driver.state.frontier.best(BUDGET).cost == 15


def test_the_curve_of_plain_checkmate_is_swept_for_a_graph_with_choices() -> None:
    driver = driver_of(chain_with_choices(), BUDGET, sweep=True)
    assert driver.wait_for_sweep(120)
    points = {point.strategy for point in driver.state.frontier.points}
    assert {"optimal", "monet"} <= points
    assert list(compared_schedules(driver.state, driver.state.schedule))[:2] == ["eager", "Checkmate"]


def test_a_kind_that_does_not_exist_is_refused(driver: Any) -> None:
    with pytest.raises(UnknownNameError, match="unknown kind of implementations 'mask'; did you mean 'masks'"):
        driver.toggle("mask")


def test_another_graph_without_choices_is_solved_by_the_strategy_from_before(driver: Any) -> None:
    driver.state.model = "mlp"
    driver.state.measured_costs = False
    driver.state.implementations = "none"
    settled(driver)
    assert driver.state.graph.name == "mlp"
    assert driver.state.strategy == "optimal"


def test_models_are_captured_again_for_implementations() -> None:
    state: Any = State(improve=False, sweep=False, measured_costs=False, batch=4, time_limit=1.0)
    driver = settled(Driver(state, ModelSources("residual_net")))
    assert not state.graph.has_choices
    state.implementations = "exact"
    settled(driver)
    assert state.graph.has_choices
    assert state.strategy == "monet"
    assert all(way.tolerance == 0 for node in state.graph.operations for way in node.implementations)
    captured = state.graph
    driver.toggle("masks")
    settled(driver)
    assert state.graph is captured
    assert "masks" not in state.kinds
    state.implementations = "none"
    settled(driver)
    assert not state.graph.has_choices
    assert state.strategy == "optimal"
    driver.stop()


def test_toggles_and_state_say_the_same(driver: Any) -> None:
    view = ImplementationsView(driver.state, driver.toggle)
    assert {kind: button.value for kind, button in view.toggles.items()} == dict.fromkeys(driver.state.kinds, True)
    view.toggles["masks"].value = False
    assert shown_cost(driver) == 17
    driver.toggle("masks", True)
    assert view.toggles["masks"].value
    assert "Results are equal bit for bit" in view.toggles["masks"].tooltip
    assert "Results differ by rounding" in view.toggles["chunks"].tooltip
    assert ImplementationsView(State(graph=rx.linear(4)), driver.toggle).widget.layout.display == "none"


def test_the_field_of_implementations_shows_chosen_kinds(driver: Any) -> None:
    field = Controls(driver.state, driver, ModelSources())._fields["implementations"][1]
    assert field.value == "all"
    driver.toggle("chunks")
    settled(driver)
    assert field.value == "chosen"
    field.value = "exact"
    assert driver.state.kinds == ("masks",)


def test_the_matrices_are_told_the_kind_of_every_implementation(driver: Any) -> None:
    view = MatrixView(driver.state)
    assert [label for label, *_ in view.widget.kinds] == ["default", "masks", "chunks", "algorithms"]
    assert view.widget.operations[0][5] == [0, 3]
    assert view.widget.operations[2][5] == [1]  # the mask is made for those that read it
    driver.state.colouring = "implementation"
    assert view.widget.colouring == "implementation"


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


def test_the_case_study_is_drawn_while_it_is_looked_at(driver: Any) -> None:
    view = CaseView(driver.state)
    assert view.widget.html == ""
    assert view.widget.layout.display == "none"
    driver.state.picture = "case"
    assert view.widget.html.count("<svg") == 3
    assert "against eager" in view.widget.html
    assert view.widget.layout.display is None


def test_every_value_is_explained_also_those_that_only_another_implementation_writes() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    graph = rx.capture(net, (torch.randn(2, 3, 10, 10, requires_grad=True),), implementations="all")
    solution: Any = rx.solve(graph, "100%", "monet", time_limit=10)
    others = set(range(len(graph.values))).difference(*(node.default.outputs for node in graph.operations))
    assert others
    for value in range(len(graph.values)):
        found = explain_value(solution.schedule, solution.plan, 1, value, None)
        assert graph.values[value].name in explanation_html(solution.schedule, solution.plan, found)
