"""The bars of the breakdown are the numbers of the graphs' summaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remat_explorer.errors import GraphError
from remat_explorer.figures import memory_breakdown
from remat_explorer.graph import Graph
from remat_explorer.instances import linear


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


def test_the_device_is_a_line_only_when_given() -> None:
    bare: Any = memory_breakdown([linear(4)])
    assert not bare.data[-1].visible
    line: Any = memory_breakdown([linear(4), linear(4)], device_memory=12)  # the same name twice: two bars
    assert line.data[-1].y == (12, 12)
    assert len(line.data[0].x) == 2


def test_no_graph_is_refused() -> None:
    with pytest.raises(GraphError, match="give at least one graph"):
        memory_breakdown([])
