"""The traces of the memory timeline as plotly takes them: dictionaries, so that a live figure can compare them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.memory.memory_stack import LAYERS, Stack
from remat_explorer.figures.memory.timeline_hits import Hits, describe
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.quantities import format_bytes

MOST = 800  # points of a line; more cannot be seen
PLACES = "places"  # name of the trace that can be pointed at
Trace = dict[str, Any]


class Measured(Protocol):
    """The part of a measurement that is drawn."""

    @property
    def during(self) -> np.ndarray:
        """Highest memory while each statement runs, total bytes."""
        ...


def measured_bytes(stack: Stack, measurement: Measured | None) -> np.ndarray | None:
    """What was measured during each computation, or None."""
    return None if measurement is None else np.asarray(measurement.during)[stack.statement]


def layer_traces(stack: Stack, axis: ByteAxis, theme: Theme = "light") -> list[Trace]:
    """The layers, the lowest first.

    >>> from remat_explorer.figures.memory.memory_stack import stack
    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.plan import Plan
    >>> layers = stack(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))
    >>> [trace["name"] for trace in layer_traces(layers, ByteAxis.up_to(3))]
    ['resident', 'kept', 'temporaries', 'gradients']
    """
    edges, chosen = stack.places(MOST)
    colours = palette(theme)
    return [
        {
            "type": "scatter",
            "name": name,
            "visible": True,
            "x": edges,
            "y": _steps(stack.bytes[layer, chosen], axis),
            "stackgroup": "memory",
            "mode": "lines",
            "line": {"width": 0, "shape": "hv"},
            "fillcolor": getattr(colours, name),
            "hoverinfo": "skip",
        }
        for layer, name in enumerate(LAYERS)
    ]


def line_traces(
    stack: Stack,
    axis: ByteAxis,
    budget: int | None = None,
    measured: np.ndarray | None = None,
    other: Stack | None = None,
    theme: Theme = "light",
    other_name: str = "compared",
) -> list[Trace]:
    """The plan that is compared, the predicted and the measured memory, and the budget, in this order.

    Args:
        stack: layers of the plan.
        axis: unit of memory.
        budget: bytes, or None.
        measured: bytes for each computation, or None.
        other: layers of the plan that is compared, drawn stage by stage over the same axis, or None.
        theme: ground of the figure.
        other_name: of the plan that is compared.
    """
    colours = palette(theme)
    edges, chosen = stack.places(MOST)
    line: dict[str, Any] = {"shape": "hv", "width": 1.2, "dash": "solid"}
    x_other, y_other = (np.empty(0), np.empty(0)) if other is None else _compared(stack, other)
    most_measured = np.empty(0) if measured is None else np.maximum.reduceat(measured, edges[:-1])
    traces: list[Trace] = [
        {"name": other_name, "x": x_other, "y": _steps(y_other, axis), "line": {**line, "color": colours.compared}},
        {
            "name": "predicted",
            "x": edges,
            "y": _steps(stack.total[chosen], axis),
            "line": {**line, "color": colours.predicted},
        },
        {
            "name": "measured",
            "x": edges if measured is not None else np.empty(0),
            "y": _steps(most_measured, axis),
            "line": {**line, "color": colours.measured, "width": 1.8, "dash": "dot"},
        },
        {
            "name": f"budget {format_bytes(budget)}" if budget else "budget",
            "x": [0, len(stack.stage)] if budget else [],
            "y": [budget / axis.bytes] * 2 if budget else [],
            "line": {**line, "color": colours.budget, "width": 1.5, "dash": "dash"},
        },
    ]
    common = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    return [{**common, "visible": bool(len(trace["x"])), **trace} for trace in traces]


def hit_trace(stack: Stack, places: Hits, axis: ByteAxis, measured: np.ndarray | None = None) -> Trace:
    """An invisible trace that is there to be pointed at."""
    return {
        "type": "scatter",
        "name": PLACES,
        "visible": True,
        "x": places.x,
        "y": places.y / axis.bytes,
        "mode": "none",
        "showlegend": False,
        "text": describe(stack, places, measured),
        "hovertemplate": "%{text}<extra></extra>",
    }


def _steps(counts: np.ndarray, axis: ByteAxis) -> np.ndarray:
    """One more point than groups of computations, so that the last step has a width, too."""
    return np.append(counts, counts[-1:]) / axis.bytes


def _compared(stack: Stack, other: Stack) -> tuple[np.ndarray, np.ndarray]:
    """Edges and bytes of another plan, each of its stages over the same stage of this one.

    Where their stages are not the same in number, both are drawn from the first computation on.
    """
    edges, chosen = other.places(MOST)
    count, stages = len(other.stage), other.stage
    if len(stack.stage) and count and stack.stage[-1] == stages[-1]:
        first, last = (np.searchsorted(stages, stages, side) for side in ("left", "right"))
        start, end = (np.searchsorted(stack.stage, stages, side) for side in ("left", "right"))
        positions = start + (np.arange(count) - first) / (last - first) * (end - start)
        return np.append(positions, len(stack.stage))[edges], other.total[chosen]
    return edges, other.total[chosen]
