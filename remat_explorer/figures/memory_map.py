"""Where everything that a plan holds lies in one block of memory, and how long.

Every rectangle of the plan is shown in the parts in which it holds one value; memory is made of the four layers of the
memory timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Palette, Theme, palette
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.offload import Fetch, Send, TransferPlan
from remat_explorer.offsets import ALIGNMENT, Arena, Rectangles, place_rectangles, predict_pool
from remat_explorer.plain_text import in_figure
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Computations, Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


AnyPlan = Plan | TransferPlan


@dataclass(frozen=True)
class Holdings:
    """Bytes by kind, one entry per computation of the plan, int64; the kinds add up to the predicted memory.

    Attributes:
        statement: index of each computation among the plan's statements.
        stage: stage of each computation.
        resident: parameters, inputs and buffers.
        kept: values of the forward pass that live into a later stage.
        temporaries: values of the forward pass that die in their stage, and workspace.
        gradients: everything that the backward pass writes.
    """

    statement: np.ndarray
    stage: np.ndarray
    resident: np.ndarray
    kept: np.ndarray
    temporaries: np.ndarray
    gradients: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """Predicted memory while each computation runs, bytes."""
        return self.resident + self.kept + self.temporaries + self.gradients


def holdings(plan: AnyPlan) -> Holdings:
    """Split the predicted memory of ``plan`` by kind; a value that was fetched is kept.

    >>> from remat_explorer.instances import linear
    >>> holdings(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])).total.tolist()
    [1, 2, 3]
    """
    graph, bytes_of = plan.graph, plan.graph.value_bytes.tolist()
    freed_in = _stages_of_death(plan)
    kind_of: dict[int, int] = {}
    held = [0, 0, 0]  # kept, temporaries, gradients
    rows, statements, stages = [], [], []
    for i, statement in enumerate(plan.statements):
        if isinstance(statement, Free):
            held[kind_of.pop(statement.value)] -= bytes_of[statement.value]
            continue
        if isinstance(statement, Fetch):
            kind_of[statement.value] = 0
            held[0] += bytes_of[statement.value]
        if not isinstance(statement, Compute):
            continue
        node = graph.operations[statement.operation]
        way = node.implementations[statement.implementation - 1]
        dropped = sum(bytes_of[v] for v in statement.drops)
        if statement.overwrites is not None:
            held[kind_of.pop(statement.overwrites)] -= bytes_of[statement.overwrites]
        for v in way.outputs:
            if v in statement.drops:
                continue
            backward = node.phase == "backward"
            kind_of[v] = 2 if backward else 0 if freed_in[i, v] > statement.stage else 1
            held[kind_of[v]] += bytes_of[v]
        rows.append((held[0], held[1] + way.workspace + dropped, held[2]))
        statements.append(i)
        stages.append(statement.stage)
    kept, temporaries, gradients = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    resident = np.full(len(rows), graph.resident_bytes, dtype=np.int64)
    return Holdings(np.array(statements), np.array(stages), resident, kept, temporaries, gradients)


def _stages_of_death(plan: AnyPlan) -> dict[tuple[int, int], int]:
    """For each (statement, value) that creates a version, the stage in which it ends; persistent ones outlive all."""
    last_stage = plan.statements[-1].stage + 1
    death: dict[tuple[int, int], int] = {}
    next_free: dict[int, int] = {}
    for i in range(len(plan.statements) - 1, -1, -1):
        statement = plan.statements[i]
        if isinstance(statement, Compute):
            way = plan.graph.operations[statement.operation].implementations[statement.implementation - 1]
            for v in way.outputs:
                death[i, v] = next_free.pop(v, last_stage)
            if statement.overwrites is not None:
                next_free[statement.overwrites] = statement.stage
        elif isinstance(statement, Fetch):
            next_free.pop(statement.value, None)
        elif isinstance(statement, Free):
            next_free[statement.value] = statement.stage
    return death


KINDS = ("resident", "kept", "temporaries", "gradients", "recomputed", "fetched")
_COLOURS = {"recomputed": "recompute", "fetched": "sent"}


@dataclass(frozen=True)
class Piece:
    """A rectangle, or the part of it in which it holds one value.

    Attributes:
        rectangle: its index.
        begin, end: statements, half-open.
        value: the value; -1 for resident bytes and workspace.
        kind: an entry of `KINDS`: those of the memory timeline, values that are computed again, and values that were
            on the host.
    """

    rectangle: int
    begin: int
    end: int
    value: int
    kind: str


def rectangles_of(plan: AnyPlan) -> Rectangles:
    """The rectangles of a plan on the device; a value that is fetched begins another one.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload import Transfers
    >>> events = [("compute", 0, 0), ("send", 0, 0), ("compute", 1, 1), ("fetch", 2, 0), ("compute", 2, 2)]
    >>> found = rectangles_of(TransferPlan.from_events(linear(1), Transfers(1, 1), events))
    >>> found.begin.tolist(), found.end.tolist(), found.values
    ([0, 2, 4, 5], [3, 7, 6, 8], ((0,), (1,), (0,), (2,)))
    """
    if isinstance(plan, Plan):
        return Rectangles.of(plan)
    on_device = (one if isinstance(one, Compute | Free) else Free(one.stage, _NOBODY) for one in plan.statements)
    arrivals = {i: one.value for i, one in enumerate(plan.statements) if isinstance(one, Fetch)}
    return Rectangles.of(Plan(plan.graph, tuple(on_device)), arrivals)


_NOBODY = -1  # a value that no plan holds


def pieces_of(plan: AnyPlan, rectangles: Rectangles) -> Iterator[Piece]:
    """The pieces of a plan's rectangles, in their order.

    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> [(piece.begin, piece.end, piece.value, piece.kind) for piece in pieces_of(plan, Rectangles.of(plan))]
    [(0, 3, 0, 'kept'), (1, 4, 1, 'gradients'), (2, 5, 2, 'gradients')]
    """
    for r, (values, since) in enumerate(zip(rectangles.values, rectangles.since, strict=True)):
        begin, end = int(rectangles.begin[r]), int(rectangles.end[r])
        if not values:
            resident = r == 0 and plan.graph.resident_bytes > 0
            yield Piece(r, begin, end, -1, "resident" if resident else "temporaries")
        for v, first, last in zip(values, since, (*since, end)[1:], strict=True):
            yield Piece(r, first, last, v, _kind(plan, first, last))


def colour_of(kind: str, palette: Palette) -> str:
    """The colour of a kind, as ``#rrggbb``."""
    return getattr(palette, _COLOURS.get(kind, kind))


def _kind(plan: AnyPlan, begin: int, end: int) -> str:
    """The kind of a value that one statement computes and another ends."""
    statement = plan.statements[begin]
    if isinstance(statement, Fetch):
        return "fetched"
    if isinstance(statement, Compute):
        if not statement.first:
            return "recomputed"
        if plan.graph.operations[statement.operation].phase == "backward":
            return "gradients"
    later = end >= len(plan.statements) or plan.statements[end].stage > statement.stage
    return "kept" if later else "temporaries"


@memoize_by_identity
def schedule_of(plan: TransferPlan) -> Schedule:
    """What a plan that sends values computes, as a schedule: what its S retains is on the device or on the host.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload import Transfers
    >>> events = [("compute", 0, 0), ("send", 0, 0), ("compute", 1, 1), ("fetch", 2, 0), ("compute", 2, 2)]
    >>> schedule_of(TransferPlan.from_events(linear(1), Transfers(1, 1), events)).S.astype(int).tolist()
    [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    """
    rows = [(one.stage, one.operation, one.implementation) for one in plan.statements if isinstance(one, Compute)]
    return Schedule.leanest(plan.graph, plan.graph.stages, Computations.of(rows))


@dataclass(frozen=True)
class Lane:
    """What an engine for copies does, beside the computations of a plan.

    Places are counted in computations: 2.5 is the middle of the third. While computing waits, no place goes by.

    Attributes:
        name: the way that it copies.
        busy: of each copy its value, begin, end, and what it takes in the unit of the graph's costs.
        stalled: begin and end of each time in which its next copy is due and waits, for room or for another copy.
    """

    name: str
    busy: tuple[tuple[int, float, float, float], ...]
    stalled: tuple[tuple[float, float], ...]


def lanes_of(plan: TransferPlan) -> tuple[Lane, Lane]:
    """The lanes of the copies out and back.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload import Transfers
    >>> events = [("compute", 0, 0), ("send", 0, 0), ("compute", 1, 1), ("fetch", 2, 0), ("compute", 2, 2)]
    >>> out, back = lanes_of(TransferPlan.from_events(linear(1), Transfers(1, 1), events))
    >>> out.busy, back.busy
    (((0, 1.0, 2.0, 1.0),), ((0, 2.0, 2.0, 1.0),))
    """
    line = plan.timeline
    runs = np.array([i for i, one in enumerate(plan.statements) if isinstance(one, Compute)], dtype=np.int64)
    starts, ends = line.start[runs], line.end[runs]

    def place(time: float) -> float:
        run = int(np.searchsorted(ends, time, side="right"))
        if run == len(ends) or time <= starts[run]:
            return float(run)
        return run + float((time - starts[run]) / (ends[run] - starts[run]))

    def lane(name: str, kind: type) -> Lane:
        busy, stalled = [], []
        before = computed = 0.0
        for i, one in enumerate(plan.statements):
            start, end = float(line.start[i]), float(line.end[i])
            if isinstance(one, Compute):
                computed = end
            elif isinstance(one, kind):
                due = min(max(before, computed), start)
                if place(due) < place(start):
                    stalled.append((place(due), place(start)))
                busy.append((one.value, place(start), place(end), end - start))
                before = end
        return Lane(name, tuple(busy), tuple(stalled))

    return lane("to the host", Send), lane("back", Fetch)


def waits_of(plan: TransferPlan) -> list[tuple[int, float]]:
    """The computations that begin later than the one before ends, each with how much later."""
    line, found, before = plan.timeline, [], 0.0
    runs = [i for i, one in enumerate(plan.statements) if isinstance(one, Compute)]
    for c, i in enumerate(runs):
        wait = float(line.start[i]) - before
        if wait > _SAME * plan.makespan:
            found.append((c, wait))
        before = float(line.end[i])
    return found


_SAME = 1e-9  # of the makespan, which is rounded


@dataclass(frozen=True)
class Journey:
    """A value's way to the host and back: the stages in which it is sent, freed on the device, and fetched."""

    value: int
    sent: int
    freed: int
    fetched: int


def journeys_of(plan: TransferPlan) -> list[Journey]:
    """Every journey of a plan, in the order of their ends.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload import Transfers
    >>> events = [("compute", 0, 0), ("send", 0, 0), ("compute", 1, 1), ("fetch", 2, 0), ("compute", 2, 2)]
    >>> journeys_of(TransferPlan.from_events(linear(1), Transfers(1, 1), events))
    [Journey(value=0, sent=0, freed=1, fetched=2)]
    """
    sent: dict[int, int] = {}
    freed: dict[int, int] = {}
    found = []
    for one in plan.statements:
        if isinstance(one, Send):
            sent[one.value] = one.stage
        elif isinstance(one, Free):
            freed[one.value] = one.stage
        elif isinstance(one, Fetch):
            found.append(Journey(one.value, sent[one.value], freed[one.value], one.stage))
    return found


def widest_journey(plan: TransferPlan) -> Journey | None:
    """The journey of the largest value, of equal ones the longest; None if nothing travels."""
    sizes = plan.graph.value_bytes
    return max(journeys_of(plan), key=lambda way: (sizes[way.value], way.fetched - way.freed), default=None)


ACROSS, UP = 30, 16  # places that can be pointed at, of a rectangle that fills the map
SEAM, MOST_SEAM = 1 / 600, 0.1  # space over each rectangle, as a share of the arena, and of the rectangle at most
THIN = 1 / 250  # of the arena; what is thinner has one place
ROOM = 1.04  # of the arena, up to which the memory axis goes


def memory_map(plan: AnyPlan, arena: Arena | None = None, theme: Theme = "light") -> Figure:
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

    expected = rectangles_of(plan)
    if arena is None:
        arena = predict_pool(plan) if isinstance(plan, Plan) else place_rectangles(expected, ALIGNMENT)
    found = arena.rectangles
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


def _text(plan: AnyPlan, piece: Piece, arena: Arena) -> str:
    """What is said where a piece is pointed at, as HTML."""
    r, begin, end = piece.rectangle, piece.begin, piece.end
    place = f"{format_bytes(int(arena.rectangles.size[r]))} from {format_bytes(int(arena.offsets[r]))} on"
    if piece.kind == "resident":
        return f"resident bytes<br>{place}, over the whole plan"
    if piece.value < 0:
        running: Any = plan.statements[begin]
        return f"workspace<br>{place}<br>statement {begin}: {in_figure(plan.text(running))}"
    origins = {"recomputed": "computed again", "fetched": "back from the host"}
    again = origins.get(piece.kind, "computed for the first time")
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
    plan: AnyPlan, pieces: list[Piece], arena: Arena, axis: ByteAxis, length: int
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
