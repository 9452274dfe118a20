"""What there is to hold while a network trains: features against parameters, Checkmate's Figure 3 (MLSys 2020)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from remat_explorer.errors import GraphError
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.graph import Graph
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


MARGIN = 2.5  # factor of empty space around the points


def features_against_parameters(graphs: Iterable[Graph], theme: Theme = "light") -> Figure:
    """One point for each graph, on logarithmic axes of one unit: below the line parameters take more, above features.

    The parameters are those that get a gradient, and are counted by the bytes of their gradients, since a graph does
    not tell parameters, inputs and buffers apart. Features are forward values that may be freed and computed again.

    Args:
        graphs: at least one, each with features and parameter gradients.
        theme: ground of the figure, "light" or "dark".

    Raises:
        GraphError: if there is no graph, or one has no features or no parameter gradients.

    Source: Jain et al., Checkmate (MLSys 2020), Figure 3, draws the same amounts as bars.

    >>> from remat_explorer.graph import Graph, Value, operation
    >>> values = (Value("x", 30), Value("gradient", 10, persistent=True))
    >>> steps = (operation("f", "forward", [], [0], 1), operation("b", "backward", [0], [1], 2))
    >>> figure = features_against_parameters([Graph("two", values, steps)])
    >>> [(trace.name, list(trace.x), list(trace.y)) for trace in figure.data[1:]]
    [('models', [10.0], [30.0])]
    """
    from plotly import graph_objects as go

    summaries = [graph.summary() for graph in graphs]
    if not summaries:
        raise GraphError("features against parameters of [] have no points; give at least one graph")
    for summary in summaries:
        if not summary.feature_bytes or not summary.gradient_bytes:
            lacking = "features" if summary.gradient_bytes else "parameter gradients"
            raise GraphError(f"the graph {summary.name!r} has no {lacking}, which logarithmic axes cannot show")
    amounts = [amount for s in summaries for amount in (s.feature_bytes, s.gradient_bytes)]
    colours, axis = palette(theme), ByteAxis.up_to(max(amounts))
    ends = [min(amounts) / MARGIN / axis.bytes, max(amounts) * MARGIN / axis.bytes]
    figure = go.Figure()
    figure.add_scatter(
        x=ends,
        y=ends,
        name="as many bytes of both",
        mode="lines",
        line={"color": colours.predicted, "width": 1.2, "dash": "dot"},
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=[s.gradient_bytes / axis.bytes for s in summaries],
        y=[s.feature_bytes / axis.bytes for s in summaries],
        name="models",
        mode="markers+text",
        text=[in_figure(s.name) for s in summaries],
        textposition="middle right",
        marker={"size": 10, "color": colours.kept, "line": {"color": colours.ground, "width": 1}},
        customdata=[
            [format_bytes(s.gradient_bytes), format_bytes(s.feature_bytes), s.feature_bytes / s.gradient_bytes]
            for s in summaries
        ],
        hovertemplate="%{text}: %{customdata[0]} of parameters, %{customdata[1]} of features, "
        "%{customdata[2]:.3g} times as many<extra></extra>",
        showlegend=False,
    )
    look = {"type": "log", "gridcolor": colours.grid, "zeroline": False, "exponentformat": "none", "dtick": 1}
    figure.update_xaxes(**look, title_text=f"parameters ({axis.unit})")
    figure.update_yaxes(**look, title_text=f"features ({axis.unit})")
    figure.update_layout(
        height=440,
        margin={"l": 72, "r": 16, "t": 40, "b": 48},
        **colours.look,
        hoverlabel=colours.hover,
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
    )
    return figure


PARTS = {
    "parameters, inputs, buffers": "resident_bytes",
    "parameter gradients": "gradient_bytes",
    "features": "feature_bytes",
    "loss, new buffers": "kept_bytes",
    "largest workspace": "workspace_bytes",
}


def memory_breakdown(
    graphs: Graph | Iterable[Graph], theme: Theme = "light", device_memory: int | None = None
) -> Figure:
    """One stacked bar for each graph: what stays, what the backward pass adds, and the features.

    A graph does not tell parameters, inputs and buffers apart, so they are one part. The parts are all there is, not
    what is held at once: that is the peak of checkpoint-all, a diamond.

    Args:
        graphs: one graph or several.
        theme: ground of the figure, "light" or "dark".
        device_memory: bytes of a device, drawn as a line, or None.

    Raises:
        GraphError: if there is no graph.

    >>> from remat_explorer.instances import linear
    >>> figure = memory_breakdown(linear(8), device_memory=16)
    >>> [(trace.name, float(trace.y[0])) for trace in figure.data if trace.visible]
    [('features', 8.0), ('peak of checkpoint-all', 10.0), ('device 16 B', 16.0)]
    """
    from plotly import graph_objects as go

    summaries = [graph.summary() for graph in ([graphs] if isinstance(graphs, Graph) else graphs)]
    if not summaries:
        raise GraphError("a memory breakdown of [] has no bars; give at least one graph")
    colours = palette(theme)
    violet, pink, olive = (colours.hues[place] for place in (4, 3, 6))  # blues are for what is kept and what is not
    shades = (colours.resident, colours.gradients, violet, olive, pink)
    amounts = {name: np.array([getattr(s, field) for s in summaries], float) for name, field in PARTS.items()}
    peaks = np.array([summary.peak for summary in summaries], dtype=float)
    axis = ByteAxis.up_to(max(sum(amounts.values()).max(), peaks.max(), device_memory or 0))  # type: ignore[union-attr]
    x = np.arange(len(summaries))
    names = np.array([in_figure(summary.name) for summary in summaries], dtype=object)
    figure = go.Figure()
    for (name, counts), shade in zip(amounts.items(), shades, strict=True):
        figure.add_bar(
            x=x,
            y=counts / axis.bytes,
            name=name,
            visible=bool(counts.any()),
            marker={"color": shade, "line": {"width": 0}},
            customdata=np.stack([names, [format_bytes(int(count)) for count in counts]], axis=1),
            hovertemplate=f"%{{customdata[0]}}: %{{customdata[1]}} of {name}<extra></extra>",
        )
    figure.add_scatter(
        x=x,
        y=peaks / axis.bytes,
        name="peak of checkpoint-all",
        visible=True,
        mode="markers",
        marker={"symbol": "diamond", "size": 11, "color": colours.ink, "line": {"color": colours.ground, "width": 1.5}},
        customdata=[format_bytes(int(peak)) for peak in peaks],
        hovertemplate="checkpoint-all needs %{customdata}<extra></extra>",
    )
    figure.add_scatter(
        x=[] if device_memory is None else [-0.5, len(summaries) - 0.5],
        y=[] if device_memory is None else [device_memory / axis.bytes] * 2,
        name="device" if device_memory is None else f"device {format_bytes(device_memory)}",
        visible=device_memory is not None,
        mode="lines",
        line={"color": colours.budget, "width": 1.8, "dash": "dash"},
        hoverinfo="skip",
    )
    figure.update_xaxes(tickvals=x, ticktext=names, range=[-0.5, len(summaries) - 0.5], showgrid=False, zeroline=False)
    figure.update_yaxes(title_text=f"memory ({axis.unit})", rangemode="tozero", gridcolor=colours.grid, zeroline=False)
    figure.update_layout(
        barmode="stack",
        bargap=0.45,
        height=420,
        margin={"l": 64, "r": 16, "t": 60, "b": 40},
        **colours.look,
        hoverlabel=colours.hover,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    )
    return figure
