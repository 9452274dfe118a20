"""R, S and U as three pictures side by side: small at any number of operations, for files that are sent around."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.memory_heatmap import memory_in_stages
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.png import png_address, shades
from remat_explorer.figures.schedule_heatmap import BACKWARD, FORWARD, RECOMPUTE, computation_kinds
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PIXELS = 340  # about as many as a picture is wide: larger ones are averaged, so that no thin line is lost
MARK, MARKS = 3, 8000  # pixels of a mark on a computation in a larger one, and at most how many of them
LEVELS = 254  # shades of memory; with the one for empty cells and a black one, a PNG's palette is full
TITLES = ("R: computed in the stage", "S: retained into the stage", "U: memory in use (predicted)")


def schedule_images(schedule: Schedule, theme: Theme = "light") -> Figure:
    """What each stage computes, what it starts with, and the memory in use, one pixel per cell.

    A thousand operations take some hundred kilobytes, where `schedule_heatmap` would take many megabytes.

    Args:
        schedule: R of shape (stages, operations) and S of shape (stages, values).
        theme: ground of the figure, "light" or "dark".

    >>> from remat_explorer.instances import linear
    >>> figure = schedule_images(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)))
    >>> [trace.type for trace in figure.data[:3]]
    ['image', 'image', 'image']
    """
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    colours = palette(theme)
    kinds = (colours.empty, colours.forward, colours.backward, colours.recompute)
    U = memory_in_stages(schedule)
    largest = max(float(U.max()), 1.0)
    levels = np.where(U.mask, 0, 1 + np.rint(U.data / largest * (LEVELS - 1)).astype(int))
    pictures = (
        png_address(computation_kinds(schedule), kinds),
        png_address(schedule.S, (colours.empty, colours.kept)),
        png_address(levels, [colours.empty, *shades(colours.scale, LEVELS)]),
    )
    figure = make_subplots(rows=1, cols=3, shared_yaxes=True, horizontal_spacing=0.02, subplot_titles=TITLES)
    across = ("operation", "value", "operation")
    for column, (picture, name) in enumerate(zip(pictures, across, strict=True), start=1):
        hover = f"stage %{{y}}, {name} %{{x}}<extra></extra>"
        width = schedule.S.shape[1] if name == "value" else schedule.graph.n
        smooth = "fast" if max(width, schedule.stages) > PIXELS else False
        trace = go.Image(source=picture, hovertemplate=hover, name=TITLES[column - 1][0], zsmooth=smooth)
        figure.add_trace(trace, 1, column)
        figure.update_xaxes(title_text=name, range=[-0.5, width - 0.5], row=1, col=column)
    marks = _marks(schedule)
    for name, colour in zip(("forward", "backward", "recompute", "kept"), (*kinds[1:], colours.kept), strict=True):
        rows, columns = marks.get(name, ([None], [None]))
        squares = {"color": colour, "symbol": "square", "size": MARK}
        trace = go.Scatter(x=columns, y=rows, mode="markers", name=name, marker=squares, hoverinfo="skip")
        figure.add_trace(trace, 1, 1)
    figure.add_trace(_scale(go, colours.scale, largest), 1, 3)
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(range=[schedule.stages - 0.5, -0.5], scaleanchor=False, showgrid=False, zeroline=False)
    figure.update_yaxes(title_text="stage", row=1, col=1)
    figure.update_layout(
        height=436,
        margin={"l": 60, "r": 12, "t": 56, "b": 70},
        paper_bgcolor=colours.ground,
        plot_bgcolor=colours.empty,
        font_color=colours.ink,
        legend={"orientation": "h", "y": -0.2, "itemsizing": "constant"},
    )
    return figure


def _marks(schedule: Schedule) -> dict[str, tuple[np.ndarray, ...]]:
    """Rows and columns of each kind of computation, where single cells are too small to be seen, and not too many."""
    kinds = computation_kinds(schedule)
    if max(kinds.shape) <= PIXELS or np.count_nonzero(kinds) > MARKS:
        return {}
    named = {"forward": FORWARD, "backward": BACKWARD, "recompute": RECOMPUTE}
    return {name: np.nonzero(kinds == kind) for name, kind in named.items()}


def _scale(go: Any, scale: tuple[str, ...], largest: float) -> Any:
    """No point, but the colour bar of the memory."""
    axis = ByteAxis.up_to(largest)
    steps = [(i / (len(scale) - 1), colour) for i, colour in enumerate(scale)]
    marker = {
        "color": [0],
        "cmin": 0,
        "cmax": largest / axis.bytes,
        "colorscale": steps,
        "showscale": True,
        "colorbar": {"title": {"text": axis.unit}, "thickness": 12},
    }
    return go.Scatter(x=[None], y=[None], mode="markers", showlegend=False, hoverinfo="skip", marker=marker)
