"""Figures of memory: what a graph needs, layers and lines over time, and the map of a pool."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from remat_explorer.errors import GraphError, ScheduleError
from remat_explorer.figures import memory_breakdown, memory_map, memory_timeline
from remat_explorer.figures.memory_breakdown import features_against_parameters
from remat_explorer.figures.memory_map import KINDS, holdings
from remat_explorer.figures.memory_stack import stack
from remat_explorer.figures.memory_timeline import AGAIN, MOST, describe, hits
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.offload import TransferPlan, Transfers
from remat_explorer.offsets import place, predict_pool
from remat_explorer.plan import Compute, Plan
from remat_explorer.solvers import solve
from remat_explorer.solvers.solver_interface import checkpoint_all


def test_parts_are_those_of_the_summaries_in_one_unit(data: Path) -> None:
    graphs = [Graph.load(str(data / "captured" / f"{name}.json")) for name in ("vgg16", "unet")]
    figure: Any = memory_breakdown(graphs)
    traces = {trace.name: trace for trace in figure.data}
    for i, graph in enumerate(graphs):
        summary = graph.summary()
        assert traces["features"].y[i] * 2**30 == pytest.approx(summary.feature_bytes)
        assert traces["parameter gradients"].y[i] * 2**30 == pytest.approx(summary.gradient_bytes)
        assert traces["parameters, inputs, buffers"].y[i] * 2**30 == pytest.approx(summary.resident_bytes)
        assert traces["peak of checkpoint-all"].y[i] * 2**30 == pytest.approx(summary.peak)
    assert figure.layout.yaxis.title.text == "memory (GiB)"
    assert list(figure.layout.xaxis.ticktext) == ["vgg16", "unet"]
    assert not figure.data[-1].visible  # the device, which is not given
    line: Any = memory_breakdown([linear(4), linear(4)], device_memory=12)  # the same name twice: two bars
    assert line.data[-1].y == (12, 12)
    assert len(line.data[0].x) == 2


draw_features: Any = features_against_parameters


def graph_of(name: str, features: int, parameters: int) -> Graph:
    values = (Value("feature", features), Value("gradient", parameters, persistent=True))
    forward = operation("forward", "forward", [], [0], 1)
    return Graph(name, values, (forward, operation("backward", "backward", [0], [1], 2)))


def test_every_point_has_the_bytes_of_its_graph_in_the_unit_of_the_axes_and_the_line_of_equal_bytes_spans_all() -> None:
    figure = draw_features([graph_of("wide", 2 * 2**30, 2**29), graph_of("long", 2**28, 2**30)])
    line, points = figure.data
    assert list(points.text) == ["wide", "long"]
    assert (list(points.x), list(points.y)) == ([0.5, 1.0], [2.0, 0.25])
    assert figure.layout.xaxis.title.text == "parameters (GiB)"
    assert points.customdata[0][2] == 4.0
    assert list(line.x) == list(line.y)
    assert line.x[0] < 0.25 < 2.0 < line.x[1]
    with pytest.raises(GraphError, match="'linear4' has no parameter gradients"):
        draw_features([linear(4)])
    with pytest.raises(GraphError, match="give at least one graph"):
        memory_breakdown([])


draw_timeline: Any = memory_timeline


def trace(figure: Any, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name.startswith(name))


@pytest.fixture(scope="module")
def long() -> Any:
    """A chain whose plan has more computations than a line has points."""
    return solve(linear(MOST), "100%", strategy="checkpoint-all")


@pytest.fixture(scope="module")
def captured(data: Path) -> Any:
    """A captured network with resident bytes, workspace and parameter gradients, recomputing some operations."""
    graph = Graph.load(str(data / "captured" / "unet.json"))
    solution = solve(graph, "90%", strategy="ap-greedy")
    assert solution.schedule is not None
    assert solution.schedule.recomputations
    return solution


def test_layers_add_up_to_the_prediction(captured: Any, tight: Any) -> None:
    for solution in (captured, tight):
        computes = [isinstance(statement, Compute) for statement in solution.plan.statements]
        layers = stack(solution.plan)
        assert (layers.total == solution.plan.timeline.during[computes]).all()
        assert (layers.bytes >= 0).all()
        assert layers.total.max() == solution.peak


def test_layers_include_resident_bytes_and_workspace() -> None:
    operations = operation("f", "forward", [], [0], 1.0, 100), operation("g", "backward", [0], [1], 1.0)
    graph = Graph("pair", (Value("x", 4), Value("dx", 8, persistent=True)), operations, 1000)
    solution: Any = solve(graph, "100%", strategy="checkpoint-all")
    parts = holdings(solution.plan)
    assert parts.resident.tolist() == [1000, 1000]
    assert parts.temporaries.tolist() == [100, 0]
    assert parts.kept.tolist() == [4, 4]
    assert parts.gradients.tolist() == [0, 8]
    assert stack(solution.plan).bytes.tolist() == [[1000, 1000], [4, 4], [100, 0], [0, 8]]


def test_timeline_draws_budget_and_measurement_only_when_given(tight: Any) -> None:
    bare = draw_timeline(tight.plan)
    assert not any(trace(bare, name).visible for name in ("measured", "budget", "compared"))
    measurement: Any = SimpleNamespace(during=tight.plan.timeline.during + 1)
    full = draw_timeline(tight.plan, budget=6, measurement=measurement)
    assert len(full.data) == len(bare.data)
    assert max(trace(full, "measured").y) == 5
    assert tuple(trace(full, "budget").y) == (6, 6)
    assert trace(full, "budget").name == "budget 6 B"
    layers = stack(tight.plan)  # and the computations of a stage stand out
    start, end = layers.span(16)
    assert end == len(layers.stage)
    assert end - start == (layers.stage == 16).sum()
    shape = draw_timeline(tight.plan, stage=16).layout.shapes[0]
    assert (shape.x0, shape.x1) == (start, end)


def test_what_is_computed_again_has_a_mark_below_it(tight: Any) -> None:
    again = [i for i, statement in enumerate(stack(tight.plan).computations) if not statement.first]
    marks = np.reshape(trace(draw_timeline(tight.plan), AGAIN).x, (-1, 5))
    assert again
    assert [i for begin, _, _, end, _ in marks for i in range(int(begin), int(end))] == again
    kept = draw_timeline(solve(linear(8), "100%", strategy="checkpoint-all").plan)
    assert not trace(kept, AGAIN).visible
    layers = [t for t in kept.data if t.stackgroup is not None]
    assert [t.name for t in layers if t.showlegend] == ["kept", "gradients"]


def test_a_compared_plan_lies_stage_by_stage_over_the_first(tight: Any) -> None:
    other = solve(linear(8), budget=8).plan
    assert other is not None
    line = trace(draw_timeline(tight.plan, other=other), "compared")
    layers, compared = stack(tight.plan), stack(other)
    assert len(compared.stage) < len(layers.stage)
    assert np.asarray(line.y)[:-1].tolist() == compared.total.tolist()
    for x, stage in zip(line.x, compared.stage, strict=False):
        start, end = layers.span(stage)
        assert start <= x < end
    assert line.x[-1] == len(layers.stage)


def test_long_plans_are_drawn_at_fewer_places_and_keep_their_peaks(long: Any) -> None:
    during = long.plan.timeline.during.copy()
    computations = [i for i, statement in enumerate(long.plan.statements) if isinstance(statement, Compute)]
    during[computations[701]] += 10_000  # a peak of a single computation
    figure = draw_timeline(long.plan, measurement=SimpleNamespace(during=during))
    predicted, unit = trace(figure, "predicted"), 1024
    assert len(computations) == 2 * MOST + 1
    assert len(predicted.x) <= MOST + 1
    assert predicted.x[-1] == len(computations)
    assert max(predicted.y) == long.peak / unit
    assert max(trace(figure, "measured").y) == during.max() / unit
    layers = [t for t in figure.data if t.stackgroup is not None and t.visible]
    assert np.allclose(np.sum([t.y for t in layers], axis=0), predicted.y)


def test_one_can_point_at_every_layer_of_every_computation_and_is_told_what_it_is(captured: Any, tight: Any) -> None:
    layers = stack(captured.plan)
    top = 1.08 * layers.total.max()
    places = hits(layers, top)
    assert len(np.unique(places.computation)) == len(layers.stage)
    edges = np.vstack([np.zeros(len(layers.stage)), np.cumsum(layers.bytes, axis=0)])
    for i in range(0, len(places.x), 7):
        j, layer = int(places.computation[i]), int(places.layer[i])
        low, high = (edges[layer, j], edges[layer + 1, j]) if layer >= 0 else (edges[-1, j], top)
        assert low < places.y[i] < high
        assert places.stage(layers, i) == layers.stage[j]
    layers = stack(tight.plan)
    places = hits(layers, 5.0)
    said = describe(layers, places, np.full(len(layers.stage), 3))
    assert len(said) == len(places.x)
    first = tight.plan.text(tight.plan.statements[0])
    assert said[0].startswith(f"stage 0: {first}<br>predicted 1 B, measured 3 B<br><b>")
    assert all("<b>" not in text for text, layer in zip(said, places.layer, strict=True) if layer < 0)


def boxes(figure: Any) -> list[tuple[float, float, float, float]]:
    """Begin, end, lower and upper edge of everything that is drawn, in statements and in the unit of the axis."""
    found = []
    for trace in figure.data[: len(KINDS)]:
        x, y = np.asarray(trace.x).reshape(-1, 6), np.asarray(trace.y).reshape(-1, 6)
        found += zip(x[:, 0], x[:, 1], y[:, 0], y[:, 2], strict=True)
    return found


def test_every_value_is_drawn_once_for_each_computation(tight: Any) -> None:
    plan = Plan.of(tight.schedule)
    figure: Any = memory_map(plan)
    computed = sum(isinstance(statement, Compute) for statement in plan.statements)
    assert len(boxes(figure)) == computed == 17 + 9
    texts = set(figure.data[-1].text)
    assert sum("computed again" in text for text in texts) == 9
    assert sum("computed for the first time" in text for text in texts) == 17


def test_boxes_lie_at_the_offsets_of_the_arena_that_is_given() -> None:
    plan = Plan.of(checkpoint_all(linear(3)))
    arena = place(plan, alignment=4096)
    figure: Any = memory_map(plan, arena)
    assert figure.layout.yaxis.title.text == "offset (KiB)"
    assert sorted(low * 1024 for _, _, low, _ in boxes(figure)) == sorted(arena.offsets.tolist())
    begins = sorted((begin, end) for begin, end, _, _ in boxes(figure))
    assert begins == sorted(zip(arena.rectangles.begin, arena.rectangles.end, strict=True))
    with pytest.raises(ScheduleError, match="7 rectangles, which are not the 5 of the plan of 'linear2'"):
        memory_map(Plan.of(checkpoint_all(linear(2))), arena)
    empty: Any = memory_map(Plan(linear(1), ()))
    assert [trace.name for trace in empty.data if trace.visible] == []


def test_no_two_boxes_overlap_and_one_of_each_can_be_pointed_at(tight: Any) -> None:
    plan = Plan.of(tight.schedule)
    figure: Any = memory_map(plan)
    drawn = boxes(figure)
    for i, (begin, end, low, high) in enumerate(drawn):
        for other_begin, other_end, other_low, other_high in drawn[:i]:
            apart = end <= other_begin or other_end <= begin or high <= other_low or other_high <= low
            assert apart
    places = list(zip(figure.data[-1].x, figure.data[-1].y, strict=True))
    for begin, end, low, high in drawn:
        assert any(begin < x < end and low <= y for x, y in places if y < 1.2 * high)


def test_kinds_are_those_of_the_timeline_but_for_what_is_computed_again(tight: Any) -> None:
    plan = Plan.of(tight.schedule)
    figure: Any = memory_map(plan)
    parts, found = holdings(plan), {}
    for trace in figure.data[1 : len(KINDS)]:
        x = np.asarray(trace.x).reshape(-1, 6)
        alive = (x[:, :1] <= parts.statement) & (parts.statement < x[:, 1:2])
        found[trace.name] = alive.sum(axis=0)  # every value of the chain has 1 byte
    assert found["gradients"].tolist() == parts.gradients.tolist()
    forward = found["kept"] + found["temporaries"] + found["recomputed"]
    assert forward.tolist() == (parts.kept + parts.temporaries).tolist()
    again = [statement for statement in plan.statements if isinstance(statement, Compute) and not statement.first]
    assert len(np.asarray(figure.data[KINDS.index("recomputed")].x)) // 6 == len(again) > 0


def test_an_output_that_overwrites_is_drawn_beside_what_it_overwrites() -> None:
    steps = (
        operation("f", "forward", [], [0], 1.0, workspace=4),
        operation("g", "backward", [0], [1], 1.0, overwrites=0),
    )
    graph = Graph("in place", (Value("x", 8), Value("dx", 8)), steps, resident_bytes=16)
    plan = Plan.from_sequence(graph, [(0, 0, 1), (1, 1, 1)])
    figure: Any = memory_map(plan, place(plan, alignment=1))
    drawn = {trace.name: len(np.asarray(trace.x)) // 6 for trace in figure.data[: len(KINDS)]}
    assert drawn == {"resident": 1, "kept": 1, "temporaries": 1, "gradients": 1, "recomputed": 0, "fetched": 0}
    kept, gradients = figure.data[1], figure.data[3]
    assert kept.y[0] == gradients.y[0]
    assert (kept.x[1], gradients.x[0]) == (1, 1)
    assert holdings(plan).total.tolist() == plan.timeline.during[holdings(plan).statement].tolist()
    assert "resident bytes" in figure.data[-1].text[0]
    assert any(text.startswith("workspace") for text in figure.data[-1].text)


def test_a_map_of_thousands_has_few_traces(data: Path) -> None:
    plan = Plan.of(checkpoint_all(Graph.load(str(data / "captured" / "densenet161.json"))))
    figure: Any = memory_map(plan)
    assert len(figure.data) == len(KINDS) + 2
    assert len(boxes(figure)) >= len(predict_pool(plan).rectangles) > 3000
    assert len(figure.data[-1].x) < 10_000


def test_figures_of_a_plan_that_sends_have_its_bytes_here_and_on_the_host() -> None:
    events = [("compute", 0, 0), ("send", 0, 0), *(("compute", t, t) for t in (1, 2, 3)), ("fetch", 4, 0)]
    plan = TransferPlan.from_events(linear(2), Transfers(1, 1), [*events, ("compute", 4, 4)])
    runs = [i for i, statement in enumerate(plan.statements) if isinstance(statement, Compute)]
    assert stack(plan).total.tolist() == plan.timeline.during[runs].tolist()
    line, placed = [list[Any](figure.data) for figure in (memory_timeline(plan), memory_map(plan))]
    assert max(next(trace.y for trace in line if trace.name == "on the host")) == plan.host_peak
    assert [trace.name for trace in placed if trace.visible][-3] == "fetched"
