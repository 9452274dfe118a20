"""The traces of the trade-off figure as plotly takes them: dictionaries, so that a live figure can compare them."""

from __future__ import annotations

from typing import Any

import numpy as np

from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.tradeoffs.marks import mark
from remat_explorer.figures.tradeoffs.tradeoff_extent import Extent, PlacedPoint
from remat_explorer.figures.tradeoffs.tradeoff_points import (
    bound_steps,
    describe,
    largest_infeasible,
    overheads,
    points_of,
    symbols,
)
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers import Frontier

Trace = dict[str, Any]
SIZE = 9
ARROWS = {"upper": "arrow-up", "lower": "arrow-down"}  # in place of a marker that lies beyond an edge
NO_DATA: tuple[float, ...] = ()


def curve_traces(
    frontier: Frontier | None, extent: Extent, theme: Theme = "light", best_only: bool = False
) -> list[Trace]:
    """What is proven, the line through the points that no other beats, and the points of each strategy.

    Args:
        frontier: what is known; None gives the first two without data, and no strategy.
        extent: what the figure shows.
        theme: ground of the figure.
        best_only: leave out the points that others beat.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> frontier = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (4, 6)))
    >>> [trace["name"] for trace in curve_traces(frontier, Extent.around(frontier))]
    ['proven: none below', 'best', 'optimal']
    """
    strategies = frontier.strategies if frontier else ()
    bound_x, bound_y = _proven_line(frontier, extent) if frontier else (NO_DATA, NO_DATA)
    best = frontier.nondominated() if frontier else ()
    colours = palette(theme)
    traces: list[Trace] = [
        {
            "name": "proven: none below",
            "x": bound_x,
            "y": bound_y,
            "mode": "lines",
            "line": {"width": 0.8, "color": colours.ink},
            "fill": "tozeroy",
            "fillcolor": "rgba(128,128,128,0.22)",
            "hoverinfo": "skip",
        },
        {
            "name": "best",
            "x": np.array([point.peak or 0 for point in best]) / extent.axis.bytes,
            "y": np.minimum(overheads(best), extent.top),
            "mode": "lines",
            "line": {"width": 1.5, "color": colours.ink, "shape": "hv"},
            "hoverinfo": "skip",
        },
    ]
    traces += [_strategy_trace(frontier, name, extent, theme, best_only) for name in strategies if frontier is not None]
    return [{"type": "scatter", "visible": True, **trace} for trace in traces]


def _strategy_trace(frontier: Frontier, strategy: str, extent: Extent, theme: Theme, best_only: bool) -> Trace:
    points, look = points_of(frontier, strategy, best_only), mark(strategy, theme)
    heights, beyond = overheads(points), "<br>(beyond the upper edge)"
    drawn = zip(symbols(points, look.shape), heights > extent.top, strict=True)
    shapes = ["arrow-up" if above else shape for shape, above in drawn]
    return {
        "name": strategy,
        "x": np.array([point.peak or 0 for point in points]) / extent.axis.bytes,
        "y": np.minimum(heights, extent.top),
        "mode": "markers",
        "marker": {
            "symbol": shapes or look.shape,
            "color": look.colour,
            "size": SIZE,
            "line": {"width": 1.2, "color": look.colour},
        },
        "cliponaxis": False,
        "text": [
            describe(point) + (beyond if y > extent.top else "") for point, y in zip(points, heights, strict=True)
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _proven_line(frontier: Frontier, extent: Extent) -> tuple[np.ndarray, np.ndarray]:
    """The edge of the region in which no schedule with stages exists, from left to right."""
    budgets, bounds = bound_steps(frontier)
    infeasible = largest_infeasible(frontier)
    if infeasible is not None:
        bounds = bounds[budgets > infeasible]
        budgets = budgets[budgets > infeasible]
        budgets, bounds = np.append(infeasible, budgets), np.append(2 * extent.top, bounds)
    if not len(budgets):
        return np.empty(0), np.empty(0)
    starts = np.append(extent.left, budgets[:-1])
    x = np.column_stack([starts, budgets]).ravel() / extent.axis.bytes
    return x, np.repeat(np.maximum(bounds, 0.0), 2)


def pointer_traces(
    extent: Extent,
    budget: int | None = None,
    selected: PlacedPoint | None = None,
    measurement: PlacedPoint | None = None,
    theme: Theme = "light",
) -> list[Trace]:
    """The budget as a vertical line, the measured point, and the ring around the selected one.

    >>> [trace["visible"] for trace in pointer_traces(Extent.around(None, 4), 4)]
    [True, False, False]
    """
    colours = palette(theme)
    x, (bottom, top) = [] if not budget else [budget / extent.axis.bytes] * 2, extent.ranges()[1]
    measured, ring = extent.place(measurement), extent.place(selected)
    edge = extent.edge(measurement)
    beyond = f"<br>(beyond the {edge} edge)" if edge else ""
    at = [] if measurement is None or measurement.overhead is None else [100 * (measurement.overhead - 1)]
    spread = getattr(measurement, "overhead_range", None) if measured[1] else None
    noisy = "<br>too noisy to compare" if getattr(measurement, "is_noisy", False) else ""
    ends = [[abs(100 * (end - 1) - y) for y in measured[1]] for end in spread or ()] or [[], []]
    said = "" if measurement is None or measurement.peak is None else format_bytes(measurement.peak)
    traces: list[Trace] = [
        {
            "name": f"budget {format_bytes(budget)}" if budget else "budget",
            "x": x,
            "y": [bottom, top][: len(x)],
            "mode": "lines",
            "line": {"width": 1.5, "dash": "dash", "color": colours.budget},
            "hoverinfo": "skip",
        },
        {
            "name": "measured",
            "x": measured[0],
            "y": measured[1],
            "mode": "markers",
            "marker": {
                "symbol": ARROWS.get(edge, "asterisk-open"),
                "size": 11,
                "color": colours.measured,
                "line": {"width": 2},
            },
            "text": [
                f"<b>measured</b><br>peak {said}<br>overhead {y:+.1f} %{beyond}{noisy}" for y in at[: len(measured[1])]
            ],
            "hovertemplate": "%{text}<extra></extra>",
            "error_y": {
                "type": "data",
                "symmetric": False,
                "arrayminus": ends[0],
                "array": ends[1],
                "thickness": 1.2,
                "width": 3,
                "color": colours.measured,
                "visible": bool(spread) and not edge,
            },
            "cliponaxis": False,
        },
        {
            "name": "selected",
            "x": ring[0],
            "y": ring[1],
            "mode": "markers",
            "marker": {"symbol": "circle-open", "size": 17, "color": colours.cursor, "line": {"width": 3}},
            "hoverinfo": "skip",
            "cliponaxis": False,
        },
    ]
    return [{"type": "scatter", "visible": bool(len(trace["x"])), **trace} for trace in traces]
