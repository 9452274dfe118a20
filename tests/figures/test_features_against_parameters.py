"""Features against parameters: a point for each graph, on both sides of the line of equal bytes."""

from __future__ import annotations

from typing import Any

import pytest

from remat_explorer.errors import GraphError
from remat_explorer.figures.memory_breakdown import features_against_parameters
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear

draw: Any = features_against_parameters


def graph(name: str, features: int, parameters: int) -> Graph:
    values = (Value("feature", features), Value("gradient", parameters, persistent=True))
    forward = operation("forward", "forward", [], [0], 1)
    return Graph(name, values, (forward, operation("backward", "backward", [0], [1], 2)))


def test_every_point_has_the_bytes_of_its_graph_in_the_unit_of_the_axes() -> None:
    figure = draw([graph("wide", 2 * 2**30, 2**29), graph("long", 2**28, 2**30)])
    points = figure.data[1]
    assert list(points.text) == ["wide", "long"]
    assert list(points.x) == [0.5, 1.0]
    assert list(points.y) == [2.0, 0.25]
    assert figure.layout.xaxis.title.text == "parameters (GiB)"
    assert points.customdata[0][2] == 4.0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_line_of_equal_bytes_spans_all_points(theme: str) -> None:
    figure = draw([graph("wide", 4000, 10), graph("long", 30, 2000)], theme=theme)
    line, points = figure.data
    assert list(line.x) == list(line.y)
    amounts = [*points.x, *points.y]
    assert line.x[0] < min(amounts) < max(amounts) < line.x[1]


@pytest.mark.parametrize(
    ("graphs", "said"), [([], r"\[\]"), ([linear(4)], "'linear4' has no parameter gradients")], ids=["none", "chain"]
)
def test_what_logarithmic_axes_cannot_show_is_refused(graphs: list[Graph], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        draw(graphs)
