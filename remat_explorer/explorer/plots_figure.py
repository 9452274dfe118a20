"""What the explorer's figure shows of a state: the trade-off on the left, the memory timeline on the right.

`PlotsScene` composes plotly's traces and layout, and keeps what is dear to compute; `legend_html` names the strategies
over the curve.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import describe_strategy
from remat_explorer.figures import (
    LAYERS,
    ON_THE_HOST,
    ByteAxis,
    Extent,
    Hits,
    Reach,
    Stack,
    Theme,
    curve_traces,
    hit_trace,
    hits,
    host_stack,
    layer_traces,
    line_traces,
    mark,
    measured_bytes,
    pointer_traces,
    points_of,
    stack,
    timeline_axes,
    tradeoff_axes,
)
from remat_explorer.figures.palette import palette
from remat_explorer.offload import TransferPlan
from remat_explorer.solvers import Frontier, Solution

NAMES = 206  # pixels that the names beside the timeline may take, at most
EMPTY = "The trade-off curve appears here<br>while budgets are planned"
NONE_FITS = "No strategy has a schedule<br>within these budgets"
CURVE = (0.0, 0.355)  # shares of the width
TIMELINE = (0.455, 1.0)
LINES = 0.6  # where the names of the lines begin, behind those of the layers
RADIUS = 5.0  # of a marker whose place is the origin
Points = list[tuple[float, float]]
# Corners of a regular polygon, or of a star: how many outer ones, share of the radius at which the inner ones lie
# (None for a polygon), and by how many degrees it is turned from having a corner on top.
REGULAR: dict[str, tuple[int, float | None, float]] = {
    "circle": (24, None, 0),
    "square": (4, None, 45),
    "diamond": (4, None, 0),
    "triangle-up": (3, None, 0),
    "triangle-down": (3, None, 180),
    "triangle-left": (3, None, -90),
    "triangle-right": (3, None, 90),
    "star": (5, 0.4, 0),
    "pentagon": (5, None, 0),
    "hexagon": (6, None, 30),
    "octagon": (8, None, 22.5),
    "star-square": (4, 0.5, 45),
    "star-diamond": (4, 0.5, 0),
    "hexagram": (6, 0.58, 0),
    "star-triangle-up": (3, 0.3, 0),
    "star-triangle-down": (3, 0.3, 180),
    "hexagon2": (6, None, 0),
}
ARM = 0.35  # half of the width of a cross's arm, as a share of the radius
LEGS = ((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8))  # corners of a square, of which a triangle has three
CROSS = ((-ARM, -1), (ARM, -1), (ARM, -ARM), (1, -ARM), (1, ARM), (ARM, ARM))
OTHERS: dict[str, Sequence[tuple[float, float]]] = {
    "diamond-tall": ((0, -1), (0.6, 0), (0, 1), (-0.6, 0)),
    "diamond-wide": ((0, -0.6), (1, 0), (0, 0.6), (-1, 0)),
    "hourglass": ((-0.8, -0.8), (0.8, -0.8), (-0.8, 0.8), (0.8, 0.8)),
    "bowtie": ((-0.8, -0.8), (0.8, 0.8), (0.8, -0.8), (-0.8, 0.8)),
    "cross": (*CROSS, *((-x, -y) for x, y in CROSS)),
    "triangle-nw": (LEGS[0], LEGS[1], LEGS[3]),
    "triangle-ne": LEGS[:3],
    "triangle-se": LEGS[1:],
    "triangle-sw": (LEGS[0], LEGS[2], LEGS[3]),
    "arrow-up": ((0, -1), (0.5, 1), (-0.5, 1)),
    "arrow-down": ((0, 1), (0.5, -1), (-0.5, -1)),
    "arrow-left": ((-1, 0), (1, 0.5), (1, -0.5)),
    "arrow-right": ((1, 0), (-1, 0.5), (-1, -0.5)),
    "arrow": ((0, -1), (0.5, 1), (0, 0.6), (-0.5, 1)),
    "arrow-wide": ((0, -1), (0.9, 1), (0, 0.6), (-0.9, 1)),
    "square-x": tuple(
        point
        for x, y in ((0, -1), (1, 0), (0, 1), (-1, 0))  # four triangles, whose sides leave an x
        for point in ((0, 0), (x or -0.7, y or -0.7), (x or 0.7, y or 0.7))
    ),
}
MEANING = "Filled markers are proven optimal; it is proven that no schedule lies in the shaded region"
Trace = dict[str, Any]
HITS = len(LAYERS) + 4  # index of the trace that can be pointed at: behind the layers and four lines
FIXED = HITS + 1 + 2 + 3  # traces that are always there; the strategies' come behind them


class PlotsScene:
    """Traces and layout of one state after another."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self._layers: Stack | None = None
        self._hits: Hits | None = None
        self._frontier: Frontier | None = None
        self._best_only = True

    def compose(self, state: State) -> tuple[list[Trace], dict[str, Any]]:
        """Traces and layout for a state that has a schedule."""
        plan, schedule, theme = state.shown_plan, state.schedule, state.theme
        assert plan is not None
        assert schedule is not None
        budget, frontier = state.shown_budget or None, state.frontier
        other_plan = state.other.plan if state.other else None
        layers = self._keep("layers", (plan,), lambda: stack(plan))
        other, name = self._keep("other", (other_plan,), lambda: stack(other_plan) if other_plan else None), "compared"
        if isinstance(plan, TransferPlan) and other is None:
            other, name = self._keep("host", (plan,), lambda: host_stack(plan)), ON_THE_HOST
        measurement = state.measurement
        measured = self._keep("measured", (layers, measurement), lambda: measured_bytes(layers, measurement))
        reach = Reach.of(layers, budget, measured, other)
        places = self._keep("hits", (layers, reach.top), lambda: hits(layers, reach.top))
        self._layers, self._hits, self._frontier = layers, places, frontier
        timeline = [
            *self._keep("stack", (layers, reach.axis, theme), lambda: layer_traces(layers, reach.axis, theme)),
            *line_traces(layers, reach.axis, budget, measured, other, theme, name),
            self._keep("said", (places, reach.axis, measured), lambda: hit_trace(layers, places, reach.axis, measured)),
        ]
        overhead = schedule.overhead if state.sending is None else state.sending.overhead or 1.0
        spot = Spot(plan.peak, overhead)
        self._best_only = best_only = not state.methods
        extent = Extent.around(frontier, budget, spot, measurement, best_only=best_only)
        asked = (frontier, extent, theme, best_only)
        curve = self._keep("curve", asked, lambda: curve_traces(*asked))
        if frontier is not None and frontier.points:
            pointers = pointer_traces(extent, budget, spot, measurement, theme)
        else:
            pointers = pointer_traces(extent, theme=theme)
        timeline[HITS - 1]["name"] = "budget"  # the field above has the number, and the names fit into one row
        right = {"xaxis": "x2", "yaxis": "y2"}
        traces = [{**trace, **right, "legend": "legend"} for trace in timeline[: len(LAYERS)]]
        traces += [{**trace, **right, "legend": "legend2"} for trace in timeline[len(LAYERS) :]]
        left = {"xaxis": "x", "yaxis": "y"}
        traces += [{**trace, **left, "showlegend": False} for trace in (*curve[:2], *pointers, *curve[2:])]
        return traces, figure_layout(frontier, extent, reach, theme)

    def span(self, stage: int) -> tuple[float, float]:
        """Where a stage is on the timeline that is drawn."""
        return self._layers.span(stage) if self._layers else (0.0, 0.0)

    @property
    def places(self) -> int:
        """How many places of the timeline can be pointed at."""
        return len(self._hits.x) if self._hits else 0

    def pointed(self, place: int) -> int:
        """The stage of a place on the timeline."""
        assert self._layers is not None
        assert self._hits is not None
        return self._hits.stage(self._layers, min(place, len(self._hits.x) - 1))

    def solution(self, strategy: str, point: int) -> Solution | None:
        """The solution that a point of the trade-off curve stands for."""
        points = points_of(self._frontier, strategy, self._best_only) if self._frontier else ()
        return points[point] if point < len(points) else None

    def _keep(self, name: str, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """What was computed last time if nothing that it depends on has changed."""
        kept = self._kept.get(name)
        if kept is None or not all(_same(old, new) for old, new in zip(kept[0], key, strict=True)):
            kept = self._kept[name] = (key, compute())
        return kept[1]


def legend_html(frontier: Frontier | None, theme: Theme, best_only: bool = False) -> str:
    """Shape, colour and name of each strategy that has a point, with ``best_only`` a best one; empty where none has.

    >>> legend_html(None, "light")
    ''
    """
    if frontier is None or not frontier.points:
        return ""
    shown = {name for name in frontier.strategies if points_of(frontier, name, best_only)}
    names = [name for name in frontier.strategies if name in shown]
    items = []
    for name in names:
        look = mark(name, theme)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in marker_outline(look.shape))
        drawn = f'<svg viewBox="-6 -6 12 12"><polygon points="{points}" fill="{look.colour}"/></svg>'
        items.append(f"{drawn} {html.escape(describe_strategy(name))}")
    every = html.escape(f"{', '.join(names)}. {MEANING}", quote=True)
    return f'<div class="remat-marks" title="{every}">{" &nbsp; ".join([*items, "filled: proven optimal"])}</div>'


def figure_layout(
    frontier: Frontier | None,
    extent: Extent,
    reach: Reach,
    theme: Theme,
) -> dict[str, Any]:
    """The layout of the figure; it always has the same entries.

    Args:
        frontier: what the curve shows, or None.
        extent: axes of the curve.
        reach: axes of the timeline.
        theme: ground of the page.
    """
    colours = palette(theme)
    left, right = tradeoff_axes(extent, theme), timeline_axes(reach, theme)
    message = EMPTY if frontier is None or not frontier.solutions else NONE_FITS if not frontier.points else ""
    names = {"font": {"size": 10}, "bgcolor": "rgba(0,0,0,0)", "itemclick": False, "itemdoubleclick": False}
    above = {"orientation": "h", "x": LINES, "xanchor": "right", "y": 1.0, "yanchor": "bottom", "traceorder": "normal"}
    return {
        "autosize": True,  # as large as its place
        "margin": {"l": 50, "r": 8, "t": 20, "b": 34, "autoexpand": False},
        "font": {"size": 11, "color": colours.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": colours.empty,
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": colours.ground, "font": {"color": colours.ink, "size": 11}, "align": "left"},
        "xaxis": {**_beside(left[0], 4), "domain": CURVE, "nticks": 5},
        "yaxis": {**_beside(left[1], 4), "nticks": 5},
        "xaxis2": {**_beside(right[0], 4), "domain": TIMELINE, "anchor": "y2"},
        "yaxis2": {**_beside(right[1], 6), "anchor": "x2", "nticks": 6},
        "legend": {**names, **above, "maxheight": NAMES},
        "legend2": {**names, "orientation": "h", "x": LINES, "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        "annotations": [
            {
                "text": message,
                "showarrow": False,
                "xref": "x domain",
                "yref": "y domain",
                "x": 0.5,
                "y": 0.5,
                "font": {"size": 11},
                "visible": bool(message),
            }
        ],
    }


def _beside(axis: dict[str, Any], standoff: int) -> dict[str, Any]:
    """An axis whose title is close to its numbers."""
    return {**axis, "title": {**axis["title"], "standoff": standoff}}


def marker_outline(shape: str) -> Points:
    """Corners of the marker that plotly calls ``shape``, y downwards.

    >>> [(round(x), round(y)) for x, y in marker_outline("diamond")]
    [(0, -5), (5, 0), (0, 5), (-5, 0)]
    """
    if shape == "x":
        return [_turned(x, y, 45) for x, y in marker_outline("cross")]
    if shape in OTHERS:
        return [(RADIUS * x, RADIUS * y) for x, y in OTHERS[shape]]
    corners, inner, turn = REGULAR[shape]
    radii = [RADIUS] if inner is None else [RADIUS, RADIUS * inner]
    total = corners * len(radii)
    return [_turned(0.0, -radii[i % len(radii)], turn + 360 * i / total) for i in range(total)]


def _turned(x: float, y: float, degrees: float) -> tuple[float, float]:
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return x * cosine - y * sine, x * sine + y * cosine


@dataclass(frozen=True)
class Spot:
    """Where the schedule on the screen is: peak in bytes, cost as a ratio to computing everything once."""

    peak: int
    overhead: float


def _same(old: Any, new: Any) -> bool:
    """Plans and arrays are the same when they are one; small things when they are equal."""
    return old is new or (isinstance(new, str | float | Extent | ByteAxis) and old == new)
