"""The explorer without a browser: controllers change the state, views follow it, nothing blocks."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.explorer.controls import parse_image, status_html
from remat_explorer.explorer.work import loading
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.jobs import worker_process as process
from tests.explorer.driven import until

STEPS = 20_000
_BEGUN, _ENDED = threading.Event(), threading.Event()  # no attributes of the model: a step may not change those


def settled(explorer: Any) -> Any:
    assert explorer.wait(120)
    return explorer


@pytest.fixture(scope="module")
def chain() -> Any:
    """The eight-layer chain, loaded; tests leave it idle."""
    return settled(rx.Explorer(graph=rx.linear(8), sweep=False, improve=False))


@pytest.fixture
def long_graph(data: Path) -> rx.Graph:
    """A captured network that problem (9) cannot be solved for in a minute."""
    return rx.Graph.load(str(data / "captured" / "mobilenet_v1.json"))


def test_loading_shows_checkpoint_all_and_the_marks(chain: Any) -> None:
    state = chain.state
    assert (state.smallest.lower_bound, state.checkpoint_all_peak) == (3, 10)
    assert state.smallest.lower_bound <= state.smallest.known_feasible <= state.budget <= state.checkpoint_all_peak
    assert state.schedule is not None
    assert state.busy == ""


class Endless(nn.Module):
    """A forward pass that takes minutes to trace."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        for _ in range(STEPS):
            x = x.sin()
            _BEGUN.set()
        _ENDED.set()
        return x.sum()


def test_another_choice_does_not_wait_for_a_capture_that_nobody_wants_any_more() -> None:
    explorer = rx.Explorer(Endless(), (torch.ones(1, 2),), sweep=False, improve=False)
    assert _BEGUN.wait(60)
    explorer.state.model = "mlp"
    settled(explorer)
    assert explorer.state.graph is not None
    assert explorer.state.graph.name == "mlp"
    assert not _ENDED.is_set()


def test_graph_and_schedule_are_there_before_the_search_is_compiled(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))  # nothing is known of it
    shown = []

    def compiling(report: Any) -> None:
        state = explorer.state
        shown.append((state.graph is not None, state.solution and state.solution.strategy, state.busy))

    begin = threading.Event()
    monkeypatch.setattr(loading, "load_search", lambda report: (begin.wait(60), compiling(report)))
    explorer = rx.Explorer("mlp", sweep=False, improve=False)
    begin.set()
    settled(explorer)
    assert shown == [(True, "checkpoint-all", "loading")]


def test_measuring_counts_its_runs(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    monkeypatch.setattr(loading, "COUNT_INTERVAL", 0.0)
    said = []
    explorer = rx.Explorer("mlp", batch=2048, measured_costs=True, sweep=False, improve=False)
    explorer.state.observe(lambda change: said.append(change["new"]), "status")
    settled(explorer)
    assert explorer.state.graph is not None
    counts = [line for line in said if "runs…" in line]
    assert len(counts) >= explorer.state.graph.n
    done, total = re.findall(r"(\d+) of (\d+) runs…", counts[-1])[0]
    assert done == total


def test_the_picture_of_the_model_before_is_dimmed_and_named_until_it_goes() -> None:
    explorer = settled(rx.Explorer("mlp", sweep=False, improve=False))
    state, seen = explorer.state, []

    def look(change: Any) -> None:
        dimmed = "remat-stale" in explorer._dom_classes
        seen.append((change["new"], dimmed, "The picture is still that of mlp." in status_html(state)))

    state.observe(look, "stale")
    state.model = "chain"
    settled(explorer)
    assert seen == [(True, True, True), (False, False, False)]


def test_solving_shows_the_optimum_and_says_so(chain: Any) -> None:
    chain.state.set_budget("40%")
    chain.solve()
    settled(chain)
    assert chain.solution.cost == 26
    assert chain.state.tone == "good"
    assert "Optimal · overhead +52.9 % · predicted peak 4 B of 4 B" in chain.state.status


def test_what_was_solved_before_is_found_in_the_cache(chain: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    chain.state.set_budget("50%")
    chain.solve()
    settled(chain)
    assert "found in the cache" not in chain.state.status
    cost = chain.solution.cost
    chain.solve()
    settled(chain)
    assert chain.solution.cost == cost
    assert chain.state.status.startswith("Optimal · ")
    assert "found in the cache, solved in" in chain.state.status


def test_what_went_wrong_beside_a_solution_is_a_warning(chain: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "file"))
    chain.state.set_budget("70%")
    chain.solve()
    settled(chain)
    assert chain.solution.cost == 20
    assert "another folder in the environment variable REMAT_EXPLORER_CACHE" in chain.state.status
    assert chain.state.tone == "warning"


def test_the_next_solve_has_a_process_that_waits_for_it() -> None:
    explorer = settled(rx.Explorer(graph=rx.linear(4), sweep=False, improve=False))
    loaded = process._waiting
    assert loaded is not None
    assert loaded.process.poll() is None
    explorer.state.strategy = "checkmate-ilp"  # which has no answer in the cache yet
    explorer.solve()
    settled(explorer)
    waiting = process._waiting
    assert waiting is not None
    assert waiting.process.poll() is None


def test_an_infeasible_budget_is_explained_and_keeps_the_schedule_on_the_screen(chain: Any) -> None:
    shown = chain.state.schedule
    chain.state.budget = 2
    chain.solve()
    settled(chain)
    assert chain.state.schedule is shown
    assert str(chain.state.answer.status) == "infeasible"
    assert chain.state.tone == "error"
    assert "alone needs 3 B" in chain.state.status


def test_an_error_becomes_a_sentence(chain: Any) -> None:
    chain.state.strategy, chain.state.budget = "optimum", 5
    chain.solve()
    settled(chain)
    chain.state.strategy = "optimal"
    assert "unknown strategy 'optimum'; did you mean 'optimal'" in chain.state.status
    assert "Traceback" not in chain.state.status


def test_a_graph_cannot_be_executed_and_says_why(chain: Any) -> None:
    chain.execute()
    settled(chain)
    assert chain.state.status == "This is a graph without a module, so nothing can run."


def test_stage_and_value_stay_inside_the_matrices(chain: Any) -> None:
    chain.state.stage, chain.state.value = 99, -3
    assert (chain.state.stage, chain.state.value) == (16, 0)


def test_the_cursor_reaches_matrices_scrubber_and_plan_and_back(chain: Any) -> None:
    _, _, _, scrubber, matrices, _, panels, *_ = chain._views
    chain.state.panel, chain.state.stage = "plan", 7
    assert matrices.widget.stage == scrubber.bar.stage == 7
    assert "t=7" in panels.views["plan"].content.html
    matrices.widget.stage = 11  # what a click in the browser does
    assert chain.state.stage == scrubber.bar.stage == 11


def test_the_budget_field_understands_units_and_shares(chain: Any) -> None:
    budget = chain._views[1]
    budget.field.value = "60%"
    assert (chain.state.budget, budget.slider.value) == (6, 6)
    budget.field.value = "a lot"
    assert chain.state.budget == 6
    assert "'a lot' is not a number of bytes" in chain.state.status
    assert budget.field.value == "6 B"


def test_the_figure_survives_a_reload_of_the_page(chain: Any) -> None:
    figure = chain._views[5].figure
    chain.state.schedule = rx.solve(rx.linear(8), budget=3).schedule
    sent = {trace["name"]: trace for trace in figure.get_state()["_widget_data"]}
    assert sent["predicted"]["y"]["shape"] == (45 + 1,)


def test_cancel_ends_a_solve_of_ten_minutes_at_once_and_keeps_the_incumbent(
    long_graph: rx.Graph, monkeypatch: Any
) -> None:
    monkeypatch.setattr(loading, "FIRST_SECONDS", 0.0)  # else the optimum may be there already
    unusual = "59.3%"  # of no other test, whose schedules are kept
    explorer = settled(rx.Explorer(graph=long_graph, budget=unusual, time_limit=600, sweep=False, improve=False))
    first, shown = explorer.state.schedule, []
    explorer.state.observe(lambda change: shown.append(change["new"]), "schedule")
    explorer.solve()
    assert until(lambda: shown and shown[-1].cost < first.cost)
    explorer.cancel()
    assert explorer.wait(5)
    assert explorer.state.schedule.cost <= min(schedule.cost for schedule in shown)
    assert explorer.solution.peak <= explorer.state.budget
    assert explorer.state.status.startswith("Cancelled, incumbent kept")


def test_the_kernel_answers_while_a_solve_runs(long_graph: rx.Graph) -> None:
    explorer = settled(
        rx.Explorer(graph=long_graph, strategy="checkmate-ilp", time_limit=600, sweep=False, improve=False)
    )
    explorer.solve()
    for stage in range(20):
        explorer.state.stage = stage
        time.sleep(0.02)
    assert explorer.state.busy == "solving"
    assert explorer.state.stage == 19
    explorer.cancel()
    settled(explorer)


def test_unknown_names_are_refused_with_near_matches() -> None:
    with pytest.raises(UnknownNameError, match="unknown setting 'time_limt'; did you mean 'time_limit'"):
        rx.Explorer(graph=rx.linear(2), time_limt=3)
    with pytest.raises(UnknownNameError, match="unknown model 'vg16'; did you mean 'vgg16'"):
        rx.Explorer("vg16")


def test_image_sizes_are_read_from_the_field() -> None:
    assert (parse_image("64"), parse_image("416 x 608"), parse_image(" ")) == (64, (416, 608), None)
    with pytest.raises(QuantityError, match="'big' is not an image size"):
        parse_image("big")


def test_the_strategy_explains_itself_in_the_words_of_table_1(chain: Any) -> None:
    field = strategy_field(chain)
    for name in ("checkpoint-sequential", "optimal"):
        chain.state.strategy = name
        assert STRATEGIES[name].summary in field.tooltip
        assert STRATEGIES[name].source in field.tooltip
    assert {"pytorch-budget", "checkpoint-sequential"} <= {name for _, name in field.options}


def strategy_field(explorer: Any) -> Any:
    """The list of strategies among the widgets."""
    waiting = [explorer]
    while waiting:
        widget = waiting.pop()
        if ("checkmate-ilp", "checkmate-ilp") in (getattr(widget, "options", None) or ()):
            return widget
        waiting += getattr(widget, "children", ())
    raise AssertionError("there is no list of strategies")


def test_a_budget_that_makes_no_sense_for_other_sizes_is_replaced_and_that_is_said(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))  # without what other tests looked at
    explorer = settled(rx.Explorer("mlp", batch=2048, measured_costs=False, sweep=False, improve=False))
    state = explorer.state
    try:
        assert "no longer" not in state.status
        state.set_budget("90%")
        before = state.budget
        state.batch = 1024
        settled(explorer)
        assert state.budget < before
        assert state.tone == "warning"
        assert f"The budget is {format_bytes(state.budget)} now, no longer {format_bytes(before)}" in state.status
        kept = state.budget
        state.batch = 1000
        settled(explorer)
        assert (state.budget, state.tone) == (kept, "plain")
    finally:
        explorer.close()
