"""U: memory in use when an operation runs in a stage, equations (2) and (3) of Checkmate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.plain_text import in_figure
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def memory_in_stages(schedule: Schedule) -> np.ma.MaskedArray:
    """U in bytes, masked behind the last computation of each stage, where nothing more runs.

    >>> from remat_explorer.instances import linear
    >>> memory_in_stages(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))).tolist()
    [[1, None, None], [1, 2, None], [2, 2, 3]]
    """
    n = schedule.graph.n
    runs = schedule.R > 0
    last = np.where(runs.any(axis=1), n - 1 - runs[:, ::-1].argmax(axis=1), -1)
    return np.ma.masked_array(schedule.U, mask=np.arange(n) > last[:, None])


def memory_heatmap(schedule: Schedule, theme: Theme = "light") -> Figure:
    """Memory in use, per stage and operation, in the unit that suits its maximum.

    Args:
        schedule: of shape (stages, operations).
        theme: ground of the figure, "light" or "dark".

    >>> import numpy as np
    >>> from remat_explorer.instances import linear
    >>> figure = memory_heatmap(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)))
    >>> figure.data[0].colorbar.title.text
    'bytes'
    """
    from plotly import graph_objects as go

    colours, U = palette(theme), memory_in_stages(schedule)
    axis = ByteAxis.up_to(float(U.max()))
    names = np.array([in_figure(node.name) for node in schedule.graph.operations], dtype=object)
    figure = go.Figure(
        go.Heatmap(
            z=np.ma.filled(U.astype(float), np.nan) / axis.bytes,
            colorscale=[(i / (len(colours.scale) - 1), colour) for i, colour in enumerate(colours.scale)],
            colorbar={"title": {"text": axis.unit}},
            customdata=np.broadcast_to(names, U.shape),
            hovertemplate="stage %{y}, %{x} %{customdata}: %{z:.4g} " + axis.unit + "<extra></extra>",
            hoverongaps=False,
        )
    )
    figure.update_xaxes(title_text="operation", showgrid=False, zeroline=False)
    figure.update_yaxes(title_text="stage", autorange="reversed", showgrid=False, zeroline=False)
    figure.update_layout(
        title=f"{in_figure(schedule.graph.name)}: U, memory in use (predicted)",
        height=480,
        **colours.look,
    )
    return figure
