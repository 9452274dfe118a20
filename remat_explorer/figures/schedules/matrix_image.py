"""One matrix as a picture with a legend: small at any number of operations, and no single cell is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from remat_explorer.figures.palette import Palette
from remat_explorer.figures.schedules.png import png_address

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
