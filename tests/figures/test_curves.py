"""Figures of costs: trade-offs, ablations, rounding, a solver's progress, the case study, and beside PyTorch."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.errors import GraphError, ScheduleError
from remat_explorer.explanations.values import kept_bytes
from remat_explorer.figures import ablation as figure_of
from remat_explorer.figures import activation_budget, beside_pytorch, solver_progress, tradeoff
from remat_explorer.figures.beside_pytorch import MEASURED
from remat_explorer.figures.case_study import case_study, case_study_of, colours_of
from remat_explorer.figures.layers import costs_of
from remat_explorer.figures.palette import palette
from remat_explorer.figures.rounding_scatter import rounding_scatter
from remat_explorer.figures.solver_progress import gap_text
from remat_explorer.figures.tradeoff import SHAPES, Extent, bound_steps, largest_infeasible, mark, points_of
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.instances import linear
from remat_explorer.runtime.peers import PeerMeasurement
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import STRATEGIES, Ablation, Frontier, ablation, solve
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.methods.two_phase_rounding import Scatter, scatter, solve_linear_program
from remat_explorer.solvers.solver_interface import Limits, checkpoint_all
from remat_explorer.solvers.sweeps.own_points import OwnPoint

draw_tradeoff: Any = tradeoff


def trace(figure: Any, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name.startswith(name))


def test_the_line_runs_through_the_points_that_no_other_beats(frontier: Any) -> None:
    line = trace(draw_tradeoff(frontier), "best")
    best = frontier.nondominated()
    assert np.allclose(line.x, [point.peak for point in best])
    assert np.allclose(line.y, [100 * (point.cost / 17 - 1) for point in best])
    dominated = {point.peak for point in frontier.points} - {point.peak for point in best}
    shown = {float(x) for t in draw_tradeoff(frontier).data if t.mode == "markers" for x in t.x}
    assert dominated <= shown
    left = [point for name in frontier.strategies for point in points_of(frontier, name, best_only=True)]
    assert {(point.peak, point.cost) for point in left} == {(point.peak, point.cost) for point in best}


def test_every_strategy_has_a_shape_of_its_own() -> None:
    assert len({mark(name).shape for name in STRATEGIES}) == len(STRATEGIES) <= len(SHAPES) == len(set(SHAPES))
    assert mark("of somebody else").shape not in {mark(name).shape for name in STRATEGIES}


def test_proven_points_are_filled_and_others_open(frontier: Any, found: Ablation) -> None:
    open_ones = [replace(s, status=Status.FEASIBLE) for s in frontier.solutions if s.schedule]
    figures = draw_tradeoff(frontier), draw_tradeoff(Frontier(frontier.graph, tuple(open_ones)))
    assert [trace(figure, "optimal").marker.symbol for figure in figures] == [("circle",) * 3, ("circle-open",) * 3]
    assert not any("open" in symbol for symbol in traces(draw_ablation(found))["all"].marker.symbol)
    doubtful = {key: replace(s, status=Status.FEASIBLE, lower_bound=None) for key, s in found.solutions.items()}
    line = traces(draw_ablation(replace(found, solutions=doubtful)))["all"]
    assert all(symbol.endswith("-open") for symbol in line.marker.symbol)
    assert "no bound proven" in line.text[0]


def test_a_schedule_that_answers_several_budgets_is_one_point_and_own_points_have_their_label(frontier: Any) -> None:
    several = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (10, 11, 12)))
    assert [point.budget for point in points_of(several, "optimal")] == [10]
    assert "budget 10 B" in trace(draw_tradeoff(several), "optimal").text[0]
    found = solve(linear(8), 7, strategy="griewank")
    own = OwnPoint.of(replace(found, budget=found.peak or 0), "4 slots")
    sweep = Frontier(frontier.graph, (*frontier.solutions, found), own=(own,))
    assert points_of(sweep, "griewank") == (own,)
    assert "<b>griewank</b> (4 slots), " in trace(draw_tradeoff(sweep), "griewank").text[0]


def test_no_schedule_lies_below_the_proven_line(frontier: Any) -> None:
    budgets, bounds = bound_steps(frontier)
    for solution in frontier.points:
        holding = bounds[budgets >= (solution.peak or 0)]
        assert (100 * ((solution.overhead or 0) - 1) >= holding - 1e-6).all()
    assert (np.diff(bounds) <= 0).all()
    assert largest_infeasible(frontier) == 2
    proven = trace(draw_tradeoff(frontier), "proven: none below")
    assert max(proven.y) > max(trace(draw_tradeoff(frontier), "best").y)  # where nothing fits, to the top and beyond


def test_budget_selection_and_measurement_are_drawn_where_they_are(frontier: Any) -> None:
    chosen = frontier.best(6)
    assert chosen is not None
    figure = draw_tradeoff(frontier, 6, chosen, SimpleNamespace(peak=5, overhead=1.3))
    assert tuple(trace(figure, "budget").x) == (6, 6)
    assert (trace(figure, "selected").x[0], trace(figure, "selected").y[0]) == (6, pytest.approx(100 * (21 / 17 - 1)))
    assert (trace(figure, "measured").x[0], trace(figure, "measured").y[0]) == (5, pytest.approx(30))
    assert "overhead +30.0 %" in trace(figure, "measured").text[0]
    untimed = draw_tradeoff(frontier, measurement=SimpleNamespace(peak=5, overhead=None))
    assert not trace(untimed, "measured").visible
    fewer = draw_tradeoff(Frontier(frontier.graph, tuple(s for s in frontier.solutions if s.budget < 5)))
    assert [t.name for t in fewer.data] == [t.name for t in untimed.data]


def test_dear_methods_do_not_press_the_others_onto_the_axis() -> None:
    solutions = tuple(solve(linear(16), budget) for budget in (8, 18))
    dear = replace(solve(linear(16), 3, strategy="griewank"), budget=17)
    named = replace(dear, schedule=None)
    figure = draw_tradeoff(Frontier(linear(16), (*solutions, named), own=(OwnPoint.of(dear, ""),)))
    top = figure.layout.yaxis.range[1]
    for t in figure.data:
        if t.mode == "markers":
            assert all(y <= top for y in t.y)
    assert f"overhead +{100 * ((dear.overhead or 0) - 1):.1f} %" in trace(figure, "griewank").text[0]
    assert "beyond the upper edge" in trace(figure, "griewank").text[0]


@pytest.mark.parametrize("budgets", [(), (2,), (10,)], ids=["nothing", "only infeasible", "one point"])
def test_odd_sweeps_are_drawn(budgets: tuple[int, ...]) -> None:
    sweep = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in budgets))
    figure = draw_tradeoff(sweep, budget=4, theme="dark")
    (left, right), (bottom, top) = figure.layout.xaxis.range, figure.layout.yaxis.range
    assert left < 4 < right
    assert bottom < 0 < top
    said = [annotation.text for annotation in figure.layout.annotations]
    assert said == ([] if budgets == (10,) else ["No strategy has a schedule within these budgets"])


def at(peak: int, percent: float) -> Any:
    return SimpleNamespace(peak=peak, overhead=1 + percent / 100)


draw_ablation: Any = figure_of
X, MASK, LOSS, G = range(4)


@pytest.fixture(scope="module")
def masked() -> Graph:
    """A gradient that reads x, an eighth of it, or nothing; and one kind that serves nothing."""
    gradient = (
        Implementation((LOSS, X), (G,), 2.0),
        Implementation((LOSS, MASK), (G,), 2.5, name="bits", kinds=("masks",)),
        Implementation((LOSS,), (G,), 4.0, name="replay", kinds=("replay",)),
        Implementation((LOSS, X), (G,), 9.0, name="slow", kinds=("algorithms",)),
    )
    values = Value("x", 80), Value("mask", 10), Value("loss", 40), Value("g", 40, persistent=True)
    operations = (
        operation("x", "forward", [], [X], 1.0),
        Operation("mask", "forward", (Implementation((X,), (MASK,), 0.5),), optional=True),
        operation("loss", "backward", [X], [LOSS], 1.0),
        Operation("g", "backward", gradient),
    )
    return Graph("masked", values, operations)


@pytest.fixture(scope="module")
def found(masked: Graph) -> Ablation:
    return ablation(masked, [110, 130, 160], time_limit=60)


def traces(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_every_set_has_a_line_through_its_overheads(found: Ablation, masked: Graph) -> None:
    nothing = draw_ablation(ablation(masked, [1], time_limit=10, cancelled=lambda: True))
    assert "No set of kinds" in nothing.layout.annotations[0].text
    lines = traces(draw_ablation(found))
    for kinds, name in (("none", "none"), ("masks", "masks"), ("replay", "replay"), ("all", "all")):
        known = [s for s in found.curve(kinds) if s.schedule is not None]
        assert list(lines[name].x) == [s.budget for s in known]
        assert list(lines[name].y) == pytest.approx([100 * ((s.overhead or 0.0) - 1) for s in known])
    assert len(lines["none"].x) < len(lines["all"].x)
    assert lines["algorithms (as none)"].visible == "legendonly"  # what changes nothing
    assert lines["masks"].visible is True
    marks = lines["smallest budgets"]
    assert list(marks.x) == [found.smallest_budget(kinds).known_feasible for kinds in found.sets]
    assert marks.marker.color[-1] == lines["all"].line.color
    assert marks.x[-1] < marks.x[0]


draw_peers: Any = beside_pytorch
draw_budgets: Any = activation_budget
KIB = 2**10
PEERS = (
    PeerMeasurement("eager", peak=12, seconds=1.0, overhead=1.0),
    PeerMeasurement("checkpoint-blocks", "4 × Block", peak=7, seconds=1.4, overhead=1.4),
    PeerMeasurement("checkpoint-sequential", problem="the model has no nn.Sequential of several members"),
    PeerMeasurement("pytorch-budget", "budget 0.5, dp", 9, 9, 1.2, 1.9, 1.9),
)


def test_checkpoints_stand_at_their_time_and_plans_at_their_counted_cost(frontier: Any) -> None:
    figure = draw_peers(frontier, PEERS)
    blocks, budget = trace(figure, "checkpoint-blocks, timed"), trace(figure, "pytorch-budget, cost counted")
    assert (*blocks.x, *blocks.y) == (7, pytest.approx(40.0))
    assert (*budget.x, *budget.y) == (9, pytest.approx(20.0))
    assert "timed +90.0 %" in budget.text[0]
    assert not any(one.name.startswith("checkpoint-sequential") for one in figure.data)  # it did not run
    measured: Any = SimpleNamespace(budget=6, peak=8, predicted_overhead=1.25, overhead=None)
    ring = trace(draw_peers(frontier, (), [measured]), f"{MEASURED}, cost counted")
    assert (*ring.x, *ring.y) == (8, pytest.approx(25.0))
    assert "timed" not in ring.text[0]


def test_a_peak_that_rises_again_is_drawn_against_the_shares_in_order() -> None:
    plan: Any = SimpleNamespace(graph=SimpleNamespace(resident_bytes=1 * KIB))
    peaks = {1.0: 5, 0.0: 4, 0.5: 2}
    found = [PeerMeasurement("pytorch-budget", f"budget {b}", p * KIB, plan=plan) for b, p in peaks.items()]
    measured, promised = draw_budgets([PEERS[0], *found], list(peaks)).data
    assert (measured.x, measured.y) == ((0.0, 0.5, 1.0), (4.0, 2.0, 5.0))
    assert (promised.x, promised.y) == ((0.0, 1.0), (1.0, 5.0))
    failed = draw_budgets([PeerMeasurement("pytorch-budget", problem="it failed")], [0.5])
    assert "No activation memory budget" in failed.layout.annotations[0].text


draw_rounding: Any = rounding_scatter


def test_points_are_overheads_and_peaks_of_the_draws(tight: Any) -> None:
    chain = linear(8)
    cloud = scatter(solve_linear_program(CondensedGraph.of(chain), 4, Limits()), samples=30, seed=3)
    figure = draw_rounding(chain, cloud, Scatter(np.array([34.0]), np.array([5])), tight, budget=4)
    randomized, deterministic, optimal, budget = figure.data
    assert list(randomized.x) == cloud.peak.tolist()
    assert list(randomized.y) == pytest.approx((100 * (cloud.cost / 17 - 1)).tolist())
    assert (list(deterministic.x), list(deterministic.y)) == ([5.0], [100.0])
    assert (list(optimal.x), list(optimal.y)) == ([tight.peak], pytest.approx([100 * (26 / 17 - 1)]))
    assert list(budget.x) == [4.0, 4.0]
    assert budget.y[1] >= max(randomized.y)
    free = Graph("free", (Value("x", 1),), (operation("f", "forward", [], [0], 0),))
    with pytest.raises(GraphError, match="'free' costs nothing"):
        draw_rounding(free, cloud, cloud)


draw_progress: Any = solver_progress


def moments(*rows: tuple[float, float | None, float | None]) -> Any:
    return [SimpleNamespace(seconds=seconds, cost=cost, lower_bound=bound) for seconds, cost, bound in rows]


HISTORY = moments((0.1, None, 100.0), (0.5, 150.0, 100.0), (2.0, 150.0, 110.0), (3.0, 125.0, 110.0))


def test_both_lines_are_overheads_at_the_times_of_their_changes_and_reach_the_end() -> None:
    figure = draw_progress(HISTORY, 100.0)
    assert figure.layout.annotations[0].text == gap_text(HISTORY) == "gap 12.0 %"
    best, bound = figure.data
    assert (list(best.x), list(best.y)) == ([0.5, 3.0], pytest.approx([50.0, 25.0]))
    assert (list(bound.x), list(bound.y)) == ([0.1, 2.0, 3.0], pytest.approx([0.0, 10.0, 10.0]))


@pytest.mark.parametrize(
    ("history", "said"),
    [
        (moments((1.0, None, None)), "Nothing has been found yet"),
        (moments((1.0, 5.0, None)), "no bound proven yet"),
        (moments((1.0, None, 5.0)), "no schedule yet"),
    ],
)
def test_what_is_not_known_is_said(history: Any, said: str) -> None:
    figure = draw_progress(history, 4.0, theme="dark")
    assert figure.layout.annotations[0].text == said
    assert len(figure.data) == 2


@pytest.fixture
def two(tight: Any) -> tuple[rx.Schedule, rx.Schedule]:
    return tight.schedule, checkpoint_all(tight.graph)


def test_amounts_by_layer_add_up_to_those_of_the_schedules_and_memory_reaches_their_peaks(two: Any) -> None:
    small, keep = two
    study = case_study_of("small", small, {"eager": keep})
    assert study.overhead["eager"].sum() == pytest.approx((small.cost - keep.cost) / keep.cost)
    assert study.saved["eager"].sum() == kept_bytes(keep).sum() - kept_bytes(small).sum()
    assert study.saved["eager"].sum() > 0
    assert costs_of(small).sum() == small.cost  # every run counts
    peaks = {name: int(line.max()) for name, line in study.memory.items()}
    assert peaks == {"small": rx.Plan.of(small).peak, "eager": rx.Plan.of(keep).peak}
    assert all(len(line) == small.stages for line in study.memory.values())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_figure_has_lines_and_bars_in_the_colours_of_their_schedules(theme, two) -> None:
    figure: Any = case_study("small", two[0], {"eager": two[1]}, budget=4, theme=theme)
    hues = colours_of(["small", "eager"], theme)
    lines = {trace.name: trace.line.color for trace in figure.data if trace.type == "scatter"}
    assert lines == hues
    assert [trace.marker.color for trace in figure.data if trace.type == "bar"] == [hues["eager"]] * 2


def frontier_of(*percentages: float) -> Any:
    """Best points of these overheads, in %, the more memory the less of it."""
    points = tuple(at(i + 1, percent) for i, percent in enumerate(percentages))
    return SimpleNamespace(points=points, solutions=(), nondominated=lambda: points)


def test_a_measured_overhead_that_noise_has_made_is_an_arrow_and_does_not_set_the_axis(frontier: Any) -> None:
    for overheads, top in (((425, 8, 3, 0), 24), ((29, 8, 3, 0), 29), ((40, 0), 40)):  # one dear point of many
        assert Extent.around(frontier_of(*overheads)).top == pytest.approx(top)
    quiet = Extent.around(frontier_of(20, 8, 3, 0))
    noisy = Extent.around(frontier_of(20, 8, 3, 0), None, at(2, -47))
    assert noisy.top == quiet.top == pytest.approx(20)
    assert noisy.bottom == pytest.approx(-0.31 * 20)
    assert [noisy.edge(at(2, percent)) for percent in (-47, 5, 425)] == ["lower", "", "upper"]
    figure = draw_tradeoff(frontier, measurement=at(5, -47))
    arrow = trace(figure, "measured")
    assert arrow.marker.symbol == "arrow-down"
    assert arrow.y[0] >= figure.layout.yaxis.range[0]
    assert "overhead -47.0 %<br>(beyond the lower edge)" in arrow.text[0]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_differ_in_colour_or_dash_on_either_ground(found: Ablation, theme: Any) -> None:
    figure = draw_ablation(found, theme)
    looks = [(t.line.color, t.line.dash, t.marker.symbol[0]) for t in figure.data[:-1] if t.marker.symbol]
    assert len(set(looks)) == len(looks)
    assert not {t.line.color for t in figure.data[:-1]} & {palette(theme).ground, palette(theme).empty}


def test_a_way_that_costs_far_more_than_any_schedule_is_drawn_at_the_edge_and_says_so(frontier: Any) -> None:
    dear = PeerMeasurement("checkpoint-blocks", peak=7, seconds=30.0, overhead=30.0)
    figure = draw_peers(frontier, [dear, PEERS[0]])
    at_the_edge, normal = trace(figure, "checkpoint-blocks, timed"), trace(figure, "eager, timed")
    assert at_the_edge.y[0] < 2900
    assert at_the_edge.marker.symbol == ("arrow-up",)
    assert normal.marker.symbol != ("arrow-up",)
    assert "beyond the upper edge" in at_the_edge.text[0]
    assert "beyond" not in normal.text[0]


def test_schedules_of_different_graphs_are_refused(two: tuple[rx.Schedule, rx.Schedule]) -> None:
    with pytest.raises(ScheduleError, match="'eager' is a schedule of another graph, 'linear4'"):
        case_study_of("small", two[0], {"eager": checkpoint_all(rx.linear(4))})
