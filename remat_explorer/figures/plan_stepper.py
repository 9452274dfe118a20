"""A plan as an animation: every value a square, filled while it is in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.playing import player
from remat_explorer.plain_text import in_figure
from remat_explorer.plan import Compute, Free, Plan

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
