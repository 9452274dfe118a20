"""Where everything that a plan holds lies in one block of memory, and how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.memory.map_pieces import KINDS, Piece, colour_of, pieces_of
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.offsets import Arena, Rectangles, predict_pool
from remat_explorer.plain_text import in_figure
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

ACROSS, UP = 30, 16  # places that can be pointed at, of a rectangle that fills the map
SEAM, MOST_SEAM = 1 / 600, 0.1  # space over each rectangle, as a share of the arena, and of the rectangle at most
THIN = 1 / 250  # of the arena; what is thinner has one place
ROOM = 1.04  # of the arena, up to which the memory axis goes


def memory_map(plan: Plan, arena: Arena | None = None, theme: Theme = "light") -> Figure:
    """Statements across, bytes up: every value from its computation to where it is freed, at its offset.

    Args:
        plan: with s statements.
        arena: offsets for what the plan holds, as `remat_explorer.offsets.place` finds them; found in a moment unless
            given.
        theme: ground of the figure, "light" or "dark".

    Raises:
        ScheduleError: if the arena is not one of the plan.

    >>> from remat_explorer.instances import linear
    >>> figure = memory_map(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))
    >>> [trace.name for trace in figure.data if trace.visible]
    ['kept', 'gradients', 'most at a time 1.50 KiB', 'places']
    """
    from plotly import graph_objects as go

    arena = predict_pool(plan) if arena is None else arena
    found, expected = arena.rectangles, Rectangles.of(plan)
    if found.values != expected.values or found.begin.tolist() != expected.begin.tolist():
        raise ScheduleError(
            f"the arena has {len(found)} rectangles, which are not the {len(expected)} of the plan of "
            f"{plan.graph.name!r}; place this plan"
        )
    colours, axis = palette(theme), ByteAxis.up_to(max(arena.size, 1))
    pieces, length = list(pieces_of(plan, found)), max(len(plan.statements), 1)
    figure = go.Figure()
    for kind in KINDS:
        x, y = _outlines([piece for piece in pieces if piece.kind == kind], arena, axis)
        figure.add_scatter(
            x=x,
            y=y,
            name=kind,
            visible=bool(len(x)),
            mode="lines",
            fill="toself",
            fillcolor=colour_of(kind, colours),
            line={"width": 0, "color": colour_of(kind, colours), "simplify": False},  # thin ones would go
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=[0, length],
        y=[arena.bound / axis.bytes] * 2,
        name=f"most at a time {format_bytes(arena.bound)}",
        visible=bool(len(pieces)),
        mode="lines",
        line={"color": colours.predicted, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )
    x, y, text = _places(plan, pieces, arena, axis, length)
    figure.add_scatter(
        x=x,
        y=y,
        name="places",
        visible=bool(len(pieces)),
        mode="markers",
        marker={"size": 1, "opacity": 0},
        showlegend=False,
        text=text,
        hovertemplate="%{text}<extra></extra>",
    )
    look = {"gridcolor": colours.grid, "zeroline": False}
    figure.update_xaxes(**look, title_text="statement", range=[0, length], tickformat="d")
    top = ROOM * max(arena.size, 1) / axis.bytes
    figure.update_yaxes(**look, title_text=f"offset ({axis.unit})", range=[0, top])
    figure.update_layout(
        title={"text": f"{in_figure(plan.graph.name)}: {arena}", "font_size": 13},
        height=440,
        margin={"l": 64, "r": 12, "t": 64, "b": 44},
        **colours.look,
        hovermode="closest",
        hoverlabel=colours.hover,
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom", "traceorder": "normal"},
    )
    return figure


def _text(plan: Plan, piece: Piece, arena: Arena) -> str:
    """What is said where a piece is pointed at, as HTML."""
    r, begin, end = piece.rectangle, piece.begin, piece.end
    place = f"{format_bytes(int(arena.rectangles.size[r]))} from {format_bytes(int(arena.offsets[r]))} on"
    if piece.kind == "resident":
        return f"resident bytes<br>{place}, over the whole plan"
    if piece.value < 0:
        return f"workspace<br>{place}<br>statement {begin}: {in_figure(plan.text(plan.statements[begin]))}"
    again = "computed again" if piece.kind == "recomputed" else "computed for the first time"
    name = in_figure(plan.graph.values[piece.value].name)
    return f"<b>{name}</b><br>{place}<br>statements {begin} to {end}, {again}"


def _outlines(pieces: list[Piece], arena: Arena, axis: ByteAxis) -> tuple[np.ndarray, np.ndarray]:
    """Closed outlines of all pieces in one line, with a break after each, float64 of shape (6 pieces,)."""
    chosen = np.array([piece.rectangle for piece in pieces], dtype=np.int64)
    begin, end = (np.array([getattr(piece, name) for piece in pieces], dtype=float) for name in ("begin", "end"))
    low = arena.offsets[chosen] / axis.bytes
    size = arena.rectangles.size[chosen]
    high = low + (size - np.minimum(SEAM * arena.size, MOST_SEAM * size)) / axis.bytes
    gap = np.full(len(pieces), np.nan)
    x = np.stack([begin, end, end, begin, begin, gap], axis=1).ravel()
    return x, np.stack([low, low, high, high, low, gap], axis=1).ravel()


def _places(
    plan: Plan, pieces: list[Piece], arena: Arena, axis: ByteAxis, length: int
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Places so close together that one of each piece is near wherever one points at it."""
    x, y, text = [], [], []
    for piece in pieces:
        low, size = int(arena.offsets[piece.rectangle]), int(arena.rectangles.size[piece.rectangle])
        width = piece.end - piece.begin
        across, up = -(-ACROSS * width // length), -(-UP * size // arena.size)
        across = across if size > THIN * arena.size else 1
        columns = piece.begin + (np.arange(across) + 0.5) * width / across
        rows = (low + (np.arange(up) + 0.5) * size / up) / axis.bytes
        x.append(np.tile(columns, up))
        y.append(np.repeat(rows, across))
        text += [_text(plan, piece, arena)] * (across * up)
    return np.concatenate(x or [np.empty(0)]), np.concatenate(y or [np.empty(0)]), text
