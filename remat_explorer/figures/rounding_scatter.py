"""Randomized beside deterministic rounding of one linear program: Checkmate's Figure 8 (Jain et al., MLSys 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.errors import GraphError
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.graph import Graph
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers import Scatter, Solution

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def rounding_scatter(
    graph: Graph,
    randomized: Scatter,
    deterministic: Scatter,
    optimal: Solution | None = None,
    budget: int | None = None,
    theme: Theme = "light",
) -> Figure:
    """Cost against peak of every rounded schedule, within the budget or not; what lies right of the budget is useless.

    The figure always has the same four traces.

    Args:
        graph: the training graph, whose total cost is an overhead of 0.
        randomized: the draws; without any the trace is empty.
        deterministic: the schedules of one or several thresholds.
        optimal: the best known schedule within the budget, a star, or None.
        budget: bytes, a vertical line, or None.
        theme: ground of the figure, "light" or "dark".

    Raises:
        GraphError: if computing everything once costs nothing, so that there are no overheads.

    >>> from remat_explorer.instances import linear
    >>> draws = Scatter(np.array([26.0, 34.0]), np.array([5, 4]))
    >>> figure = rounding_scatter(linear(8), draws, Scatter(np.array([34.0]), np.array([6])), budget=5)
    >>> [(trace.name, list(map(float, trace.x))) for trace in figure.data if trace.visible]
    [('randomized', [5.0, 4.0]), ('deterministic', [6.0]), ('budget 5 B', [5.0, 5.0])]
    """
    from plotly import graph_objects as go

    if not graph.total_cost:
        raise GraphError(f"the graph {graph.name!r} costs nothing, so there are no overheads to draw")
    best = Scatter(np.array([]), np.array([], dtype=np.int64))
    if optimal is not None and optimal.cost is not None:
        best = Scatter(np.array([optimal.cost]), np.array([optimal.peak]))
    peaks = [int(scatter.peak.max()) for scatter in (randomized, deterministic, best) if len(scatter.peak)]
    colours, axis = palette(theme), ByteAxis.up_to(max([*peaks, budget or 1]))
    marker: dict[str, Any] = {"size": 6, "color": colours.hues[0], "opacity": 0.55}
    looks: dict[str, tuple[Scatter, dict[str, Any]]] = {
        "randomized": (randomized, marker),
        "deterministic": (deterministic, {"size": 11, "symbol": "x", "color": colours.hues[1]}),
        "optimal": (best, {"size": 15, "symbol": "star", "color": colours.hues[2]}),
    }
    figure = go.Figure()
    for name, (scatter, look) in looks.items():
        figure.add_scatter(
            x=scatter.peak / axis.bytes,
            y=100 * (scatter.cost / graph.total_cost - 1),
            name=name,
            visible=bool(len(scatter.cost)),
            mode="markers",
            marker=look,
            customdata=[format_bytes(int(peak)) for peak in scatter.peak],
            hovertemplate=f"{name}: peak %{{customdata}}, overhead %{{y:.2f}} %<extra></extra>",
        )
    largest = max([float(scatter.cost.max()) for scatter, _ in looks.values() if len(scatter.cost)], default=0.0)
    figure.add_scatter(
        x=[] if budget is None else [budget / axis.bytes] * 2,
        y=[] if budget is None else [0, 105 * max(largest / graph.total_cost - 1, 0.01)],
        name="budget" if budget is None else f"budget {format_bytes(budget)}",
        visible=budget is not None,
        mode="lines",
        line={"color": colours.budget, "width": 1.8, "dash": "dash"},
        hoverinfo="skip",
    )
    figure.update_xaxes(title_text=f"peak memory ({axis.unit})", gridcolor=colours.grid, zeroline=False)
    figure.update_yaxes(title_text="overhead (%)", gridcolor=colours.grid, zeroline=False, rangemode="tozero")
    figure.update_layout(
        title=f"{in_figure(graph.name)}: roundings of one linear program",
        height=420,
        margin={"t": 56, "b": 56},
        **colours.look,
        hovermode="closest",
        hoverlabel=colours.hover,
    )
    return figure
