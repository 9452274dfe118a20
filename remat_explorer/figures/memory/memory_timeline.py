"""Memory along a plan: what it is made of, predicted and measured, under the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.memory.memory_stack import Stack, stack
from remat_explorer.figures.memory.timeline_hits import hits
from remat_explorer.figures.memory.timeline_traces import Measured, hit_trace, layer_traces, line_traces, measured_bytes
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.plan import Plan

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

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
    plan: Plan,
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
            ``plan``, or None.
        other_name: what the legend calls it.

    >>> from remat_explorer.instances import linear
    >>> figure = memory_timeline(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]), budget=4)
    >>> [trace.name for trace in figure.data if trace.visible]
    ['resident', 'kept', 'temporaries', 'gradients', 'predicted', 'budget 4 B', 'places']
    """
    from plotly import graph_objects as go

    colours, layers = palette(theme), stack(plan)
    compared = None if other is None else stack(other)
    measured = measured_bytes(layers, measurement)
    reach = Reach.of(layers, budget, measured, compared)
    traces = [
        *layer_traces(layers, reach.axis, theme),
        *line_traces(layers, reach.axis, budget, measured, compared, theme, other_name),
        hit_trace(layers, hits(layers, reach.top), reach.axis, measured),
    ]
    x, y = timeline_axes(reach, theme)
    figure = go.Figure(traces, {"xaxis": x, "yaxis": y})
    figure.add_vrect(*layers.span(stage), fillcolor=colours.cursor, opacity=0.35, line_width=0, layer="above")
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
