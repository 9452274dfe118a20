"""Figures show the numbers of the data they are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from remat_explorer.figures import memory_heatmap, memory_timeline, schedule_heatmap
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.holdings import holdings
from remat_explorer.figures.memory_heatmap import memory_in_stages
from remat_explorer.figures.memory_timeline import stage_span
from remat_explorer.figures.palette import DARK, LIGHT
from remat_explorer.figures.schedule_heatmap import BACKWARD, EMPTY, FORWARD, RECOMPUTE, computation_kinds
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.plan import Compute
from remat_explorer.solvers import solve


@pytest.fixture(scope="module")
def tight() -> Any:
    """The eight-layer chain within 4 units: nine recomputations."""
    return solve(linear(8), budget=4)


def trace(figure: Any, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name.startswith(name))


def test_kinds_tell_first_computations_from_recomputations(tight: Any) -> None:
    kinds = computation_kinds(tight.schedule)
    assert (kinds == FORWARD).sum() == 8
    assert (kinds == BACKWARD).sum() == 9
    assert (kinds == RECOMPUTE).sum() == tight.schedule.recomputations == 9
    assert ((kinds == EMPTY) == (tight.schedule.R == 0)).all()


def test_schedule_heatmap_holds_R_and_S_and_names_its_colours(tight: Any) -> None:
    figure: Any = schedule_heatmap(tight.schedule)
    assert (np.asarray(figure.data[0].z) == computation_kinds(tight.schedule)).all()
    assert (np.asarray(figure.data[1].z) == tight.schedule.S).all()
    assert [trace.name for trace in figure.data[2:]] == ["forward", "backward", "recompute", "kept"]
    assert (figure.layout.xaxis.title.text, figure.layout.xaxis2.title.text) == ("operation", "value")


def test_memory_heatmap_peaks_at_the_largest_U(tight: Any) -> None:
    figure: Any = memory_heatmap(tight.schedule)
    assert np.nanmax(figure.data[0].z) == tight.schedule.U.max()
    assert np.isnan(figure.data[0].z[0][5])  # stage 0 computes operation 0 only
    assert memory_in_stages(tight.schedule).mask.sum() == 17 * 16 / 2


def test_layers_of_the_timeline_add_up_to_the_prediction(tight: Any) -> None:
    parts, timeline = holdings(tight.plan), tight.plan.timeline
    computes = [isinstance(statement, Compute) for statement in tight.plan.statements]
    assert (parts.total == timeline.during[computes]).all()
    assert parts.total.max() == tight.peak == 4
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


def test_timeline_draws_budget_and_measurement_only_when_given(tight: Any) -> None:
    bare: Any = memory_timeline(tight.plan)
    assert not trace(bare, "measured").visible
    assert not trace(bare, "budget").visible
    during = tight.plan.timeline.during + 1
    measurement: Any = SimpleNamespace(during=during)
    full: Any = memory_timeline(tight.plan, budget=6, measurement=measurement)
    assert len(full.data) == len(bare.data)
    assert max(trace(full, "measured").y) == 5
    assert trace(full, "budget").y == (6, 6)
    assert trace(full, "budget").name == "budget 6 B"


def test_timeline_highlights_the_computations_of_a_stage(tight: Any) -> None:
    parts = holdings(tight.plan)
    start, end = stage_span(parts, 16)
    assert end == len(parts.stage)
    assert end - start == (parts.stage == 16).sum()
    shape = memory_timeline(tight.plan, stage=16).layout.shapes[0]
    assert (shape.x0, shape.x1) == (start, end)


def test_axes_name_the_unit_of_their_bytes() -> None:
    assert [ByteAxis.up_to(count).unit for count in (17, 5e3, 3e6, 2**31)] == ["bytes", "KiB", "MiB", "GiB"]


@pytest.mark.parametrize("figure", [schedule_heatmap, memory_heatmap])
def test_dark_figures_have_a_dark_ground(figure: Any, tight: Any) -> None:
    assert figure(tight.schedule, theme="dark").layout.paper_bgcolor == DARK.ground != LIGHT.ground
