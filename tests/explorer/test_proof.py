"""What an execution has proven, and the pace at which its measured memory is drawn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from remat_explorer.explorer.measured_run import LEAST, MOST, PLACES, MeasuredRunView, drawing_moments, drawing_seconds
from remat_explorer.explorer.panels.execution_panel import card_html
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.executing import describe_proof
from remat_explorer.plan import Compute
from remat_explorer.runtime.comparison import Comparison
from remat_explorer.runtime.differences.sizes import Difference
from tests.explorer.panel_tools import html, measurement, message, plain

MIB = 1024**2
DIFFERENCE = Difference("gradient", "0.weight", "float32", 2e-7, 1e-7, 0.8, 0.8)


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
