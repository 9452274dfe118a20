"""A plan as an animation: every value a square, filled while it is in memory; alone, or beside R, S and U."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.play_buttons import player
from remat_explorer.figures.schedule_heatmap import computation_kinds, memory_in_stages
from remat_explorer.plain_text import in_figure
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def plan_stepper(plan: Plan, theme: Theme = "light") -> Figure:
    """Each statement of a plan as a frame, with a button that plays and a slider; it needs no kernel.

    Where nothing plays, such as on paper, the frames that ``layout.meta["stills"]`` names stand for all of them: the
    first value that is dropped and comes back, the highest memory, and the first and the last recomputation.

    Args:
        plan: of a small graph, since every value has a square.
        theme: ground of the figure, "light" or "dark".

    >>> import numpy as np
    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.schedule import Schedule
    >>> figure = plan_stepper(Plan.of(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))))
    >>> figure.frames[0].layout.title.text
    'compute v0: 1 byte in memory'
    >>> figure.layout.meta["stills"]
    ['2']
    """
    from plotly import graph_objects as go

    colours, graph = palette(theme), plan.graph
    names = [in_figure(value.name) for value in graph.values]

    def squares(held: set[int], again: set[int]):
        shades = [
            colours.recompute if v in again else colours.kept if v in held else colours.ground
            for v in range(len(names))
        ]
        marker = {"symbol": "square", "size": 30, "color": shades, "line": {"color": colours.ink, "width": 1}}
        across = list(range(len(names)))
        return go.Scatter(x=across, y=[0] * len(names), text=names, mode="markers", marker=marker, hoverinfo="text")

    frames, held, done = [], set(), set()
    totals: list[int] = []
    repeated: dict[int, set[int]] = {}  # values by the statement that computes them again
    for number, statement in enumerate(plan.statements):
        again: set[int] = set()
        if isinstance(statement, Compute):
            made = set(graph.outputs(statement.operation))
            held |= made
            again = made if statement.operation in done else set()
            done.add(statement.operation)
            if again:
                repeated[number] = again
        else:
            held.discard(statement.value)
        total = graph.resident_bytes + sum(graph.values[v].bytes for v in held)
        totals.append(total)
        title = f"{in_figure(plan.text(statement))}: {total:,} byte{'' if total == 1 else 's'} in memory"
        frames.append(go.Frame(data=[squares(held, again)], name=str(number), layout={"title": {"text": title}}))
    figure = go.Figure(data=frames[0].data, layout=frames[0].layout, frames=frames)
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names, showgrid=False, zeroline=False)
    figure.update_yaxes(visible=False)
    controls = player([frame.name for frame in frames], "statement ", 600, 1.5, colours)
    back: set[int] = set().union(*repeated.values())
    dropped = [number for number, one in enumerate(plan.statements) if isinstance(one, Free) and one.value in back]
    stills = {*dropped[:1], totals.index(max(totals)), *list(repeated)[:1], *list(repeated)[-1:]}
    figure.update_layout(height=260, meta={"stills": [str(number) for number in sorted(stills)]})
    figure.update_layout(**controls, **colours.look)
    return figure


PANELS: dict[str, tuple[list[float], list[float]]] = {  # of each axis, across and upwards
    "": ([0, 1], [0.88, 1]),
    "2": ([0, 0.31], [0.36, 0.78]),
    "3": ([0.345, 0.655], [0.36, 0.78]),
    "4": ([0.69, 1], [0.36, 0.78]),
    "5": ([0, 1], [0, 0.22]),
}


def schedule_stepper(schedule: Schedule, theme: Theme = "light") -> Figure:
    """Each statement as a frame: the values in memory, and R, S, U and the memory as far as the step has come.

    Where nothing plays, the frames that ``layout.meta["stills"]`` names stand for all: the highest memory, and the last
    recomputation.

    Args:
        schedule: of a small graph, with a stage for each operation.
        theme: ground of the figure, "light" or "dark".

    >>> from remat_explorer.instances import linear
    >>> figure = schedule_stepper(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)))
    >>> [trace.name for trace in figure.data], figure.frames[2].layout.title.text
    (['in memory', 'R', 'S', 'U', 'memory', 'now'], 'stage 2: compute v2: 3 bytes in memory')
    """
    from plotly import graph_objects as go

    colours, plan = palette(theme), Plan.of(schedule)
    kinds = computation_kinds(schedule)
    squares: Any = plan_stepper(plan, theme)
    U = np.ma.filled(memory_in_stages(schedule).astype(float), np.nan)
    stages, columns = np.arange(len(kinds))[:, None], np.arange(kinds.shape[1])
    shades = (colours.empty, colours.forward, colours.backward, colours.recompute)
    frames, ran = [], np.zeros(kinds.shape, dtype=bool)
    for number, (statement, frame) in enumerate(zip(plan.statements, squares.frames, strict=True)):
        if isinstance(statement, Compute):
            ran[statement.stage, statement.operation] = True
        reached = max(np.flatnonzero(ran[statement.stage, :]).tolist(), default=-1)
        past = (stages < statement.stage) | ((stages == statement.stage) & (columns <= reached))
        data = [
            frame.data[0].update(name="in memory", showlegend=False),
            _table("R", np.where(ran, kinds, 0), shades, 2),
            _table("S", schedule.S & (stages <= statement.stage), (colours.empty, colours.kept), 3),
            _table("U", np.where(past, U, np.nan), colours.scale, 4).update(zmin=0, zmax=float(np.nanmax(U))),
            _memory(plan, len(plan.statements), "memory", colours.others),
            _memory(plan, number + 1, "now", colours.kept),
        ]
        title = f"stage {statement.stage}: {frame.layout.title.text}"
        frames.append(go.Frame(data=data, name=str(number), layout={"title": {"text": title}}))
    figure = go.Figure(data=frames[0].data, layout=frames[0].layout, frames=frames)
    words = {"2": "R: computed", "3": "S: retained", "4": "U: bytes in memory", "5": "bytes after each statement"}
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False}
    for axis, (across, upwards) in PANELS.items():
        figure.update_layout({f"xaxis{axis}": {**plain, "domain": across, "anchor": f"y{axis}"}})
        side = {"": {"range": [-1, 1], "visible": False}, "5": {"rangemode": "tozero"}}.get(
            axis, {"autorange": "reversed"}
        )
        figure.update_layout({f"yaxis{axis}": {**plain, **side, "domain": upwards, "anchor": f"x{axis}"}})
        if axis in words:
            place = {"x": across[0], "y": upwards[1], "xref": "paper", "yref": "paper", "xanchor": "left"}
            figure.add_annotation(text=words[axis], showarrow=False, yanchor="bottom", **place)
    names = [in_figure(value.name) for value in plan.graph.values]
    again = [k for k, one in enumerate(plan.statements) if isinstance(one, Compute) and not one.first]
    stills = sorted({plan.timeline.peak_statement, *again[-1:]})
    figure.update_layout(
        xaxis={"tickvals": list(range(len(names))), "ticktext": names},
        height=680,
        showlegend=False,
        barmode="overlay",
        bargap=0,
        meta={"stills": [str(number) for number in stills], "still height": 560},
        **player([frame.name for frame in frames], "statement ", 600, 1.16, colours),
        **colours.look,
    )
    return figure


def _table(name: str, cells: np.ndarray, shades: tuple[str, ...], axis: int):
    from plotly import graph_objects as go

    if name == "U":
        scale = [(i / (len(shades) - 1), shade) for i, shade in enumerate(shades)]
    else:
        scale = [(edge / len(shades), shade) for i, shade in enumerate(shades) for edge in (i, i + 1)]
    ends = {"zmin": -0.5, "zmax": len(shades) - 0.5, "showscale": False, "xgap": 1, "ygap": 1}
    z = [[None if np.isnan(cell) else round(cell) for cell in row] for row in np.asarray(cells, dtype=float)]
    return go.Heatmap(z=z, name=name, colorscale=scale, xaxis=f"x{axis}", yaxis=f"y{axis}", **ends)


def _memory(plan: Plan, until: int, name: str, colour: str):
    from plotly import graph_objects as go

    shown = plan.timeline.after[:until].tolist() + [None] * (len(plan.statements) - until)
    return go.Bar(y=shown, name=name, marker={"color": colour, "line": {"width": 0}}, xaxis="x5", yaxis="y5")
