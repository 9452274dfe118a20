"""R and S side by side: what each stage computes, and what it starts with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from remat_explorer.figures.palette import Theme, palette
from remat_explorer.plain_text import in_figure
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

EMPTY, FORWARD, BACKWARD, RECOMPUTE = range(4)


def computation_kinds(schedule: Schedule) -> np.ndarray:
    """What each cell of R means, uint8 of shape (stages, n): EMPTY, FORWARD, BACKWARD or RECOMPUTE.

    A computation is FORWARD or BACKWARD when it is its operation's first, RECOMPUTE after that.

    >>> from remat_explorer.instances import linear
    >>> S = [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
    >>> computation_kinds(Schedule(linear(1), [[1, 0, 0], [1, 1, 0], [1, 0, 1]], S)).tolist()
    [[1, 0, 0], [3, 2, 0], [3, 0, 2]]
    """
    kinds = np.full((schedule.stages, schedule.graph.n), EMPTY, dtype=np.uint8)
    kinds[schedule.computations.stage, schedule.computations.operation] = kinds_of_computations(schedule)
    return kinds


def kinds_of_computations(schedule: Schedule) -> np.ndarray:
    """What each computation is, in order, uint8 of shape (computations,): FORWARD, BACKWARD or RECOMPUTE.

    >>> from remat_explorer.instances import linear
    >>> kinds_of_computations(Schedule(linear(1), np.tri(3), np.zeros((3, 3)))).tolist()
    [1, 3, 2, 3, 3, 2]
    """
    phases = np.where(schedule.graph.is_backward, BACKWARD, FORWARD)[schedule.computations.operation]
    return np.where(schedule.computations.are_first(), phases, RECOMPUTE).astype(np.uint8)


def schedule_heatmap(schedule: Schedule, theme: Theme = "light") -> Figure:
    """R (what each stage computes) and S (what is retained into it).

    Args:
        schedule: R of shape (stages, operations) and S of shape (stages, values).
        theme: ground of the figure, "light" or "dark".

    >>> import numpy as np
    >>> from remat_explorer.instances import linear
    >>> figure = schedule_heatmap(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)))
    >>> figure.layout.xaxis.title.text, figure.layout.yaxis.title.text
    ('operation', 'stage')
    """
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    colours, graph = palette(theme), schedule.graph
    figure = make_subplots(
        rows=1,
        cols=2,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        subplot_titles=("R: computed in the stage", "S: retained into the stage"),
    )
    shades = (colours.empty, colours.forward, colours.backward, colours.recompute)
    figure.add_trace(
        _cells(go, computation_kinds(schedule), [in_figure(o.name) for o in graph.operations], shades), 1, 1
    )
    figure.add_trace(
        _cells(go, schedule.S, [in_figure(v.name) for v in graph.values], (colours.empty, colours.kept)), 1, 2
    )
    for name, colour in zip(("forward", "backward", "recompute", "kept"), (*shades[1:], colours.kept), strict=True):
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker={"color": colour, "symbol": "square"})
    figure.update_xaxes(title_text="operation", row=1, col=1)
    figure.update_xaxes(title_text="value", row=1, col=2)
    figure.update_yaxes(title_text="stage", row=1, col=1)
    figure.update_xaxes(constrain="domain", showgrid=False, zeroline=False)
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False)
    figure.update_layout(
        title=in_figure(graph.name),
        height=480,
        **colours.look,
        legend={"orientation": "h", "y": -0.18},
    )
    return figure


def _cells(go, cells: np.ndarray, names: list[str], shades: tuple[str, ...]):
    meanings = ("—", "forward", "backward", "recompute") if len(shades) == 4 else ("—", "kept")
    steps = [(edge / len(shades), shade) for i, shade in enumerate(shades) for edge in (i, i + 1)]
    return go.Heatmap(
        z=cells.astype(np.uint8),
        zmin=-0.5,
        zmax=len(shades) - 0.5,
        colorscale=steps,
        showscale=False,
        xgap=1 if len(names) <= 60 else 0,
        ygap=1 if len(names) <= 60 else 0,
        customdata=np.broadcast_to(np.array(names, dtype=object), cells.shape),
        text=np.array(meanings, dtype=object)[cells.astype(int)],
        hovertemplate="stage %{y}, %{x} %{customdata}: %{text}<extra></extra>",
    )
