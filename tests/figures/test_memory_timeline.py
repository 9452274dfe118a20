"""Layers add up to the prediction, lines are what was given, and no peak is lost in long plans."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from remat_explorer.figures import memory_timeline
from remat_explorer.figures.memory_map import holdings
from remat_explorer.figures.memory_stack import LAYERS, stack
from remat_explorer.figures.memory_timeline import MOST, describe, hits
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.plan import Compute
from remat_explorer.solvers import solve

draw: Any = memory_timeline


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


def test_layers_by_kind_tell_what_is_kept_from_gradients(tight: Any) -> None:
    parts = holdings(tight.plan)
    assert parts.kept.max() > 0
    assert parts.gradients[-1] > 0


def test_layers_include_resident_bytes_and_workspace() -> None:
    graph = Graph(
        "pair",
        (Value("x", 4), Value("dx", 8, persistent=True)),
        (operation("f", "forward", [], [0], 1.0, 100), operation("g", "backward", [0], [1], 1.0)),
        1000,
    )
    solution: Any = solve(graph, "100%", strategy="checkpoint-all")
    parts = holdings(solution.plan)
    assert parts.resident.tolist() == [1000, 1000]
    assert parts.temporaries.tolist() == [100, 0]
    assert parts.kept.tolist() == [4, 4]
    assert parts.gradients.tolist() == [0, 8]
    assert stack(solution.plan).bytes.tolist() == [[1000, 1000], [4, 4], [100, 0], [0, 8]]


def test_the_figure_has_a_trace_for_each_layer_whatever_there_is_of_it(tight: Any) -> None:
    layers = [t.name for t in draw(tight.plan).data if t.stackgroup is not None]
    assert layers == list(LAYERS)


def test_timeline_draws_budget_and_measurement_only_when_given(tight: Any) -> None:
    bare = draw(tight.plan)
    assert not trace(bare, "measured").visible
    assert not trace(bare, "budget").visible
    assert not trace(bare, "compared").visible
    during = tight.plan.timeline.during + 1
    measurement: Any = SimpleNamespace(during=during)
    full = draw(tight.plan, budget=6, measurement=measurement)
    assert len(full.data) == len(bare.data)
    assert max(trace(full, "measured").y) == 5
    assert tuple(trace(full, "budget").y) == (6, 6)
    assert trace(full, "budget").name == "budget 6 B"


def test_timeline_highlights_the_computations_of_a_stage(tight: Any) -> None:
    layers = stack(tight.plan)
    start, end = layers.span(16)
    assert end == len(layers.stage)
    assert end - start == (layers.stage == 16).sum()
    shape = draw(tight.plan, stage=16).layout.shapes[0]
    assert (shape.x0, shape.x1) == (start, end)


def test_a_compared_plan_lies_stage_by_stage_over_the_first(tight: Any) -> None:
    other = solve(linear(8), budget=8).plan
    assert other is not None
    line = trace(draw(tight.plan, other=other), "compared")
    layers, compared = stack(tight.plan), stack(other)
    assert len(compared.stage) < len(layers.stage)
    assert np.asarray(line.y)[:-1].tolist() == compared.total.tolist()
    for x, stage in zip(line.x, compared.stage, strict=False):
        start, end = layers.span(stage)
        assert start <= x < end
    assert line.x[-1] == len(layers.stage)


def test_a_compared_plan_with_other_stages_starts_at_the_first_computation(tight: Any) -> None:
    other = solve(linear(7), "100%", strategy="checkpoint-all").plan
    line = trace(draw(tight.plan, other=other), "compared")
    assert np.asarray(line.x).tolist() == list(range(15 + 1))


def test_long_plans_are_drawn_at_fewer_places_and_keep_their_peaks(long: Any) -> None:
    during = long.plan.timeline.during.copy()
    computations = [i for i, statement in enumerate(long.plan.statements) if isinstance(statement, Compute)]
    during[computations[701]] += 10_000  # a peak of a single computation
    figure = draw(long.plan, measurement=SimpleNamespace(during=during))
    predicted, unit = trace(figure, "predicted"), 1024
    assert len(computations) == 2 * MOST + 1
    assert len(predicted.x) <= MOST + 1
    assert predicted.x[-1] == len(computations)
    assert max(predicted.y) == long.peak / unit
    assert max(trace(figure, "measured").y) == during.max() / unit
    layers = [t for t in figure.data if t.stackgroup is not None and t.visible]
    assert np.allclose(np.sum([t.y for t in layers], axis=0), predicted.y)


def test_one_can_point_at_every_layer_of_every_computation(captured: Any) -> None:
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


def test_the_hover_names_statement_layer_and_bytes(tight: Any) -> None:
    layers = stack(tight.plan)
    places = hits(layers, 5.0)
    said = describe(layers, places, np.full(len(layers.stage), 3))
    assert len(said) == len(places.x)
    first = tight.plan.text(tight.plan.statements[0])
    assert said[0].startswith(f"stage 0: {first}<br>predicted 1 B, measured 3 B<br><b>")
    assert all("<b>" not in text for text, layer in zip(said, places.layer, strict=True) if layer < 0)


def test_names_of_operations_are_escaped_in_the_hover() -> None:
    graph = Graph(
        "tags",
        (Value("<x>", 4), Value("dx", 8, persistent=True)),
        (operation("<script>", "forward", [], [0], 1.0), operation("g", "backward", [0], [1], 1.0)),
    )
    plan: Any = solve(graph, "100%", strategy="checkpoint-all").plan
    layers = stack(plan)
    said = "".join(describe(layers, hits(layers, 12.0)))
    assert "&lt;script&gt;" in said
    assert "<script>" not in said
