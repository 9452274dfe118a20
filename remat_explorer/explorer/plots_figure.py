"""What the explorer's figure shows of a state: the trade-off on the left, the memory timeline on the right.

`PlotsScene` composes plotly's traces and layout, and keeps what is dear to compute. `sketch_html` draws the same
without plotly, until it has come; `legend_html` names the strategies over the curve.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import describe_strategy
from remat_explorer.figures import (
    LAYERS,
    ByteAxis,
    Extent,
    Hits,
    Reach,
    Stack,
    Theme,
    curve_traces,
    hit_trace,
    hits,
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
OTHER_METHODS = "Other methods"
OTHER_METHODS_MEAN = "Show the schedules of all strategies in the trade-off, not only the best ones"
MEANING = "Filled markers are proven optimal; it is proven that no schedule lies in the shaded region"
UNITS = 1000  # of a drawing's width and height
MOST_TICKS = 6  # where the axis does not say
DASHES = {"dash": "dashed", "dot": "dotted"}
OTHERWISE = {"asterisk": "star"}  # marks that have no outline
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
        plan, schedule, theme = state.plan, state.schedule, state.theme
        assert plan is not None
        assert schedule is not None
        budget, frontier = state.shown_budget or None, state.frontier
        other_plan = state.other.plan if state.other else None
        layers = self._keep("layers", (plan,), lambda: stack(plan))
        other = self._keep("other", (other_plan,), lambda: stack(other_plan) if other_plan else None)
        measurement = state.measurement
        measured = self._keep("measured", (layers, measurement), lambda: measured_bytes(layers, measurement))
        reach = Reach.of(layers, budget, measured, other)
        places = self._keep("hits", (layers, reach.top), lambda: hits(layers, reach.top))
        self._layers, self._hits, self._frontier = layers, places, frontier
        timeline = [
            *self._keep("stack", (layers, reach.axis, theme), lambda: layer_traces(layers, reach.axis, theme)),
            *line_traces(layers, reach.axis, budget, measured, other, theme),
            self._keep("said", (places, reach.axis, measured), lambda: hit_trace(layers, places, reach.axis, measured)),
        ]
        spot = Spot(plan.peak, schedule.overhead)
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


def sketch_html(traces: Sequence[Trace], layout: dict[str, Any]) -> str:
    """What plotly will show, as far as it is seen at the first look.

    Args:
        traces: of the types and modes that `PlotsScene` composes.
        layout: plotly's, with axes xaxis, yaxis, xaxis2 and yaxis2, each with its range.

    Returns:
        HTML for a place of any size, at whose edges are the layout's margins.

    >>> axis = {"range": [0, 2], "title": {"text": "GiB"}, "gridcolor": "#ddd"}
    >>> layout = {name: {**axis, "domain": (0, 1)} for name in ("xaxis", "yaxis", "xaxis2", "yaxis2")}
    >>> layout |= {"margin": {"l": 9, "r": 9, "t": 9, "b": 9}, "plot_bgcolor": "#fff", "font": {"color": "#000"}}
    >>> line = {"name": "best", "visible": True, "mode": "lines", "xaxis": "x", "line": {"color": "red", "width": 1}}
    >>> sketch_html([{**line, "x": [0, 1], "y": [1, 2]}], layout | {"annotations": []}).count("M0 500L500 0")
    1
    """
    shown = [trace for trace in traces if trace["visible"] and len(trace["x"])]
    panels = [_panel([t for t in shown if t["xaxis"] == f"x{end}"], layout, end) for end in ("", "2")]
    margin, ink = layout["margin"], layout["font"]["color"]
    edges = f"inset:{margin['t']}px {margin['r']}px {margin['b']}px {margin['l']}px"
    return f'<div class="remat-sketch" aria-hidden="true" style="{edges};color:{ink}">{"".join(panels)}</div>'


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


def _panel(traces: Sequence[Trace], layout: dict[str, Any], end: str) -> str:
    """One plot: its ground with grid and numbers, and the traces."""
    across, up = layout[f"xaxis{end}"], layout[f"yaxis{end}"]
    left, right = (100 * share for share in across["domain"])
    scale = _Scale(across["range"], up["range"])
    lines = [_stack([t for t in traces if "stackgroup" in t], scale)]
    lines += [_line(trace, scale) for trace in traces if trace["mode"] == "lines" and "stackgroup" not in trace]
    marks = [_marks(trace, scale) for trace in traces if trace["mode"] == "markers"]
    names = "".join(
        f'<i style="{_look_of_name(trace)}"></i>{html.escape(trace["name"])}'
        for trace in traces
        if trace["mode"] == "lines" and trace.get("showlegend", True)
    )
    notes = [note["text"] for note in layout["annotations"] if note["visible"] and not end]
    return (
        f'<div style="left:{left:g}%;width:{right - left:g}%;background:{layout["plot_bgcolor"]}">'
        f'<svg viewBox="0 0 {UNITS} {UNITS}" preserveAspectRatio="none">{_grid(across, up, scale)}'
        f'{"".join(lines)}</svg><svg class="marks">{"".join(marks)}</svg>{_numbers(across, up, scale)}'
        f'<p class="names">{names}</p>{"".join(f"<p class=note>{note}</p>" for note in notes)}</div>'
    )


def _look_of_name(trace: Trace) -> str:
    """An area beside its name, or a line."""
    if "stackgroup" in trace:
        return f"background:{trace['fillcolor']}"
    return f"height:0;border-top:1.5px {DASHES.get(trace['line'].get('dash'), 'solid')} {trace['line']['color']}"


class _Scale:
    """From an axis's numbers to the drawing's units, from the left and from the top."""

    def __init__(self, across: Sequence[float], up: Sequence[float]) -> None:
        self._left, self._right = across
        self._bottom, self._top = up

    def x(self, numbers: Any) -> np.ndarray:
        return UNITS * (np.asarray(numbers, float) - self._left) / (self._right - self._left)

    def y(self, numbers: Any) -> np.ndarray:
        return UNITS * (self._top - np.asarray(numbers, float)) / (self._top - self._bottom)


def _stack(traces: Sequence[Trace], scale: _Scale) -> str:
    """Areas above each other; the sum of all is drawn first, and covered by the sums of fewer."""
    heights = np.cumsum([trace["y"] for trace in traces], axis=0) if traces else []
    areas = [
        f'<path fill="{trace["fillcolor"]}" d="{_steps(scale.x(trace["x"]), scale.y(height))}V{UNITS}H0Z"/>'
        for trace, height in zip(traces, heights, strict=True)
    ]
    return "".join(reversed(areas))


def _line(trace: Trace, scale: _Scale) -> str:
    x, y, look = scale.x(trace["x"]), scale.y(trace["y"]), trace["line"]
    hv = look.get("shape") == "hv"
    path = _steps(x, y) if hv else "M" + "L".join(f"{a:.4g} {b:.4g}" for a, b in zip(x, y, strict=True))
    area = f"{path}V{UNITS}H{x[0]:.4g}Z" if trace.get("fill") == "tozeroy" else ""
    dashes = {"dash": "7 5", "dot": "2 2"}.get(look.get("dash", ""), "")
    return (
        (f'<path fill="{trace["fillcolor"]}" d="{area}"/>' if area else "")
        + f'<path fill="none" stroke="{look["color"]}" stroke-width="{look["width"]}" stroke-dasharray="{dashes}" '
        f'd="{path}"/>'
    )


def _steps(x: np.ndarray, y: np.ndarray) -> str:
    """A line that goes to the right and then up or down."""
    parts = [f"M{x[0]:.4g} {y[0]:.4g}"]
    parts += [f"H{a:.4g}V{b:.4g}" for a, b in zip(x[1:], y[1:], strict=True)]
    return "".join(parts)


def _marks(trace: Trace, scale: _Scale) -> str:
    """Marks keep their shape, whatever the width of the place; open ones are not filled."""
    look, symbols = trace["marker"], trace["marker"]["symbol"]
    shapes = [symbols] * len(trace["x"]) if isinstance(symbols, str) else symbols
    marks: list[str] = []
    for x, y, shape in zip(scale.x(trace["x"]) / 10, scale.y(trace["y"]) / 10, shapes, strict=True):
        size, name = look["size"] / 2 / RADIUS, shape.removesuffix("-open")
        corners = " ".join(f"{size * a:.1f},{size * b:.1f}" for a, b in marker_outline(OTHERWISE.get(name, name)))
        fill = "none" if shape.endswith("-open") else look["color"]
        marks.append(
            f'<svg x="{x:.4g}%" y="{y:.4g}%"><polygon points="{corners}" fill="{fill}" '
            f'stroke="{look["color"]}" stroke-width="{look["line"]["width"]}"/></svg>'
        )
    return "".join(marks)


def _ticks(axis: dict[str, Any]) -> tuple[np.ndarray, int]:
    """Round numbers on an axis, as many as it has room for, and how many digits they need behind the point.

    >>> _ticks({"range": [0, 68.5], "nticks": 5})
    (array([ 0., 20., 40., 60.]), 0)
    >>> _ticks({"range": [0.3, 1.0], "nticks": 5})
    (array([0.4, 0.6, 0.8, 1. ]), 1)
    """
    low, high = axis["range"]
    least = (high - low) / axis.get("nticks", MOST_TICKS)
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return step * np.arange(first, last + 1), max(0, -math.floor(math.log10(step) + 1e-9))


def _grid(across: dict[str, Any], up: dict[str, Any], scale: _Scale) -> str:
    lines = "".join(f"M{x:.4g} 0V{UNITS}" for x in scale.x(_ticks(across)[0]))
    lines += "".join(f"M0 {y:.4g}H{UNITS}" for y in scale.y(_ticks(up)[0]))
    return f'<path stroke="{across["gridcolor"]}" stroke-width="1" d="{lines}"/>'


def _numbers(across: dict[str, Any], up: dict[str, Any], scale: _Scale) -> str:
    """The numbers of the grid's lines, and what they count."""
    texts: dict[str, list[str]] = {}
    marks: list[str] = []
    for name, axis, edge, place in (("across", across, "left", scale.x), ("up", up, "top", scale.y)):
        numbers, digits = _ticks(axis)
        texts[name] = [f"{number:.{digits}f}" for number in numbers]
        for text, at in zip(texts[name], place(numbers) / 10, strict=True):
            marks.append(f'<span class="{name}" style="{edge}:{at:.4g}%">{text}</span>')
    away = max(map(len, texts["up"]), default=0)
    return (
        f'{"".join(marks)}<span class="across title">{html.escape(across["title"]["text"])}</span>'
        f'<span class="up title" style="right:calc(100% + {away}ch + 7px)">{html.escape(up["title"]["text"])}</span>'
    )


@dataclass(frozen=True)
class Spot:
    """Where the schedule on the screen is: peak in bytes, cost as a ratio to computing everything once."""

    peak: int
    overhead: float


def _same(old: Any, new: Any) -> bool:
    """Plans and arrays are the same when they are one; small things when they are equal."""
    return old is new or (isinstance(new, str | float | Extent | ByteAxis) and old == new)
