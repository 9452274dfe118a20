"""R, S and U as three pictures side by side: small at any number of operations, for files that are sent around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.schedules.matrix_image import lay_out, legend_squares, matrix_image
from remat_explorer.figures.schedules.memory_heatmap import memory_in_stages
from remat_explorer.figures.schedules.png import shades
from remat_explorer.figures.schedules.schedule_heatmap import BACKWARD, FORWARD, RECOMPUTE, computation_kinds
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LEVELS = 254  # shades of memory; with the one for empty cells and a black one, a PNG's palette is full
TITLES = ("R: computed in the stage", "S: retained into the stage", "U: memory in use (predicted)")

Picture = tuple[np.ndarray, Sequence[str], str]  # the index of each cell's colour, the colours, what a column is


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
    pictures, largest = matrix_pictures(schedule, theme)
    computed, kinds, _ = pictures[0]
    figure = make_subplots(rows=1, cols=3, shared_yaxes=True, horizontal_spacing=0.02, subplot_titles=TITLES)
    for column, (cells, shown, across) in enumerate(pictures, start=1):
        figure.add_trace(matrix_image(cells, shown, TITLES[column - 1][0], across), 1, column)
        figure.update_xaxes(title_text=across, range=[-0.5, cells.shape[1] - 0.5], row=1, col=column)
    named = ((FORWARD, "forward"), (BACKWARD, "backward"), (RECOMPUTE, "recompute"))
    for square in (
        *legend_squares(computed, [(kind, name, kinds[kind]) for kind, name in named]),
        *legend_squares(np.zeros((0, 0)), [(1, "kept", colours.kept)]),
    ):
        figure.add_trace(square, 1, 1)
    figure.add_trace(_scale(go, colours.scale, largest), 1, 3)
    figure.update_yaxes(range=[schedule.stages - 0.5, -0.5], scaleanchor=False)
    lay_out(figure, schedule.stages, colours)
    return figure


def matrix_pictures(schedule: Schedule, theme: Theme) -> tuple[tuple[Picture, Picture, Picture], float]:
    """R, S and U, and the largest memory in U in bytes."""
    colours = palette(theme)
    U = memory_in_stages(schedule)
    largest = max(float(U.max()), 1.0)
    levels = np.where(U.mask, 0, 1 + np.rint(U.data / largest * (LEVELS - 1)).astype(int))
    kinds = (colours.empty, colours.forward, colours.backward, colours.recompute)
    R = (computation_kinds(schedule), kinds, "operation")
    S = (schedule.S, (colours.empty, colours.kept), "value")
    return (R, S, (levels, (colours.empty, *shades(colours.scale, LEVELS)), "operation")), largest


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
