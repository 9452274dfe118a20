"""The matrices of a schedule: R and S side by side, U, R of several schedules, and where two schedules differ.

R is what each stage computes, S what it starts with; U is memory in use when an operation runs in a stage, equations
(2) and (3) of Checkmate (Jain et al., MLSys 2020). R of several schedules side by side is its Figure 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from remat_explorer.errors import ScheduleError
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


NEITHER, BOTH, FIRST, SECOND = range(4)
MEANINGS = ("neither", "both", "only the first", "only the second")


@dataclass(frozen=True)
class Difference:
    """Cells by who has them: NEITHER, BOTH, FIRST or SECOND; uint8.

    Attributes:
        R: computations, of shape (stages, operations).
        S: retained values, of shape (stages, values).

    The stages are those of the schedule that has more; where the other has none, it computes and retains nothing.
    """

    R: np.ndarray
    S: np.ndarray


def difference(first: Schedule, second: Schedule) -> Difference:
    """Compare two schedules of one graph, cell by cell.

    Costs and workspace may have been measured anew for one of them; another implementation of an operation is no
    difference.

    Raises:
        ScheduleError: if the schedules belong to graphs of different structure.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> again = Schedule(linear(1), [[1, 0, 0], [1, 1, 0], [1, 0, 1]], [[0, 0, 0], [0, 0, 0], [0, 1, 0]])
    >>> difference(keep, again).R.tolist()
    [[1, 0, 0], [3, 1, 0], [3, 0, 1]]
    >>> difference(keep, Schedule(linear(2), np.eye(5), np.tril(np.ones((5, 5)), -1)))
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ScheduleError: schedules of 'linear1' (3 operations) and 'linear2' (5 operations) cannot be \
compared; choose two schedules of the same graph
    """
    one, two = first.graph, second.graph
    if one is not two and one.structure != two.structure:
        raise ScheduleError(
            f"schedules of {one.name!r} ({one.n} operations) and {two.name!r} ({two.n} operations) cannot be compared; "
            "choose two schedules of the same graph"
        )
    return Difference(_changed_cells(first.R > 0, second.R > 0), _changed_cells(first.S, second.S))


def _changed_cells(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """BOTH, FIRST, SECOND or NEITHER for each cell, with as many rows as the larger matrix."""
    cells = np.zeros((max(len(first), len(second)), first.shape[1]), dtype=np.uint8)
    cells[: len(first)] += FIRST * first.astype(np.uint8)
    cells[: len(second)] += SECOND * second.astype(np.uint8)
    return np.where(cells == FIRST + SECOND, BOTH, cells).astype(np.uint8)


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
