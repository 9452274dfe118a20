"""Memory along a plan: what it is made of, predicted and measured, under the budget; and what is said of each place.

The traces are dictionaries, as plotly takes them, so that a live figure can compare them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.memory_map import AnyPlan
from remat_explorer.figures.memory_stack import LAYERS, Stack, host_stack, stack
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.offload import TransferPlan
from remat_explorer.plain_text import in_figure
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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

    >>> from remat_explorer.figures.memory_stack import stack
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
            "showlegend": bool(stack.bytes[layer].any()),
        }
        for layer, name in enumerate(LAYERS)
    ]


AGAIN = "computed again"  # name of the marks on the lower edge
HEIGHT = 0.025  # of the axis, of one of them


def again_trace(stack: Stack, top: float, axis: ByteAxis, theme: Theme = "light") -> Trace:
    """A mark on the lower edge below each run of computations that were done before.

    Args:
        stack: layers of the plan.
        top: bytes at the upper end of the axis.
        axis: unit of memory.
        theme: ground of the figure.
    """
    again = np.array([not statement.first for statement in stack.computations], dtype=np.int64)
    turns = np.diff(again, prepend=0, append=0)
    begins, ends = np.flatnonzero(turns > 0), np.flatnonzero(turns < 0)
    x = np.column_stack([begins, begins, ends, ends, np.full(len(ends), np.nan)])
    return {
        "type": "scatter",
        "name": AGAIN,
        "visible": bool(len(x)),
        "x": x.ravel(),
        "y": np.tile(HEIGHT * top / axis.bytes * np.array([0, 1, 1, 0, np.nan]), len(x)),
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": palette(theme).recompute,
        "hoverinfo": "skip",
    }


ON_THE_HOST = "on the host"  # the name of what stands in place of the plan that is compared


def line_traces(
    stack: Stack,
    axis: ByteAxis,
    budget: int | None = None,
    measured: np.ndarray | None = None,
    other: Stack | None = None,
    theme: Theme = "light",
    other_name: str = "compared",
) -> list[Trace]:
    """The plan that is compared, the measured and, on it, the predicted memory, and the budget, in this order.

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
    other_colour = colours.sent if other_name == ON_THE_HOST else colours.compared
    edges, chosen = stack.places(MOST)
    line: dict[str, Any] = {"shape": "hv", "width": 1.2, "dash": "solid"}
    x_other, y_other = (np.empty(0), np.empty(0)) if other is None else _compared(stack, other)
    most_measured = np.empty(0) if measured is None else np.maximum.reduceat(measured, edges[:-1])
    traces: list[Trace] = [
        {"name": other_name, "x": x_other, "y": _steps(y_other, axis), "line": {**line, "color": other_colour}},
        {
            "name": "measured",
            "x": edges if measured is not None else np.empty(0),
            "y": _steps(most_measured, axis),
            "line": {**line, "color": colours.measured, "width": 5},
            "opacity": 0.6,
        },
        {
            "name": "predicted",
            "x": edges,
            "y": _steps(stack.total[chosen], axis),
            "line": {**line, "color": colours.predicted},
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


MOST_HITS = 250  # groups of computations that can be told apart by pointing
SPACING = 0.12  # of the height; plotly hears a click up to 20 pixels away from a place


@dataclass(frozen=True)
class Hits:
    """Places of a timeline, one entry each.

    Attributes:
        x: position on the axis of computations.
        y: bytes.
        computation: which computation is meant.
        layer: index of the layer, or -1 above all of them.
    """

    x: np.ndarray
    y: np.ndarray
    computation: np.ndarray
    layer: np.ndarray

    def stage(self, stack: Stack, place: int) -> int:
        """The stage that a place belongs to.

        Args:
            stack: what `hits` was given.
            place: index of the place.

        >>> from remat_explorer.figures.memory_stack import stack
        >>> from remat_explorer.instances import linear
        >>> from remat_explorer.plan import Plan
        >>> layers = stack(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))
        >>> places = hits(layers, 3)
        >>> [places.stage(layers, i) for i in np.flatnonzero(places.computation == 1)[:2]]
        [1, 1]
        """
        return int(stack.stage[self.computation[place]])


def hits(stack: Stack, top: float) -> Hits:
    """Places in every layer and above, so close together that one of them is near wherever one points.

    Args:
        stack: the layers.
        top: bytes at the upper end of the axis.
    """
    edges, chosen = stack.places(MOST_HITS)
    layers = stack.bytes[:, chosen]
    above = np.maximum(top - layers.sum(axis=0), 0)
    heights = np.vstack([layers, above]).astype(np.float64)
    floors = np.cumsum(heights, axis=0) - heights
    layer, column = np.nonzero(heights > 0)
    height, floor = heights[layer, column], floors[layer, column]
    count = np.ceil(height / (SPACING * max(top, 1.0))).astype(np.int64)
    cell = np.repeat(np.arange(len(count)), count)
    step = np.arange(len(cell)) - np.repeat(np.cumsum(count) - count, count)
    y = floor[cell] + (step + 0.5) * height[cell] / count[cell]
    middle = (edges[:-1] + edges[1:]) / 2
    layer_of = np.where(layer == len(layers), -1, layer)
    return Hits(middle[column[cell]], y, chosen[column[cell]], layer_of[cell])


def describe(stack: Stack, places: Hits, measured: np.ndarray | None = None) -> list[str]:
    """What the hover says at each place, as HTML of a few lines.

    Args:
        stack: what `hits` was given.
        places: what it returned.
        measured: bytes for each computation, or None.
    """
    plan, total = stack.plan, stack.total
    columns: dict[int, str] = {}
    for i in np.unique(places.computation).tolist():
        statement = stack.computations[i]
        text = in_figure(plan.text(statement)).replace(" in place of ", "<br>in place of ")
        lines = f"stage {statement.stage}: {text}<br>predicted {format_bytes(int(total[i]))}"
        columns[i] = lines if measured is None else f"{lines}, measured {format_bytes(int(measured[i]))}"
    texts: dict[tuple[int, int], str] = {}
    said = []
    for i, layer in zip(places.computation.tolist(), places.layer.tolist(), strict=True):
        text = texts.get((i, layer))
        if text is None:
            text = columns[i]
            if layer >= 0:
                text += f"<br><b>{LAYERS[layer]}</b> {format_bytes(int(stack.bytes[layer, i]))}"
            texts[i, layer] = text
        said.append(text)
    return said


ROOM = 1.08  # of the largest number, up to which the memory axis goes


@dataclass(frozen=True)
class Reach:
    """How far the timeline's axes go: the unit of memory, its largest number in bytes, the number of computations."""

    axis: ByteAxis
    largest: int
    computations: int

    @staticmethod
    def of(layers: Stack, budget: int | None, measured: np.ndarray | None, other: Stack | None) -> Reach:
        """Room for everything that is drawn."""
        peaks = [int(array.max()) for array in (layers.total, measured, other and other.total) if array is not None]
        largest = max(*peaks, budget or 0, 1)
        return Reach(ByteAxis.up_to(largest), largest, len(layers.stage))

    @property
    def top(self) -> float:
        """Bytes at the upper end of the memory axis."""
        return ROOM * self.largest


def memory_timeline(
    plan: AnyPlan,
    budget: int | None = None,
    measurement: Measured | None = None,
    stage: int | None = None,
    theme: Theme = "light",
    other: Plan | None = None,
    other_name: str = "compared",
) -> Figure:
    """Memory while each computation of ``plan`` runs, stacked by kind, resident bytes included.

    The figure always has the same traces in the same order, so that a live figure can take over their data. Of long
    plans it draws neighbouring computations together, at the highest of them.

    Args:
        plan: c computations.
        budget: bytes, drawn as a line, or None.
        measurement: measured bytes per statement of the plan, or None.
        stage: the stage to highlight, or None.
        theme: ground of the figure, "light" or "dark".
        other: a plan of the same graph whose memory is drawn as a line, each of its stages over the same stage of
            ``plan``, or None; then a plan that sends values has its bytes on the host there.
        other_name: what the legend calls it.

    >>> from remat_explorer.instances import linear
    >>> figure = memory_timeline(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]), budget=4)
    >>> [trace.name for trace in figure.data if trace.visible]
    ['resident', 'kept', 'temporaries', 'gradients', 'predicted', 'budget 4 B', 'places']
    """
    from plotly import graph_objects as go

    colours, layers = palette(theme), stack(plan)
    compared = None if other is None else stack(other)
    if isinstance(plan, TransferPlan) and other is None:
        compared, other_name = host_stack(plan), ON_THE_HOST
    measured = measured_bytes(layers, measurement)
    reach = Reach.of(layers, budget, measured, compared)
    traces = [
        *layer_traces(layers, reach.axis, theme),
        again_trace(layers, reach.top, reach.axis, theme),
        *line_traces(layers, reach.axis, budget, measured, compared, theme, other_name),
        hit_trace(layers, hits(layers, reach.top), reach.axis, measured),
    ]
    x, y = timeline_axes(reach, theme)
    figure = go.Figure(traces, {"xaxis": x, "yaxis": y})
    figure.add_vrect(*layers.span(stage), fillcolor=colours.ink, opacity=0.18, line_width=0, layer="above")
    figure.update_layout(
        height=320,
        margin={"l": 60, "r": 12, "t": 32, "b": 40},
        **colours.look,
        hovermode="closest",
        hoverlabel=colours.hover,
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom", "traceorder": "normal"},
    )
    return figure


def timeline_axes(reach: Reach, theme: Theme = "light") -> tuple[dict[str, Any], dict[str, Any]]:
    """Both axes as plotly's layout takes them."""
    look = {"gridcolor": palette(theme).grid, "zeroline": False}
    return (
        {**look, "title": {"text": "computation"}, "range": [0, reach.computations], "tickformat": "d"},
        {**look, "title": {"text": f"memory ({reach.axis.unit})"}, "range": [0, reach.top / reach.axis.bytes]},
    )
