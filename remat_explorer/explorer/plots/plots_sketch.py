"""Trade-off curve and timeline without plotly: they are on the screen before it has come, and gone when it has."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from remat_explorer.explorer.plots.mark_outlines import RADIUS, outline

UNITS = 1000  # of a drawing's width and height
MOST_TICKS = 6  # where the axis does not say
LINES = {"dash": "dashed", "dot": "dotted"}
OTHERWISE = {"asterisk": "star"}  # marks that have no outline
Trace = dict[str, Any]


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
    return f"height:0;border-top:1.5px {LINES.get(trace['line'].get('dash'), 'solid')} {trace['line']['color']}"


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
        corners = " ".join(f"{size * a:.1f},{size * b:.1f}" for a, b in outline(OTHERWISE.get(name, name)))
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
