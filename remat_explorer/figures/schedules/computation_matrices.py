"""R of several schedules side by side: Checkmate's Figure 7 (Jain et al., MLSys 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.schedules.schedule_heatmap import RECOMPUTE, computation_kinds
from remat_explorer.plain_text import in_figure
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COMPUTATIONS = ("nothing", "forward", "backward", "recompute")


def computation_matrices(schedules: Sequence[Schedule], titles: Sequence[str], theme: Theme = "light") -> Figure:
    """What each stage computes, one matrix for each schedule; first computations and recomputations differ in colour.

    Args:
        schedules: of any graphs, at least one.
        titles: of the matrices, as many.
        theme: ground of the figure, "light" or "dark".

    Raises:
        ScheduleError: if there is no schedule, or another number of titles.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import checkpoint_all
    >>> figure = computation_matrices([checkpoint_all(linear(2)), checkpoint_all(linear(3))], ["two", "three"])
    >>> [trace.z.shape for trace in figure.data if trace.type == "heatmap"]
    [(5, 5), (7, 7)]
    """
    from plotly.subplots import make_subplots

    if not schedules or len(schedules) != len(titles):
        raise ScheduleError(f"{len(schedules)} schedules and {len(titles)} titles make no figure; give as many of both")
    colours = palette(theme)
    shades = (colours.empty, colours.forward, colours.backward, colours.recompute)
    scale = [[edge / 4, shade] for i, shade in enumerate(shades) for edge in (i, i + 1)]
    figure = make_subplots(rows=1, cols=len(schedules), subplot_titles=list(titles), horizontal_spacing=0.05)
    for column, schedule in enumerate(schedules, 1):
        kinds = computation_kinds(schedule)
        names = np.array([in_figure(operation.name) for operation in schedule.graph.operations], dtype=object)
        figure.add_heatmap(
            z=kinds,
            zmin=-0.5,
            zmax=RECOMPUTE + 0.5,
            colorscale=scale,
            showscale=False,
            customdata=np.stack(
                [np.broadcast_to(names, kinds.shape), np.array(COMPUTATIONS, dtype=object)[kinds]], axis=-1
            ),
            hovertemplate="stage %{y}, %{customdata[0]}: %{customdata[1]}<extra></extra>",
            row=1,
            col=column,
        )
    for name, shade in zip(COMPUTATIONS[1:], shades[1:], strict=True):
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker={"color": shade, "symbol": "square"})
    figure.update_xaxes(title_text="operation", showgrid=False, zeroline=False)
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False)
    figure.update_yaxes(title_text="stage", row=1, col=1)
    figure.update_layout(
        height=440,
        margin={"t": 48, "b": 56},
        **colours.look,
        hoverlabel=colours.hover,
        legend={"orientation": "h", "y": -0.18},
    )
    return figure
