"""Features against parameters: what a training run remembers of its inputs, beside what it learns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

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
