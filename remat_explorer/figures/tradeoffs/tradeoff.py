"""The trade-off: overhead against peak memory, for every strategy, with what is proven about both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.tradeoffs.tradeoff_extent import Extent, PlacedPoint
from remat_explorer.figures.tradeoffs.tradeoff_traces import curve_traces, pointer_traces
from remat_explorer.plain_text import in_figure
from remat_explorer.solvers import Frontier

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NONE_FITS = "No strategy has a schedule within these budgets"


def tradeoff(
    frontier: Frontier,
    budget: int | None = None,
    selected: PlacedPoint | None = None,
    measurement: PlacedPoint | None = None,
    theme: Theme = "light",
) -> Figure:
    """Overhead against predicted peak of every schedule that a sweep found.

    The line runs through the points that no other beats; in the shaded region nothing exists, as far as that is proven.
    A filled marker is proven optimal for its budget, an open one has a gap or no bound. The figure has the same traces
    in the same order for the same strategies.

    Args:
        frontier: the sweep's result; it may be empty.
        budget: bytes, a vertical line, or None.
        selected: the solution with a ring around it, or None.
        measurement: measured peak and overhead of a solution, or None.
        theme: ground of the figure, "light" or "dark".

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> frontier = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (4, 6, 8)))
    >>> figure = tradeoff(frontier, budget=6, selected=frontier.best(6))
    >>> [trace.name for trace in figure.data if trace.visible]
    ['proven: none below', 'best', 'optimal', 'budget 6 B', 'selected']
    """
    from plotly import graph_objects as go

    extent = Extent.around(frontier, budget, selected, measurement)
    traces = curve_traces(frontier, extent, theme) + pointer_traces(extent, budget, selected, measurement, theme)
    colours, (x, y) = palette(theme), tradeoff_axes(extent, theme)
    figure = go.Figure(traces, {"xaxis": x, "yaxis": y})
    figure.update_layout(
        title=f"{in_figure(frontier.graph.name)}: overhead against peak memory (predicted)",
        height=420,
        margin={"t": 56, "b": 56},
        legend={"title": {"text": "filled: proven optimal"}},
        **colours.look,
        hovermode="closest",
        hoverlabel=colours.hover,
    )
    if not frontier.points:
        figure.add_annotation(text=NONE_FITS, showarrow=False, xref="x domain", yref="y domain", x=0.5, y=0.5)
    return figure


def tradeoff_axes(extent: Extent, theme: Theme = "light") -> tuple[dict[str, Any], dict[str, Any]]:
    """Both axes as plotly's layout takes them.

    >>> tradeoff_axes(Extent.around(None, 2**30))[0]["title"]["text"]
    'peak memory (GiB)'
    """
    look = {"gridcolor": palette(theme).grid, "zeroline": False}
    x, y = extent.ranges()
    return (
        {**look, "title": {"text": f"peak memory ({extent.axis.unit})"}, "range": x},
        {**look, "title": {"text": "overhead (%)"}, "range": y},
    )
