"""Two solutions of one graph side by side: what each computes and retains, its memory, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.memory_stack import stack
from remat_explorer.figures.memory_timeline import line_traces
from remat_explorer.figures.palette import Palette, Theme, palette
from remat_explorer.figures.schedule_heatmap import MEANINGS, difference
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes, format_overhead, format_share
from remat_explorer.solvers import Solution

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_NAMED = 250  # operations or values up to which the hover names each cell
MATRICES, BELOW = (0.44, 0.97), (0.0, 0.32)  # shares of the height


def compare(first: Solution, second: Solution, theme: Theme = "light") -> Figure:
    """R and S with the cells that only one of two solutions has, both memory lines, and both in numbers.

    Args:
        first: called A in the figure.
        second: called B; a solution of the same graph.
        theme: ground of the figure, "light" or "dark".

    Raises:
        ScheduleError: if one has no schedule, or the graphs differ.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> figure = compare(solve(linear(8), 4), solve(linear(8), 8))
    >>> [trace.name for trace in figure.data]
    ['R', 'S', 'A and B', 'only A', 'only B', 'memory of A', 'memory of B', 'in numbers']
    """
    from plotly import graph_objects as go

    one, two, first_plan, second_plan = first.schedule, second.schedule, first.plan, second.plan
    if one is None or two is None or first_plan is None or second_plan is None:
        missing = first if one is None else second
        raise ScheduleError(
            f"{missing.strategy!r} has no schedule within {format_bytes(missing.budget)}; compare solutions that have"
        )
    cells, graph, colours = difference(one, two), one.graph, palette(theme)
    shades = (colours.empty, colours.both, colours.only_first, colours.only_second)
    operations, values = [in_figure(o.name) for o in graph.operations], [in_figure(v.name) for v in graph.values]
    layers, other = stack(first_plan), stack(second_plan)
    axis = ByteAxis.up_to(max(layers.total.max(), other.total.max()))
    lines = line_traces(layers, axis, other=other, theme=theme)
    shared = {"type": "scatter", "xaxis": "x3", "yaxis": "y3", "showlegend": False}
    traces: list[Any] = [
        {**_matrix(cells.R, operations, shades), "name": "R"},
        {**_matrix(cells.S, values, shades), "name": "S", "xaxis": "x2", "yaxis": "y2"},
        *(_sample(name, shade) for name, shade in zip(("A and B", "only A", "only B"), shades[1:], strict=True)),
        {
            **lines[2],
            **shared,
            "name": "memory of A",
            "line": {"shape": "hv", "width": 1.5, "color": colours.only_first},
        },
        {
            **lines[0],
            **shared,
            "name": "memory of B",
            "line": {"shape": "hv", "width": 1.5, "color": colours.only_second},
        },
        _table(first, second, colours),
    ]
    figure = go.Figure(traces)
    rows: dict[str, Any] = {"autorange": "reversed", "domain": MATRICES, "showgrid": False, "zeroline": False}
    columns: dict[str, Any] = {"showgrid": False, "zeroline": False}
    lined = {"gridcolor": colours.grid, "zeroline": False}
    figure.update_layout(
        title=f"{in_figure(graph.name)}: A is {_called(first)}, B is {_called(second)}",
        height=680,
        margin={"t": 60, "b": 50},
        **colours.look,
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": MATRICES[1], "yanchor": "bottom"},
        xaxis={**columns, "domain": (0.0, 0.48), "title": {"text": "R: operation computed in the stage"}},
        yaxis={**rows, "title": {"text": "stage"}},
        xaxis2={
            **columns,
            "domain": (0.52, 1.0),
            "anchor": "y2",
            "title": {"text": "S: value retained into the stage"},
        },
        yaxis2={**rows, "anchor": "x2", "matches": "y", "showticklabels": False},
        xaxis3={**lined, "domain": (0.0, 0.6), "anchor": "y3", "title": {"text": "computation of A"}},
        yaxis3={
            **lined,
            "domain": BELOW,
            "anchor": "x3",
            "title": {"text": f"memory ({axis.unit})"},
            "rangemode": "tozero",
        },
    )
    return figure


def _called(solution: Solution) -> str:
    return f"{solution.strategy} within {format_bytes(solution.budget)}"


def _matrix(cells: np.ndarray, names: list[str], shades: tuple[str, ...]) -> dict[str, Any]:
    """Cells in four colours; the hover names them where there are not too many."""
    steps = [(edge / len(shades), shade) for i, shade in enumerate(shades) for edge in (i, i + 1)]
    matrix: dict[str, Any] = {
        "type": "heatmap",
        "z": cells,
        "zmin": -0.5,
        "zmax": len(shades) - 0.5,
        "colorscale": steps,
        "showscale": False,
        "hovertemplate": "stage %{y}, %{x}<extra></extra>",
    }
    if len(names) <= MOST_NAMED:
        meanings = np.array([meaning.replace("the first", "A").replace("the second", "B") for meaning in MEANINGS])
        matrix["text"] = meanings[cells]
        matrix["customdata"] = np.broadcast_to(np.array(names, dtype=object), cells.shape)
        matrix["hovertemplate"] = "stage %{y}, %{x} %{customdata}: %{text}<extra></extra>"
    return matrix


def _sample(name: str, shade: str) -> dict[str, Any]:
    marker = {"color": shade, "symbol": "square", "size": 10}
    return {"type": "scatter", "x": [None], "y": [None], "mode": "markers", "name": name, "marker": marker}


def _table(first: Solution, second: Solution, colours: Palette) -> dict[str, Any]:
    """What is known of both, a line for each number."""
    labels = ("", "overhead", "cost", "predicted peak", "recomputations", "stages", "status")
    columns = [labels[1:], _numbers(first), _numbers(second)]
    look = {"fill": {"color": colours.empty}, "line": {"color": colours.grid}, "font": {"color": colours.ink}}
    return {
        "type": "table",
        "name": "in numbers",
        "domain": {"x": (0.66, 1.0), "y": BELOW},
        "columnwidth": [1.3, 1, 1.3],
        "header": {**look, "values": ["", "<b>A</b>", "<b>B</b>"], "align": "left"},
        "cells": {**look, "values": columns, "align": "left", "height": 22},
    }


def _numbers(solution: Solution) -> list[str]:
    schedule, peak = solution.schedule, solution.peak
    assert schedule is not None
    assert peak is not None
    proven = "" if solution.gap is None else f", gap {format_share(solution.gap)}"
    return [
        format_overhead(schedule.overhead),
        f"{schedule.cost:.6g}",
        format_bytes(peak),
        str(schedule.recomputations),
        str(schedule.stages),
        f"{solution.status}{proven}",
    ]
