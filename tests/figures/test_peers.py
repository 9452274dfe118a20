"""PyTorch's ways in figures: where they stand, what is left out, and what the legend promises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from remat_explorer.figures import activation_budget, beside_pytorch
from remat_explorer.figures.beside_pytorch import MEASURED
from remat_explorer.runtime.peers import PeerMeasurement

draw: Any = beside_pytorch
draw_budgets: Any = activation_budget
KIB = 2**10
PEERS = (
    PeerMeasurement("eager", peak=12, seconds=1.0, overhead=1.0),
    PeerMeasurement("checkpoint-blocks", "4 × Block", peak=7, seconds=1.4, overhead=1.4),
    PeerMeasurement("checkpoint-sequential", problem="the model has no nn.Sequential of several members"),
    PeerMeasurement("pytorch-budget", "budget 0.5, dp", 9, 9, 1.2, 1.9, 1.9),
)


def trace(figure: Any, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def test_checkpoints_stand_at_their_time_and_plans_at_their_counted_cost(frontier: Any) -> None:
    figure = draw(frontier, PEERS)
    blocks, budget = trace(figure, "checkpoint-blocks, timed"), trace(figure, "pytorch-budget, cost counted")
    assert (*blocks.x, *blocks.y) == (7, pytest.approx(40.0))
    assert (*budget.x, *budget.y) == (9, pytest.approx(20.0))
    assert "timed +90.0 %" in budget.text[0]


def test_a_way_that_costs_far_more_than_any_schedule_is_drawn_at_the_edge_and_says_so(frontier: Any) -> None:
    dear = PeerMeasurement("checkpoint-blocks", peak=7, seconds=30.0, overhead=30.0)
    figure = draw(frontier, [dear, PEERS[0]])
    at_the_edge, normal = trace(figure, "checkpoint-blocks, timed"), trace(figure, "eager, timed")
    assert at_the_edge.y[0] < 2900
    assert at_the_edge.marker.symbol == ("arrow-up",)
    assert normal.marker.symbol != ("arrow-up",)
    assert "beyond the upper edge" in at_the_edge.text[0]
    assert "beyond" not in normal.text[0]


def test_what_did_not_run_is_left_out(frontier: Any) -> None:
    assert not any(trace.name.startswith("checkpoint-sequential") for trace in draw(frontier, PEERS).data)


def test_our_own_measurements_stand_at_the_measured_peak(frontier: Any) -> None:
    measured: Any = SimpleNamespace(budget=6, peak=8, predicted_overhead=1.25, overhead=None)
    ring = trace(draw(frontier, (), [measured]), f"{MEASURED}, cost counted")
    assert (*ring.x, *ring.y) == (8, pytest.approx(25.0))
    assert "timed" not in ring.text[0]


def test_every_way_has_a_shape_of_its_own(frontier: Any) -> None:
    names = ("eager", "checkpoint-blocks", "checkpoint-sequential", "pytorch-budget")
    ran = [PeerMeasurement(name, peak=5, seconds=1.0, overhead=1.1) for name in names]
    shapes = [t.marker.symbol for t in draw(frontier, ran).data if t.name.endswith("timed")]
    assert len(set(shapes)) == len(names)


def test_a_peak_that_rises_again_is_drawn_against_the_shares_in_order() -> None:
    plan: Any = SimpleNamespace(graph=SimpleNamespace(resident_bytes=1 * KIB))
    peaks = {1.0: 5, 0.0: 4, 0.5: 2}
    found = [PeerMeasurement("pytorch-budget", f"budget {b}", p * KIB, plan=plan) for b, p in peaks.items()]
    measured, promised = draw_budgets([PEERS[0], *found], list(peaks)).data
    assert (measured.x, measured.y) == ((0.0, 0.5, 1.0), (4.0, 2.0, 5.0))
    assert (promised.x, promised.y) == ((0.0, 1.0), (1.0, 5.0))


def test_budgets_that_failed_leave_an_empty_figure_that_says_so() -> None:
    figure = draw_budgets([PeerMeasurement("pytorch-budget", problem="it failed")], [0.5])
    assert not figure.data
    assert "No activation memory budget" in figure.layout.annotations[0].text


def test_as_many_budgets_as_measurements_are_needed() -> None:
    with pytest.raises(ValueError, match="zip"):
        draw_budgets(PEERS, [1.0, 0.5])
