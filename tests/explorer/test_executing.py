"""From a person's own module to a measured peak: what that proves, how it is said, drawn and exported."""

import json
import threading
from dataclasses import replace
from html import unescape
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer import runtime
from remat_explorer.capture import Placement
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.explorer import State
from remat_explorer.explorer.controllers import executing
from remat_explorer.explorer.controllers.executing import describe_proof, describe_validation
from remat_explorer.explorer.controllers.model_sources import ModelSources, ModuleInputs
from remat_explorer.explorer.controllers.screen import show_schedule
from remat_explorer.explorer.measured_run import LEAST, MOST, PLACES, drawing_moments, drawing_seconds
from remat_explorer.explorer.panels.execution_panel import ExecutionPanel, card_html
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.panels.side_panel import Click
from remat_explorer.explorer.plots_view import PlotsView
from remat_explorer.plan import Compute
from remat_explorer.quantities import format_bytes
from remat_explorer.runtime.comparison import Comparison, Difference, FirstDifference
from tests.explorer.driven import EQUAL, explorer_of, html, measurement, opened, plain, settled, solved, view_of

DIFFERENCE = Difference("gradient", "0.weight", "float32", 2e-7, 1e-7, 0.8, 0.8)


def loaded(**settings: Any) -> Any:
    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())]
    return explorer_of(
        nn.Sequential(*layers), (torch.randn(512, 64),), loss=lambda out: out.square().mean(), **settings
    )


def executed(explorer: Any) -> Any:
    explorer.execute()
    return settled(explorer).state


def test_execution_shows_measured_memory_and_equal_gradients_and_is_exported(tmp_path: Path) -> None:
    own = loaded(measured_costs=True)
    state = own.state
    state.picture = "plots"
    assert (state.model, state.no_execution) == ("Sequential", "")
    state.budget = (state.smallest.known_feasible + state.checkpoint_all_peak) // 2
    executed(solved(own))
    assert own.measurement.equal
    assert "gradients equal: max difference 0" in state.status
    assert "within its budget of" in state.status
    line = next(trace for trace in view_of(own, PlotsView).figure.data if trace.name == "measured")
    assert line.visible
    assert max(line.y) > 0

    trace = json.loads(own.export("trace", tmp_path / "trace.json").read_text())
    assert any(event["ph"] == "X" for event in trace["traceEvents"])
    path = own.export("report", tmp_path / "report.html")
    settled(own)
    assert "with the gradients of plain PyTorch bit for bit" in path.read_text(encoding="utf-8")
    assert str(tmp_path) in state.status  # outside of the working directory the whole path is said
    state.frontier = rx.Frontier(state.graph, ())  # a curve that does not have the schedule yet
    own.export("page", tmp_path / "page.html")
    settled(own)
    run = opened(tmp_path / "page.html")["overview"]["run"]
    assert (run["proof"], run["peak"]) == (describe_proof(own.measurement), own.solution.peak)

    shown = state.schedule
    own.execute()
    own.cancel()
    settled(own)
    assert (state.schedule, state.busy) == (shown, "")
    state.strategy, state.budget = "checkpoint-all", state.checkpoint_all_peak
    assert solved(own).solution.strategy == "checkpoint-all"
    assert own.measurement is None  # which was of another schedule


def test_a_model_that_fails_is_reported_in_words() -> None:
    explorer = explorer_of(nn.Linear(4, 2), (torch.ones(3, 5),))
    assert explorer.state.tone == "error"
    assert explorer.state.graph is None
    assert "Traceback" not in explorer.state.status
    assert solved(explorer).state.status == "There is no model to solve for yet."


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
    explorer = explorer_of(Stopping(), (torch.randn(4, 8),), strategy="checkpoint-all", budget="100%")
    Stopping.explorer = solved(explorer)
    for at, stays in (
        (3, False),
        (9, False),
        (15, True),
        (40, True),
    ):  # warming up, metered, measuring costs, and later
        Stopping.calls, Stopping.at, explorer.state.measurement = 0, at, None
        said = "Cancelled the run; what was measured stays." if stays else "Cancelled the run. "
        assert said in executed(explorer).status
        assert Stopping.calls == at
        assert (explorer.measurement is not None) == stays
    Stopping.at = None


def test_a_module_is_captured_and_executed_where_it_lies_or_the_explorer_says(monkeypatch: Any) -> None:
    brought: list[Any] = []
    room = import_module("remat_explorer.capture")  # `rx.capture` is its function

    def place(model: Any, args: Any, kwargs: Any, device: str) -> Placement:
        brought.append(device)
        return Placement(torch.device(device), model, args, kwargs or {})

    monkeypatch.setattr(room, "place", place)
    model, args = nn.Linear(2, 2), (torch.ones(1, 2),)
    assert ModuleInputs(model, args).on("cpu").module is model
    assert brought == []
    monkeypatch.setattr(room, "model_device", lambda *given: torch.device("cuda", 0))
    ModelSources(model, args).load(State(device="cpu", model="Linear"))
    assert brought == ["cpu"]
    assert ModelSources(model, args).device == "cuda:0"
    assert ModelSources("mlp").device == "cpu"


def test_estimates_give_way_to_measured_costs_when_a_schedule_is_executed_and_the_schedule_stays() -> None:
    explorer = loaded(budget="80%")
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
    chosen = loaded(measured_costs=False, budget="80%")
    estimated = chosen.state.graph
    assert executed(chosen).graph is estimated
    assert chosen.measurement.equal


def test_where_measured_workspace_leaves_too_little_the_nearest_budget_is_a_click(monkeypatch: Any) -> None:
    explorer = loaded(budget="80%")
    budget = explorer.state.budget

    def larger(state: State, graph: rx.Graph, inputs: Any, cancelled: Any) -> tuple[rx.Graph, str]:
        operations, k = list(graph.operations), graph.n // 2
        default = operations[k].default
        way = replace(default, workspace=default.workspace + budget)
        operations[k] = replace(operations[k], implementations=(way,))
        return replace(graph, operations=tuple(operations)), ""

    monkeypatch.setattr(executing, "measure_costs", larger)
    state = executed(explorer)
    assert state.budget == state.solution.budget == budget
    nearest = min(point.peak for point in state.frontier.points)
    assert f"{format_bytes(state.solution.peak - budget)} more than {format_bytes(budget)}" in state.status
    assert f"the nearest budget with a known schedule is {format_bytes(nearest)}" in state.status
    panel = ExecutionPanel(state)
    assert f"Set the budget to {format_bytes(nearest)}" in panel.content.html
    panel.clicked(Click(action="hold"))
    assert state.budget == nearest >= state.solution.peak
    assert "Over the budget" not in panel.content.html


UNEQUAL = Comparison(0.0, 2e-7, False, True, True, (DIFFERENCE,), 12)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "4 B predicted, 4 B measured; gradients equal bit for bit; 60 % less memory than plain PyTorch"),
        ({"peak": 5}, "4 B predicted, 5 B measured, ABOVE the budget of 4 B; "),
        ({"generated_peak": 6}, "4 B measured, 6 B in the timed runs, ABOVE the budget of 4 B"),
        ({"generated_peak": 11}, "10 % more memory than plain PyTorch"),
        ({"eager": None, "missing": "memory ran out"}, "measured; not compared with plain PyTorch: memory ran out"),
        (UNEQUAL, "gradients DIFFER in 1 of 12, by at most 2e-07"),
        (replace(UNEQUAL, varying=(DIFFERENCE,)), "gradients vary as plain PyTorch's do"),
        (replace(EQUAL, random_state_equal=False), "gradients equal bit for bit, but the random state DIFFERS"),
        (
            replace(EQUAL, loss_difference=1.0, buffers_equal=False),
            "gradients equal bit for bit, but the loss and buffers DIFFER;",
        ),
    ],
)
def test_the_proof_stands_in_one_line_with_whatever_contradicts_it(state: State, changes: Any, said: str) -> None:
    if isinstance(changes, Comparison):
        found = measurement(state, compared=changes)
    else:
        found = measurement(state)
        vars(found).update(changes)
        found.within_budget = max(found.peak, found.generated_peak) <= found.budget
    assert said in describe_proof(found)


def test_the_card_has_the_proof_and_predicted_beside_measured(panels: Panels, state: State) -> None:
    state.measurement = measurement(state)
    shown = plain(html(panels, "execution"))
    for part in (
        "4 B predicted, 4 B measured; gradients equal bit for bit; 60 % less memory",
        "peak 4 B 4 B +0.00 %",
        "overhead +50.0 % +60.0 % 200 ms against 125 ms",
        "held : at most 4 B of 4 B",
        "equal : max difference 0",
        "plain PyTorch 10 B, 100 ms",
        "requested 100 B, allocated 200 B, reserved 300 B",
        "requested 10 B, allocated 20 B, reserved 30 B",
        "on a GPU PyTorch's allocator, predicted: 2.00 MiB reserved · 2.00 KiB allocated · fragmentation 99.9 %",
        "measured and predicted memory are equal at every statement",
        "40 times slower than the plan ran",
    ):
        assert part in shown


def test_the_card_says_by_how_much_results_differ_and_where_that_begins(state: State) -> None:
    differences = (
        Difference("output", "loss", "float32", 0.5, 0.5, 4e6, 4e6),
        Difference("gradient", "1.<w>", "float32", 2.1e-7, 2.1e-7, 1.77, 1.77),
    )
    begins = FirstDifference(3, "1 mul", "backward", "1", "mul", "net.py:42", repeats=True)
    found = measurement(state, compared=Comparison(0.5, 2.1e-7, False, True, False, differences, 4, 2, begins))
    card = card_html(found)
    assert '<b class="bad">DIFFER</b> in 1 of 4' in card
    for part in (
        "by at most 2.1e-07 (1.8 units of float32's rounding) in '1.<w>' · loss DIFFERS by at most 0.5",
        "far more than a rounding",
        "buffers equal · random state DIFFERS",
        "the difference begins at '1 mul' (backward, net.py:42)",
    ):
        assert part in unescape(plain(card))
    assert "the difference begins at '1 mul'" in describe_validation(found)


def test_the_card_says_where_prediction_and_measurement_differ_most_and_why(state: State) -> None:
    shown = card_html(measurement(state, 7))
    assert 'class="bad">ABOVE<' in shown.partition("</p>")[0]
    assert "exceeded" in shown
    assert "+7 B at statement 3, compute v2 : the workspace of v2 was 7 B larger than predicted" in plain(shown)
    assert 'data-stage="2"' in shown


def test_running_out_of_memory_is_shown_as_a_result(panels: Panels, state: State, monkeypatch: Any) -> None:
    def run_out(*args: Any, **kwargs: Any) -> None:
        raise OutOfMemoryError("memory ran out at 'compute v3' (statement 6 of 52)", statement=5)

    monkeypatch.setattr(runtime, "measure", run_out)
    state.inputs, state.measured_costs = ModuleInputs(None, ()), False
    executing.execute(state, threading.Event())
    assert state.shortage.startswith("memory ran out at")
    assert (state.tone, state.panel) == ("warning", "execution")
    assert state.plan is not None
    assert state.stage == state.plan.statements[5].stage
    shown = plain(panels.views["execution"].content.html)
    assert "Out of memory on cpu. Predicted: 4 B. Memory ran out at" in shown
    other = rx.solve(rx.linear(8), budget=5)
    show_schedule(state, other.schedule, other)
    assert state.shortage == ""
    assert "Out of memory" not in panels.views["execution"].content.html


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


def test_a_plan_that_sends_is_run_and_bytes_on_the_host_stand_beside_the_prediction() -> None:
    own = loaded(measured_costs=False, transfers="100 GB/s", time_limit=2)
    own.state.budget = (own.state.smallest.known_feasible + own.state.checkpoint_all_peak) // 2
    state = executed(solved(own))
    plan = own.solution.plan
    assert plan.sent_bytes > 0
    assert own.measurement.equal
    assert own.measurement.host_peak == plan.host_peak
    said = plain(html(view_of(own, Panels), "execution"))
    assert f"on the host {format_bytes(plan.host_peak)} predicted, {format_bytes(plan.host_peak)} measured" in said
    assert "PyTorch's allocator" not in said
    assert state.status.startswith("Run. Peak predicted")
