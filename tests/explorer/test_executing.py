"""From a person's own module to a measured peak, what that proves, and the pace at which it is drawn."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import model_placement
from remat_explorer.explorer.measured_run import LEAST, MOST, PLACES, MeasuredRunView, drawing_moments, drawing_seconds
from remat_explorer.explorer.panels.execution_panel import ExecutionPanel, card_html
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.panels.side_panel import Click
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work import executing
from remat_explorer.explorer.work.executing import describe_proof
from remat_explorer.explorer.work.model_sources import ModelSources, ModuleInputs
from remat_explorer.plan import Compute
from remat_explorer.quantities import format_bytes
from remat_explorer.runtime.comparison import Comparison, Difference
from tests.explorer.panel_tools import html, measurement, message, plain

QUIET: dict[str, Any] = {"improve": False, "sweep": False}  # nothing runs beside an execution
MIB = 1024**2
DIFFERENCE = Difference("gradient", "0.weight", "float32", 2e-7, 1e-7, 0.8, 0.8)


@pytest.fixture(scope="module")
def own() -> Any:
    """A module of the person's own, loaded with measured costs."""
    return opened(measured_costs=True)


def opened(**settings: Any) -> Any:
    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())]
    net, batch = nn.Sequential(*layers), torch.randn(512, 64)
    explorer = rx.Explorer(net, (batch,), loss=lambda out: out.square().mean(), **QUIET, **settings)
    assert explorer.wait(120)
    return explorer


def test_execution_shows_measured_memory_and_equal_gradients(own: Any) -> None:
    state = own.state
    assert state.model == "Sequential"
    assert state.no_execution == ""
    state.budget = (state.smallest.known_feasible + state.checkpoint_all_peak) // 2
    own.solve()
    assert own.wait(60)
    own.execute()
    assert own.wait(120)
    assert own.measurement.equal
    assert "gradients equal: max difference 0" in state.status
    assert "within its budget of" in state.status
    measured = next(trace for trace in own._views[5].figure.data if trace.name == "measured")
    assert measured.visible
    assert max(measured.y) > 0


def test_another_schedule_takes_its_measurement_with_it(own: Any) -> None:
    own.execute()
    assert own.wait(120)
    own.state.strategy = "checkpoint-all"
    own.state.budget = own.state.checkpoint_all_peak
    own.solve()
    assert own.wait(60)
    assert own.solution.strategy == "checkpoint-all"
    assert own.measurement is None


def test_cancelling_an_execution_keeps_the_schedule(own: Any) -> None:
    shown = own.state.schedule
    own.execute()
    own.cancel()
    assert own.wait(60)
    assert own.state.schedule is shown
    assert own.state.busy == ""


def test_a_model_that_fails_is_reported_in_words() -> None:
    explorer = rx.Explorer(nn.Linear(4, 2), (torch.ones(3, 5),))
    assert explorer.wait(60)
    assert explorer.state.tone == "error"
    assert explorer.state.graph is None
    assert "Traceback" not in explorer.state.status
    explorer.solve()
    assert explorer.wait(60)
    assert explorer.state.status == "There is no model to solve for yet."


class Stopping(nn.Module):
    """Tells each call of its operation, so that a test can cancel in the middle of a run."""

    calls = 0
    at: int | None = None
    explorer: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = _told(layer(x).tanh())
        return x.sum()


@torch.library.custom_op("remat_explorer_tests::told", mutates_args=())
def _told(x: torch.Tensor) -> torch.Tensor:
    Stopping.calls += 1
    if Stopping.calls == Stopping.at:
        Stopping.explorer.cancel()
    return x.clone()


_told.register_fake(torch.empty_like)


_told.register_autograd(lambda ctx, gradient: gradient)


def test_cancelling_an_execution_stops_before_the_next_operation() -> None:
    explorer = rx.Explorer(Stopping(), (torch.randn(4, 8),), **QUIET)
    assert explorer.wait(120)
    explorer.state.strategy, explorer.state.budget = "checkpoint-all", explorer.state.checkpoint_all_peak
    explorer.solve()
    assert explorer.wait(60)
    Stopping.explorer = explorer
    for at in (3, 9, 15):  # in plain PyTorch, warming up and metered, and in the plan
        Stopping.calls, Stopping.at = 0, at
        explorer.execute()
        assert explorer.wait(60)
        assert "Cancelled the execution" in explorer.state.status
        assert Stopping.calls == at
    Stopping.at = None


def test_a_module_is_captured_and_executed_where_the_explorer_says(monkeypatch: Any) -> None:
    brought: list[Any] = []

    def place(model: Any, args: Any, kwargs: Any, device: str) -> model_placement.Placement:
        brought.append(device)
        return model_placement.Placement(torch.device(device), model, args, kwargs or {})

    monkeypatch.setattr(model_placement, "place", place)
    model, args = nn.Linear(2, 2), (torch.ones(1, 2),)
    assert ModuleInputs(model, args).on("cpu").module is model
    assert brought == []
    monkeypatch.setattr(model_placement, "model_device", lambda *given: torch.device("cuda", 0))
    ModelSources(model, args).load(State(device="cpu", model="Linear"))
    assert brought == ["cpu"]


def test_an_explorer_begins_where_its_module_lies(monkeypatch: Any) -> None:
    monkeypatch.setattr(model_placement, "model_device", lambda *given: torch.device("cuda", 0))
    assert ModelSources(nn.Linear(2, 2), (torch.ones(1, 2),)).device == "cuda:0"
    assert ModelSources("mlp").device == "cpu"


def executed(explorer: Any) -> Any:
    explorer.execute()
    assert explorer.wait(120)
    return explorer.state


def test_estimates_give_way_to_measured_costs_when_a_schedule_is_executed_and_the_schedule_stays() -> None:
    explorer = opened(budget="80%")
    explorer.select(stage=9, value=3)
    state, estimated, shown = explorer.state, explorer.state.graph, explorer.solution.schedule
    assert not state.costs_are_measured
    executed(explorer)
    assert state.costs_are_measured
    assert state.graph is not estimated
    assert state.graph.structure == estimated.structure
    assert (state.schedule.R == shown.R).all()
    assert (state.schedule.S == shown.S).all()
    assert (state.stage, state.value) == (9, 3)
    assert state.measurement.within_budget
    measured = state.graph
    assert executed(explorer).graph is measured


def test_estimates_that_were_chosen_are_what_is_executed() -> None:
    explorer = opened(measured_costs=False, budget="80%")
    before = explorer.state.graph
    assert executed(explorer).graph is before
    assert explorer.measurement.equal


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An explorer whose schedule needs more than its budget once workspace is measured."""
    explorer = opened(budget="80%")
    budget = explorer.state.budget

    def larger(state: State, graph: rx.Graph, inputs: Any, cancelled: Any) -> tuple[rx.Graph, str]:
        operations, k = list(graph.operations), graph.n // 2
        default = operations[k].default
        way = replace(default, workspace=default.workspace + budget)
        operations[k] = replace(operations[k], implementations=(way,))
        return replace(graph, operations=tuple(operations)), ""

    monkeypatch.setattr(executing, "measure_costs", larger)
    return explorer


def test_where_measured_workspace_leaves_too_little_the_schedule_on_the_screen_runs_and_what_is_missing_is_said(
    short: Any,
) -> None:
    budget, shown = short.state.budget, short.solution.schedule
    state = executed(short)
    assert state.budget == state.solution.budget == budget
    assert (state.schedule.R == shown.R).all()
    assert (state.schedule.S == shown.S).all()
    assert state.measurement is not None
    assert state.measurement.predicted_peak == state.solution.peak > budget
    more = format_bytes(state.solution.peak - budget)
    nearest = min(point.peak for point in state.frontier.points)
    assert f"{more} more than {format_bytes(budget)}" in state.status
    assert f"the nearest budget with a known schedule is {format_bytes(nearest)}" in state.status


def test_the_nearest_budget_that_holds_is_offered_and_a_click_takes_it(short: Any) -> None:
    state = executed(short)
    panel = ExecutionPanel(state)
    nearest = min(point.peak for point in state.frontier.points)
    assert f"Set the budget to {format_bytes(nearest)}" in panel.content.html
    panel.clicked(Click(action="hold"))
    assert state.budget == nearest >= state.solution.peak
    assert "Over the budget" not in panel.content.html


def measured(**changes: Any) -> Any:
    """A measurement as `describe_proof` reads it: 14 MiB within 14 MiB, against 23.7 MiB of plain PyTorch."""
    equal = Comparison(0.0, 0.0, True, True, True)
    eager = SimpleNamespace(peak=int(23.7 * MIB), comparison=changes.pop("comparison", equal))
    usual = {"predicted_peak": 14 * MIB, "peak": 14 * MIB, "generated_peak": 14 * MIB, "budget": 14 * MIB}
    found = SimpleNamespace(**(usual | {"eager": eager, "missing": ""} | changes))
    found.within_budget = max(found.peak, found.generated_peak) <= found.budget
    return found


def test_memory_gradients_and_plain_pytorch_stand_in_one_line() -> None:
    assert describe_proof(measured()) == (
        "14.0 MiB predicted, 14.0 MiB measured; gradients equal bit for bit; 41 % less memory than plain PyTorch"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peak": 15 * MIB}, "14.0 MiB predicted, 15.0 MiB measured, ABOVE the budget of 14.0 MiB; "),
        ({"generated_peak": 16 * MIB}, "14.0 MiB measured, 16.0 MiB in the timed runs, ABOVE the budget of 14.0 MiB"),
        ({"generated_peak": 25 * MIB}, "5 % more memory than plain PyTorch"),
        ({"eager": None, "missing": "memory ran out"}, "measured; not compared with plain PyTorch: memory ran out"),
        (
            {"comparison": Comparison(0.0, 2e-7, False, True, True, (DIFFERENCE,), 12)},
            "gradients DIFFER in 1 of 12, by at most 2e-07",
        ),
        (
            {"comparison": Comparison(0.0, 2e-7, False, True, True, (DIFFERENCE,), 12, varying=(DIFFERENCE,))},
            "gradients vary as plain PyTorch's do",
        ),
        (
            {"comparison": Comparison(0.0, 0.0, True, True, False)},
            "gradients equal bit for bit, but the random state DIFFERS",
        ),
        (
            {"comparison": Comparison(1.0, 0.0, True, False, True)},
            "gradients equal bit for bit, but the loss and buffers DIFFER;",
        ),
    ],
)
def test_what_contradicts_the_promise_is_said(changes: dict[str, Any], said: str) -> None:
    assert said in describe_proof(measured(**changes))


def test_the_proof_heads_the_card_and_a_passed_budget_is_red(state: State) -> None:
    assert "4 B predicted, 4 B measured; gradients equal bit for bit; 60 % less memory" in plain(
        card_html(measurement(state))
    )
    assert 'class="bad">ABOVE<' in card_html(measurement(state, more=9)).partition("</p>")[0]


def test_the_line_is_drawn_at_the_pace_of_the_run(state: State) -> None:
    found = measurement(state)
    runs = [i for i, statement in enumerate(found.plan.statements) if isinstance(statement, Compute)]
    found.statement_seconds = np.zeros(len(found.during))
    found.statement_seconds[runs[13]] = 3.0  # half of the computations lie before it
    found.statement_seconds[runs[20]] = 1.0
    shares = drawing_moments(found)
    assert (len(shares), shares[0], shares[-1]) == (PLACES + 1, 0.0, 1.0)
    assert shares == sorted(shares)
    assert shares[PLACES // 2] == 0.0
    assert shares[PLACES * 17 // 26] == 0.75
    assert drawing_seconds(found) == 4.0
    for seconds, drawn in ((1e-3, LEAST), (100.0, MOST)):
        assert drawing_seconds(SimpleNamespace(statement_seconds=[seconds])) == drawn


def test_each_measurement_is_drawn_once_and_again_when_asked(state: State, panels: Panels) -> None:
    view = MeasuredRunView(state)
    state.drawings += 1
    assert view.widget.drawings == 0  # there is nothing to draw
    state.measurement = measurement(state)
    assert view.widget.drawings == state.drawings == 2
    assert len(view.widget.moments) == PLACES + 1
    assert "40 times slower than the plan ran" in plain(html(panels, "execution"))
    message(panels, "execution", action="draw")
    assert view.widget.drawings == 3
    state.measurement = None
    assert view.widget.drawings == 3
