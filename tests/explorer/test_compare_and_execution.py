"""Comparing two solutions, and the card of an execution, without a browser."""

from __future__ import annotations

import threading
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.explorer.panels.execution_panel import card_html
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work import executing
from remat_explorer.explorer.work.model_sources import ModuleInputs
from remat_explorer.explorer.work.schedule_comparison import open_solution_file, pin_solution, swap_compared
from remat_explorer.explorer.work.screen import show_schedule
from remat_explorer.plan import Plan
from remat_explorer.runtime.comparison import Comparison, Difference, FirstDifference
from tests.explorer.panel_tools import html, measurement, message, plain


def test_two_solutions_are_compared_swapped_and_parted(panels: Panels, state: State) -> None:
    assert "disabled" in html(panels, "compare")
    message(panels, "compare", action="pin")
    first = state.solution
    assert state.other is first
    second = rx.solve(rx.linear(8), budget=5)
    show_schedule(state, second.schedule, second)
    shown = plain(panels.views["compare"].content.html)
    assert "4 B of 4 B" in shown
    assert "5 B of 5 B" in shown
    assert "A costs" not in shown
    assert "B costs" in shown
    assert "What it computes more often: v" in shown
    assert "A needs 1 B more memory, so not all of this is in vain." in shown
    message(panels, "compare", action="swap")
    assert (state.solution, state.other) == (first, second)
    assert first is not None
    assert state.schedule is first.schedule
    message(panels, "compare", action="stop")
    assert state.other is None


def test_cells_of_only_one_schedule_are_counted(panels: Panels, state: State) -> None:
    keep = rx.solve(rx.linear(8), budget=10, strategy="checkpoint-all")
    state.other = keep
    assert state.schedule is not None
    assert keep.schedule is not None
    more = int(((state.schedule.R > 0) & (keep.schedule.R == 0)).sum())
    assert more == state.schedule.recomputations
    assert f"computed only here {more} 0" in plain(html(panels, "compare"))


def test_a_solution_file_is_opened_as_the_other(panels: Panels, state: State, tmp_path: Path) -> None:
    path = rx.solve(rx.linear(8), budget=5).save(tmp_path / "five.json")
    state.panel = "compare"
    compare: Any = panels.views["compare"]
    compare.path.value = str(path)
    compare.open.click()
    assert state.other is not None
    assert state.other.budget == 5
    assert "five.json" in state.status


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), ("[]", "is not a JSON object"), ("other graph", "another graph")]
)
def test_a_file_that_cannot_be_compared_is_a_sentence(
    state: State, tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "solution.json"
    if content == "other graph":
        rx.solve(rx.linear(3), budget=5).save(path)
    elif content is not None:
        path.write_text(content)
    open_solution_file(state, str(path))
    assert state.other is None
    assert state.tone == "error"
    assert reason in state.status


def test_nothing_to_compare_is_a_sentence() -> None:
    empty = State()
    for action in (pin_solution, swap_compared):
        action(empty)
        assert empty.tone == "warning"


def test_the_other_solution_goes_with_its_graph(panels: Panels, state: State) -> None:
    pin_solution(state)
    state.schedule = state.solution = None
    state.graph = rx.linear(3)
    assert state.other is None


def test_the_validation_card_has_predicted_beside_measured(panels: Panels, state: State) -> None:
    state.measurement = measurement(state)
    shown = plain(html(panels, "execution"))
    for part in (
        "peak 4 B 4 B +0.00 %",
        "overhead +50.0 % +60.0 % 200 ms against 125 ms",
        "held : at most 4 B of 4 B",
        "equal : max difference 0",
        "plain PyTorch 10 B, 100 ms",
        "requested 100 B, allocated 200 B, reserved 300 B",
        "requested 10 B, allocated 20 B, reserved 30 B",
        "on a GPU PyTorch's allocator, predicted: 2.00 MiB reserved · 2.00 KiB allocated · fragmentation 99.9 %",
        "measured and predicted memory are equal at every statement",
    ):
        assert part in shown


def test_the_card_says_by_how_much_results_differ_and_where_that_begins(state: State) -> None:
    differences = (
        Difference("output", "loss", "float32", 0.5, 0.5, 4e6, 4e6),
        Difference("gradient", "1.<w>", "float32", 2.1e-7, 2.1e-7, 1.77, 1.77),
    )
    begins = FirstDifference(3, "1 mul", "backward", "1", "mul", "net.py:42", repeats=True)
    compared = Comparison(0.5, 2.1e-7, False, True, False, differences, 4, 2, begins)
    card = card_html(measurement(state, compared=compared))
    assert '<b class="bad">DIFFER</b> in 1 of 4' in card
    shown = unescape(plain(card))
    for part in (
        "by at most 2.1e-07 (1.8 units of float32's rounding) in '1.<w>' · loss DIFFERS by at most 0.5",
        "far more than a rounding",
        "buffers equal · random state DIFFERS",
        "the difference begins at '1 mul' (backward, net.py:42)",
    ):
        assert part in shown
    assert "the difference begins at '1 mul'" in executing.describe_validation(measurement(state, compared=compared))


def test_the_card_says_where_prediction_and_measurement_differ_most_and_why(state: State) -> None:
    shown = card_html(measurement(state, 7))
    assert "exceeded" in shown
    assert "+7 B at statement 3, compute v2 : the workspace of v2 was 7 B larger than predicted" in plain(shown)
    assert 'data-stage="2"' in shown


def test_running_out_of_memory_is_shown_as_a_result(panels: Panels, state: State, monkeypatch: Any) -> None:
    import remat_explorer.runtime as runtime

    def run_out(*args: Any, **kwargs: Any) -> None:
        raise OutOfMemoryError("memory ran out at 'compute v3' (statement 6 of 52)", statement=5)

    monkeypatch.setattr(runtime, "measure", run_out)
    state.inputs, state.measured_costs = ModuleInputs(None, ()), False
    executing.execute(state, threading.Event())
    assert state.shortage.startswith("memory ran out at")
    assert state.tone == "warning"
    assert state.stage == Plan.of(state.schedule).statements[5].stage  # type: ignore[arg-type]
    assert state.panel == "execution"
    shown = plain(panels.views["execution"].content.html)
    assert "Out of memory on cpu. Predicted: 4 B. Memory ran out at" in shown
    other = rx.solve(rx.linear(8), budget=5)
    show_schedule(state, other.schedule, other)
    assert state.shortage == ""
    assert "Out of memory" not in panels.views["execution"].content.html
