"""The case study's numbers are those of the schedules, and its figure shows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.errors import ScheduleError
from remat_explorer.explanations.values import kept_bytes
from remat_explorer.figures.case_study import case_study, case_study_of, colours_of
from remat_explorer.figures.layers import costs_of, layers_of


@pytest.fixture
def two() -> tuple[rx.Schedule, rx.Schedule]:
    """The chain within four bytes, and keeping everything."""
    graph = rx.linear(8)
    found = rx.solve(graph, 4).schedule, rx.solve(graph, "100%", "checkpoint-all").schedule
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def test_amounts_by_layer_add_up_to_those_of_the_schedules(two: tuple[rx.Schedule, rx.Schedule]) -> None:
    small, keep = two
    study = case_study_of("small", small, {"eager": keep})
    assert study.overhead["eager"].sum() == pytest.approx((small.cost - keep.cost) / keep.cost)
    assert study.saved["eager"].sum() == kept_bytes(keep).sum() - kept_bytes(small).sum()
    assert study.saved["eager"].sum() > 0


def test_memory_along_the_stages_reaches_the_peak_of_each_plan(two: tuple[rx.Schedule, rx.Schedule]) -> None:
    small, keep = two
    study = case_study_of("small", small, {"eager": keep})
    peaks = {name: int(line.max()) for name, line in study.memory.items()}
    assert peaks == {"small": rx.Plan.of(small).peak, "eager": rx.Plan.of(keep).peak}
    assert all(len(line) == small.stages for line in study.memory.values())


def test_operations_of_one_module_are_one_layer(data) -> None:
    graph = rx.Graph.load(str(data / "captured" / "vgg16.json"))
    layers = layers_of(graph)
    named = {node.details.module for node in graph.operations if node.details and node.details.module}
    assert named <= set(layers.names) or not named
    assert layers.sums(np.ones(graph.n)).sum() == graph.n


def test_costs_count_every_run(two: tuple[rx.Schedule, rx.Schedule]) -> None:
    assert costs_of(two[0]).sum() == two[0].cost


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_figure_has_lines_and_bars_in_the_colours_of_their_schedules(theme, two) -> None:
    figure: Any = case_study("small", two[0], {"eager": two[1]}, budget=4, theme=theme)
    hues = colours_of(["small", "eager"], theme)
    lines = {trace.name: trace.line.color for trace in figure.data if trace.type == "scatter"}
    assert lines == hues
    assert [trace.marker.color for trace in figure.data if trace.type == "bar"] == [hues["eager"]] * 2


def test_schedules_of_different_graphs_are_refused(two: tuple[rx.Schedule, rx.Schedule]) -> None:
    other = rx.solve(rx.linear(4), "100%", "checkpoint-all").schedule
    assert other is not None
    with pytest.raises(ScheduleError, match="'eager' is a schedule of another graph, 'linear4'"):
        case_study_of("small", two[0], {"eager": other})


def test_names_of_many_layers_are_told_by_hovering_and_of_few_on_the_axis(two) -> None:
    large = rx.linear(60)
    small, keep = (
        rx.solve(large, budget, way).schedule for budget, way in (("40%", "chen-sqrt-n"), ("100%", "checkpoint-all"))
    )
    assert small is not None
    assert keep is not None
    many: Any = case_study("small", small, {"eager": keep})
    few: Any = case_study("small", two[0], {"eager": two[1]})
    assert (many.layout.yaxis2.showticklabels, few.layout.yaxis2.showticklabels) == (False, True)
    assert [bar.marker.line.width for bar in few.data if bar.type == "bar"] == [0, 0]


def test_the_schedule_looked_at_is_a_thin_line_on_broad_ones_and_layers_without_a_bar_are_left_out(two) -> None:
    figure: Any = case_study("small", two[0], {"same": two[0], "eager": two[1]})
    widths = {trace.name: trace.line.width for trace in figure.data if trace.type == "scatter"}
    assert list(widths) == ["same", "eager", "small"]
    assert widths["small"] < min(widths["same"], widths["eager"])
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert 0 < len(bars[0].y) < len(case_study_of("small", two[0], {"eager": two[1]}).layers)
    assert all(any(bar.x[i] for bar in bars) for i in range(len(bars[0].y)))
