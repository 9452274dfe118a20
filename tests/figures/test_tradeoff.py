"""The trade-off figure: the line through the best only, marks that differ, bounds that hold, and odd sweeps."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from remat_explorer.figures import tradeoff
from remat_explorer.figures.tradeoff import SHAPES, Extent, bound_steps, largest_infeasible, mark, points_of
from remat_explorer.instances import linear
from remat_explorer.solvers import STRATEGIES, Frontier, solve
from remat_explorer.solvers.solution import Status
from remat_explorer.solvers.sweeps.own_points import OwnPoint

draw: Any = tradeoff


def trace(figure: Any, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name.startswith(name))


def test_the_line_runs_through_the_points_that_no_other_beats(frontier: Any) -> None:
    line = trace(draw(frontier), "best")
    best = frontier.nondominated()
    assert np.allclose(line.x, [point.peak for point in best])
    assert np.allclose(line.y, [100 * (point.cost / 17 - 1) for point in best])
    dominated = {point.peak for point in frontier.points} - {point.peak for point in best}
    shown = {float(x) for t in draw(frontier).data if t.mode == "markers" for x in t.x}
    assert dominated <= shown


def test_every_strategy_has_a_shape_of_its_own() -> None:
    assert len({mark(name).shape for name in STRATEGIES}) == len(STRATEGIES) <= len(SHAPES) == len(set(SHAPES))
    assert mark("of somebody else").shape not in {mark(name).shape for name in STRATEGIES}


def test_proven_points_are_filled_and_others_open(frontier: Any) -> None:
    open_ones = [dataclasses.replace(s, status=Status.FEASIBLE) for s in frontier.solutions if s.schedule]
    figures = draw(frontier), draw(Frontier(frontier.graph, tuple(open_ones)))
    assert [trace(figure, "optimal").marker.symbol for figure in figures] == [("circle",) * 3, ("circle-open",) * 3]


def test_a_schedule_that_answers_several_budgets_is_one_point() -> None:
    frontier = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (10, 11, 12)))
    assert [point.budget for point in points_of(frontier, "optimal")] == [10]
    assert "budget 10 B" in trace(draw(frontier), "optimal").text[0]


def test_points_of_methods_that_do_not_ask_for_the_budget_are_shown_with_their_label(frontier: Any) -> None:
    found = solve(linear(8), 7, strategy="griewank")
    own = OwnPoint.of(dataclasses.replace(found, budget=found.peak or 0), "4 slots")
    sweep = Frontier(frontier.graph, (*frontier.solutions, found), own=(own,))
    assert points_of(sweep, "griewank") == (own,)
    assert "<b>griewank</b> (4 slots), " in trace(draw(sweep), "griewank").text[0]


def test_no_schedule_lies_below_the_proven_line(frontier: Any) -> None:
    budgets, bounds = bound_steps(frontier)
    for solution in frontier.points:
        holding = bounds[budgets >= (solution.peak or 0)]
        assert (100 * ((solution.overhead or 0) - 1) >= holding - 1e-6).all()
    assert (np.diff(bounds) <= 0).all()
    assert largest_infeasible(frontier) == 2
    proven = trace(draw(frontier), "proven: none below")
    assert max(proven.y) > max(trace(draw(frontier), "best").y)  # where nothing fits, to the top and beyond


def test_budget_selection_and_measurement_are_drawn_where_they_are(frontier: Any) -> None:
    chosen = frontier.best(6)
    assert chosen is not None
    figure = draw(frontier, 6, chosen, SimpleNamespace(peak=5, overhead=1.3))
    assert tuple(trace(figure, "budget").x) == (6, 6)
    assert (trace(figure, "selected").x[0], trace(figure, "selected").y[0]) == (6, pytest.approx(100 * (21 / 17 - 1)))
    assert (trace(figure, "measured").x[0], trace(figure, "measured").y[0]) == (5, pytest.approx(30))
    assert "overhead +30.0 %" in trace(figure, "measured").text[0]


def test_a_measurement_without_its_overhead_is_not_drawn(frontier: Any) -> None:
    assert not trace(draw(frontier, measurement=SimpleNamespace(peak=5, overhead=None)), "measured").visible


def test_dear_methods_do_not_press_the_others_onto_the_axis() -> None:
    solutions = tuple(solve(linear(16), budget) for budget in (8, 18))
    dear = dataclasses.replace(solve(linear(16), 3, strategy="griewank"), budget=17)
    named = dataclasses.replace(dear, schedule=None)
    figure = draw(Frontier(linear(16), (*solutions, named), own=(OwnPoint.of(dear, ""),)))
    top = figure.layout.yaxis.range[1]
    for t in figure.data:
        if t.mode == "markers":
            assert all(y <= top for y in t.y)
    assert f"overhead +{100 * ((dear.overhead or 0) - 1):.1f} %" in trace(figure, "griewank").text[0]
    assert "beyond the upper edge" in trace(figure, "griewank").text[0]


def test_the_same_strategies_have_the_same_traces_in_the_same_order(frontier: Any) -> None:
    fewer = Frontier(frontier.graph, tuple(s for s in frontier.solutions if s.budget < 5))
    names = [[t.name for t in draw(sweep).data] for sweep in (frontier, fewer)]
    assert names[0] == names[1]


@pytest.mark.parametrize("budgets", [(), (2,), (10,)], ids=["nothing", "only infeasible", "one point"])
def test_odd_sweeps_are_drawn(budgets: tuple[int, ...]) -> None:
    sweep = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in budgets))
    figure = draw(sweep, budget=4, theme="dark")
    (left, right), (bottom, top) = figure.layout.xaxis.range, figure.layout.yaxis.range
    assert left < 4 < right
    assert bottom < 0 < top
    said = [annotation.text for annotation in figure.layout.annotations]
    assert said == ([] if budgets == (10,) else ["No strategy has a schedule within these budgets"])


def at(peak: int, percent: float) -> Any:
    return SimpleNamespace(peak=peak, overhead=1 + percent / 100)


def frontier_of(*percentages: float) -> Any:
    """Best points of these overheads, in %, the more memory the less of it."""
    points = tuple(at(i + 1, percent) for i, percent in enumerate(percentages))
    return SimpleNamespace(points=points, solutions=(), nondominated=lambda: points)


def test_one_dear_point_of_many_does_not_say_where_the_axis_ends() -> None:
    assert Extent.around(frontier_of(425, 8, 3, 0)).top == pytest.approx(24)
    assert Extent.around(frontier_of(29, 8, 3, 0)).top == pytest.approx(29)  # hardly beyond that
    assert Extent.around(frontier_of(40, 0)).top == pytest.approx(40)


def test_a_measured_overhead_that_noise_has_made_does_not_set_the_axis() -> None:
    quiet = Extent.around(frontier_of(20, 8, 3, 0))
    noisy = Extent.around(frontier_of(20, 8, 3, 0), None, at(2, -47))
    assert noisy.top == quiet.top == pytest.approx(20)
    assert noisy.bottom == pytest.approx(-0.31 * 20)
    assert noisy.edge(at(2, -47)) == "lower"
    assert noisy.edge(at(2, 425)) == "upper"
    assert noisy.edge(at(2, 5)) == ""


def test_what_lies_beyond_an_edge_is_an_arrow_with_its_true_overhead(frontier: Any) -> None:
    figure = draw(frontier, measurement=at(5, -47))
    assert trace(figure, "measured").marker.symbol == "arrow-down"
    assert trace(figure, "measured").y[0] >= figure.layout.yaxis.range[0]
    assert "overhead -47.0 %<br>(beyond the lower edge)" in trace(figure, "measured").text[0]


def test_only_points_that_no_other_beats_are_left_where_only_the_best_are_asked_for(frontier: Any) -> None:
    best = {(point.peak, point.cost) for point in frontier.nondominated()}
    left = [point for name in frontier.strategies for point in points_of(frontier, name, best_only=True)]
    assert {(point.peak, point.cost) for point in left} == best
    assert len(left) < sum(len(points_of(frontier, name)) for name in frontier.strategies)
