"""The model as a picture: what it computes, how large it is, and what one stage of a schedule does with it.

Repeated blocks are folded: one box on either rail of the snake for all copies of a block.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from remat_explorer.errors import GraphError, ScheduleError
from remat_explorer.figures.palette import Palette, Theme, palette
from remat_explorer.figures.schedule_heatmap import BACKWARD, EMPTY, FORWARD, RECOMPUTE, computation_kinds
from remat_explorer.figures.snake import SnakePicture, arc, extent, kept_share, snake_layout, snake_picture, turns
from remat_explorer.graph import Graph, Operation, RepeatedBlocks, Value, operation
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes, format_seconds
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


WIDE = 6  # columns of a folded block


def folded_picture(graph: Graph, blocks: Sequence[RepeatedBlocks]) -> SnakePicture | None:
    """Boxes of all operations, where those of a folded block and pass share one, as high as their largest.

    Args:
        graph: n operations.
        blocks: what is folded.

    Returns:
        The picture; its layout is that of the folded graph, but for ``skips``, which name operations of ``graph``, the
        first of a block for the block. None where operations between the copies of a block read and are read by them.

    >>> from remat_explorer.graph.repeated_blocks import repeated_blocks
    >>> from remat_explorer.instances import linear
    >>> picture = folded_picture(linear(8), repeated_blocks(linear(8)))
    >>> picture.boxes[1].tolist() == picture.boxes[7].tolist() != picture.boxes[0].tolist()
    True
    """
    try:
        folded, nodes = folded_graph(graph, blocks)
    except GraphError:
        return None
    layout = snake_layout(folded)
    drawn = snake_picture(folded, layout)
    first = np.full(folded.n, -1)
    first[nodes[::-1, 0]] = np.arange(graph.n)[::-1]  # the first operation of each node
    boxes = np.stack(
        [
            np.minimum(drawn.boxes[nodes[:, 0], 0], drawn.boxes[nodes[:, 1], 0]),
            drawn.boxes[nodes[:, 0], 1],
            np.maximum(drawn.boxes[nodes[:, 0], 2], drawn.boxes[nodes[:, 1], 2]),
            drawn.boxes[nodes[:, 0], 3],
        ],
        axis=1,
    )
    for a in np.flatnonzero(first < 0):  # the rest of a wide box
        first[a] = first[a - 1]
    skips = np.unique(first[layout.skips], axis=0) if len(layout.skips) else layout.skips
    return replace(drawn, boxes=boxes, layout=replace(layout, skips=skips[skips[:, 0] != skips[:, 1]]))


def folded_graph(graph: Graph, blocks: Sequence[RepeatedBlocks]) -> tuple[Graph, np.ndarray]:
    """A graph whose operations are those of ``graph``, and one or several for a folded block and pass.

    Returns:
        The graph, and the first and the last of its operations that each one of ``graph`` is in, int of shape (n, 2).

    Raises:
        GraphError: if there is no order in which what is folded runs at once.
    """
    block_of, last = np.full((graph.n, 2), -1), {}
    for number, block in enumerate(blocks):
        for phase, operations in enumerate((block.forward, block.backward)):
            block_of[operations] = (number, phase)
            last[number, phase] = int(operations.max(initial=-1))
    values: list[Value] = []
    made: list[Operation] = []
    nodes = np.zeros((graph.n, 2), dtype=np.int64)
    of_value: dict[int, int] = {}
    forward: dict[int, int] = {}  # the value of each block's box in the forward pass

    def add(name: str, phase: int, reads: list[int], size: int) -> None:
        values.append(Value(name, size))
        made.append(operation(name, "backward" if phase else "forward", reads, [len(values) - 1], 1))

    for k, node in enumerate(graph.operations):
        number, phase = block_of[k].tolist()
        if number < 0:
            reads, writes = _read(graph, [k], of_value), graph.outputs(k)
            add(node.name, int(graph.is_backward[k]), reads, int(graph.value_bytes[list(writes)].sum()))
            of_value |= dict.fromkeys(_written(graph, k), len(values) - 1)
            nodes[k] = len(made) - 1
            continue
        if k != last[number, phase]:
            continue
        members = (blocks[number].backward if phase else blocks[number].forward).ravel().tolist()
        size = max(int(graph.value_bytes[list(graph.outputs(member))].sum()) for member in members)
        inside = {v for member in members for v in _written(graph, member)}
        reads = _read(graph, members, of_value, inside)
        begin = len(made)
        for part in range(WIDE if phase else 1):
            under = [forward[number]] if phase else []  # it stands under the block's box of the forward pass
            add(
                f"{blocks[number].label} × {blocks[number].copies}",
                phase,
                sorted({*under, *reads}) if part == 0 else under,
                size,
            )
        forward.setdefault(number, len(values) - 1)
        of_value |= dict.fromkeys(inside, len(values) - 1)
        nodes[members] = begin, len(made) - 1
    return Graph(graph.name, tuple(values), tuple(made)), nodes


def _written(graph: Graph, k: int) -> list[int]:
    return [v for way in graph.operations[k].implementations for v in way.outputs]


def _read(graph: Graph, members: list[int], of_value: dict[int, int], inside: Set[int] = frozenset()) -> list[int]:
    read = {v for k in members for v in graph.inputs(k)} - inside
    if missing := [v for v in read if v not in of_value]:
        raise GraphError(f"{graph.names(sorted(missing)[:1])} is written between copies of a block that is folded")
    return sorted({of_value[v] for v in read})


WIDTH, MARGIN = 1100, 24  # pixels for which names are chosen, and beside the rails
ASPECT = 3.0  # higher than in the explorer: a figure has the page to itself
MANY = 60  # arcs from which on they are drawn thin
PALE = 0.25  # opacity of what does not run in the stage


def model_graph(
    graph: Graph, schedule: Schedule | None = None, stage: int | None = None, theme: Theme = "light"
) -> Figure:
    """Forward operations on one rail, backward operations below on another, wrapped like a snake.

    The height of a box is the square root of the bytes that its operation writes. Without a stage, the depth of its
    colour is the square root of its cost; with one, what runs in it has full colour, and what was kept into it is
    filled.

    Args:
        graph: n operations.
        schedule: a schedule of ``graph``, or None.
        stage: the stage of ``schedule`` to show, or None.
        theme: ground of the figure, "light" or "dark".

    Raises:
        ScheduleError: if the stage is not one of the schedule, or is given without a schedule.

    >>> from remat_explorer.instances import linear
    >>> [trace.name for trace in model_graph(linear(3)).data if trace.showlegend]
    ['forward', 'backward']
    """
    from plotly import graph_objects as go

    _check(schedule, stage)
    colours, layout = palette(theme), snake_layout(graph, aspect=ASPECT)
    height = 130 * layout.rows + 40 if layout.rows < 4 else 90 * layout.rows
    picture = snake_picture(graph, layout, WIDTH, height)
    figure = go.Figure()
    _add_rails(figure, picture, colours)
    _add_arcs(figure, picture, colours)
    texts = _descriptions(graph)
    if schedule is None or stage is None:
        depth = np.sqrt(graph.costs / max(graph.costs.max(initial=0.0), 1e-30))
        shown = {"forward": (FORWARD, colours.forward), "backward": (BACKWARD, colours.backward)}
        kinds, opacity = np.where(graph.is_backward, BACKWARD, FORWARD), 0.3 + 0.7 * depth
    else:
        pale = np.where(graph.is_backward, colours.backward, colours.forward)
        _add_boxes(figure, picture, np.arange(graph.n), "not in this stage", pale, PALE, texts)
        figure.data[-1].showlegend = False
        _add_kept(figure, picture, graph, schedule.S[stage], colours)
        kinds, opacity = computation_kinds(schedule)[stage], np.ones(graph.n)
        shown = {
            "forward": (FORWARD, colours.forward),
            "backward": (BACKWARD, colours.backward),
            "recompute": (RECOMPUTE, colours.recompute),
        }
    for name, (kind, colour) in shown.items():
        chosen = np.flatnonzero(kinds == kind)
        _add_boxes(figure, picture, chosen, name, colour, opacity[chosen], texts)
    _add_names(figure, picture, colours)
    _style(figure, picture, colours, height, _title(graph, schedule, stage))
    return figure


def _check(schedule: Schedule | None, stage: int | None) -> None:
    if stage is None:
        return
    if schedule is None:
        raise ScheduleError(f"stage {stage} was given without a schedule; give the schedule, too")
    if not 0 <= stage < schedule.stages:
        raise ScheduleError(f"there is no stage {stage}; the schedule has stages 0 to {schedule.stages - 1}")


def _title(graph: Graph, schedule: Schedule | None, stage: int | None) -> str:
    if schedule is None or stage is None:
        return f"{in_figure(graph.name)}: height is bytes written, depth of colour is cost"
    kinds = computation_kinds(schedule)[stage]
    new, again, kept = int((kinds != EMPTY).sum()), int((kinds == RECOMPUTE).sum()), int(schedule.S[stage].sum())
    name = in_figure(graph.name)
    return f"{name}, stage {stage}: {new - again} computed first, {again} recomputed, {kept} values kept into it"


def _descriptions(graph: Graph) -> np.ndarray:
    """What the hover says of each operation."""
    return np.array(
        [
            f"<b>{in_figure(node.name)}</b><br>operation {k}, {node.phase}<br>"
            f"writes {format_bytes(int(graph.value_bytes[list(node.default.outputs)].sum()))}, "
            f"costs {_cost(node.default.cost)}"
            for k, node in enumerate(graph.operations)
        ],
        dtype=object,
    )


def _cost(cost: float) -> str:
    """Costs of captured graphs are seconds; those of the teaching graphs are whole units."""
    return f"{cost:g}" if cost == int(cost) else format_seconds(cost)


def _add_boxes(figure: Figure, picture: SnakePicture, chosen, name, colour, opacity, texts) -> None:
    left, top, right, bottom = picture.boxes[chosen].T
    figure.add_bar(
        x=(left + right) / 2,
        y=bottom - top,
        base=top,
        width=(right - left) * 0.92,
        name=name,
        marker={"color": colour, "opacity": opacity, "line": {"width": 0}},
        text=texts[chosen],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
        showlegend=True,
    )


def _add_kept(figure: Figure, picture: SnakePicture, graph: Graph, kept: np.ndarray, colours: Palette) -> None:
    """The kept share of a box, filled from the band of names outwards."""
    share = kept_share(graph, kept)
    chosen = np.flatnonzero(share > 0)
    left, top, right, bottom = picture.boxes[chosen].T
    height = share[chosen] * (bottom - top)
    figure.add_bar(
        x=(left + right) / 2,
        y=height,
        base=np.where(picture.layout.rail[chosen] == 0, bottom - height, top),
        width=(right - left) * 0.92,
        name="kept into the stage",
        marker={"color": colours.kept, "line": {"width": 0}},
        hoverinfo="skip",
        showlegend=True,
    )


def _add_arcs(figure: Figure, picture: SnakePicture, colours: Palette) -> None:
    """Every edge that passes over operations, as one trace."""
    curves = [arc(picture, a, b) for a, b in picture.layout.skips.tolist()]
    many = len(curves) > MANY
    _add_curves(figure, curves, colours.ink, 0.8 if many else 1.4, 0.3 if many else 0.6)


def _add_rails(figure: Figure, picture: SnakePicture, colours: Palette) -> None:
    """The two lines that the boxes stand on, and their turns."""
    bulge = 0.7 * MARGIN * picture.layout.columns / WIDTH
    bends = turns(picture, bulge)
    for rail, (y, colour) in enumerate(((picture.lanes[1], colours.forward), (picture.lanes[2], colours.backward))):
        ends = [(row, *extent(picture, row)) for row in range(picture.layout.rows)]
        lines = [np.linspace((start, row + y), (end, row + y), 4) for row, start, end in ends]
        _add_curves(figure, lines + [bend for on, bend in bends if on == rail], colour, 1.6, 0.8)


def _add_curves(figure: Figure, curves: list[np.ndarray], colour: str, width: float, opacity: float) -> None:
    """Cubic Bezier curves, each float of shape (4, 2), as one trace."""
    t = np.linspace(0, 1, 25)[:, None]
    weights = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    gap = np.full((1, 2), np.nan)
    points = np.vstack([part for curve in curves for part in (weights @ curve, gap)] or [gap])
    figure.add_scatter(
        x=points[:, 0],
        y=points[:, 1],
        mode="lines",
        line={"color": colour, "width": width},
        opacity=opacity,
        hoverinfo="skip",
        showlegend=False,
    )


def _add_names(figure: Figure, picture: SnakePicture, colours: Palette) -> None:
    _, upper, lower, _ = picture.lanes
    first = min((label.line for label in picture.labels), default=0)
    step = (lower - upper) / max(picture.lines, 1)
    figure.add_scatter(
        x=[(label.left + label.right) / 2 for label in picture.labels],
        y=[label.row + upper + (label.line - first + 0.5) * step for label in picture.labels],
        text=[in_figure(label.text) for label in picture.labels],
        mode="text",
        textfont={"size": 10, "color": colours.ink},
        hoverinfo="skip",
        showlegend=False,
    )


def _style(figure: Figure, picture: SnakePicture, colours: Palette, height: int, title: str) -> None:
    hidden = {"visible": False, "showgrid": False, "zeroline": False}
    beside = MARGIN * picture.layout.columns / WIDTH
    figure.update_xaxes(range=[-beside, picture.layout.columns + beside], **hidden)
    figure.update_yaxes(range=[picture.layout.rows + 0.02, -0.02], **hidden)
    figure.update_layout(
        title={"text": title, "font": {"size": 15}, "x": 0.02},
        barmode="overlay",
        height=height + 90,
        margin={"l": 8, "r": 8, "t": 50, "b": 40},
        paper_bgcolor=colours.ground,
        plot_bgcolor=colours.ground,
        font_color=colours.ink,
        hoverlabel=colours.hover,
        legend={"orientation": "h", "x": 0.02, "y": -0.02, "yanchor": "top", "traceorder": "normal"},
    )
