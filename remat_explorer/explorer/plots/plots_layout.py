"""Where everything is in the explorer's figure: the trade-off on the left, the memory timeline on the right."""

from __future__ import annotations

from typing import Any

from remat_explorer.figures.memory_timeline import Reach, timeline_axes
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.tradeoff import Extent, tradeoff_axes
from remat_explorer.solvers import Frontier

NAMES = 206  # pixels that the names beside the timeline may take, at most
EMPTY = "The trade-off curve appears here<br>while budgets are planned"
NONE_FITS = "No strategy has a schedule<br>within these budgets"
CURVE = (0.0, 0.355)  # shares of the width
TIMELINE = (0.455, 1.0)
LINES = 0.6  # where the names of the lines begin, behind those of the layers


def arrange(
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
