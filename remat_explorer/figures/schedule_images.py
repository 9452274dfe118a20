"""R, S and U as pictures, small at any number of operations, for files that are sent around.

A cell is a pixel, and large matrices of few colours become small files (PNG); no single cell is lost.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Palette, Theme, palette
from remat_explorer.figures.schedule_heatmap import BACKWARD, FORWARD, RECOMPUTE, computation_kinds, memory_in_stages
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def png_address(cells: np.ndarray, colours: Sequence[str]) -> str:
    """A PNG with one pixel per cell, as a ``data:`` address that stands in for a file.

    Args:
        cells: index of each cell's colour, of shape (rows, columns).
        colours: at most 256, as ``#rrggbb``.

    Source: Portable Network Graphics (W3C Recommendation), indexed colour.

    >>> png_address(np.array([[0, 1]]), ["#000000", "#ffffff"])[:30]
    'data:image/png;base64,iVBORw0K'
    """
    rows, columns = cells.shape
    pixels = np.zeros((rows, columns + 1), dtype=np.uint8)  # each row begins with its filter, 0 for none
    pixels[:, 1:] = cells
    chunks = (
        (b"IHDR", struct.pack(">2I5B", columns, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", b"".join(bytes.fromhex(colour[1:]) for colour in colours)),
        (b"IDAT", zlib.compress(pixels.tobytes(), 9)),
        (b"IEND", b""),
    )
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def shades(scale: Sequence[str], count: int) -> list[str]:
    """``count`` colours that run evenly through the colours of a scale.

    >>> shades(["#000000", "#ffffff"], 3)
    ['#000000', '#808080', '#ffffff']
    """
    stops = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in scale], dtype=float)
    at, places = np.linspace(0, 1, count), np.linspace(0, 1, len(scale))
    mixed = np.rint([np.interp(at, places, stops[:, channel]) for channel in range(3)]).astype(int)
    return ["#" + "".join(f"{level:02x}" for level in colour) for colour in mixed.T]


PIXELS = 340  # about as many as a picture is wide: larger ones are averaged, so that no thin line is lost
MARK, MARKS = 3, 8000  # pixels of a mark on a cell in a larger one, and at most how many of them


def matrix_image(cells: np.ndarray, colours: Sequence[str], name: str, across: str) -> Any:
    """A plotly image with one pixel per cell.

    Args:
        cells: index of each cell's colour, of shape (stages, columns).
        colours: at most 256, as ``#rrggbb``.
        name: of the trace.
        across: what a column is, for the hover.
    """
    from plotly import graph_objects as go

    hover = f"stage %{{y}}, {across} %{{x}}<extra></extra>"
    smooth = "fast" if max(cells.shape) > PIXELS else False
    return go.Image(source=png_address(cells, colours), hovertemplate=hover, name=name, zsmooth=smooth)


def legend_squares(cells: np.ndarray, entries: Sequence[tuple[int, str, str]]) -> list[Any]:
    """Entries of the legend; where cells are too small to be seen, and not too many, they are marked by squares, too.

    Args:
        cells: index of each cell's colour, of shape (stages, columns).
        entries: index, name and colour of what the legend shows.

    >>> [one.name for one in legend_squares(np.eye(2), [(1, "computed", "#000000")])]
    ['computed']
    """
    from plotly import graph_objects as go

    large = max(cells.shape) > PIXELS and np.isin(cells, [index for index, _, _ in entries]).sum() <= MARKS
    squares = []
    for index, name, colour in entries:
        rows, columns = np.nonzero(cells == index) if large else ([None], [None])
        marker = {"color": colour, "symbol": "square", "size": MARK}
        squares.append(go.Scatter(x=columns, y=rows, mode="markers", name=name, marker=marker, hoverinfo="skip"))
    return squares


def lay_out(figure: Any, stages: int, colours: Palette) -> None:
    """The height, ground and legend of a figure whose first column is a matrix with a row for each stage."""
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(title_text="stage", range=[stages - 0.5, -0.5], scaleanchor=False, row=1, col=1)
    figure.update_layout(
        height=436,
        margin={"l": 60, "r": 16, "t": 56, "b": 70},
        **colours.look,
        legend={"orientation": "h", "y": -0.2, "itemsizing": "constant"},
    )


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
