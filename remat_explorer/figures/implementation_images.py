"""Which implementation runs where: R in the colours of kinds, as a picture, beside the number of their runs.

A kind has the same colour everywhere, one that colour-blind people can tell apart: the hues of Okabe and Ito, "Color
Universal Design" (2008), without their oranges, which are for recomputation, and hues of Paul Tol. There are more kinds
than hues: kinds that no model has together, or that do nearly the same, share a hue and differ in lightness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from remat_explorer.explanations import OWN, kinds_in, kinds_of_codes, label_of
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.schedule_images import lay_out, legend_squares, matrix_image
from remat_explorer.plain_text import in_figure
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


LIGHT = {
    "": "#B5B5B5",
    "masks": "#882255",
    "activations": "#8A5F00",
    "replay": "#7A4B2A",
    "pooling": "#009E73",
    "attention": "#005E45",
    "statistics": "#56B4E9",
    "input-gradients": "#0072B2",
    "lean": "#EFB7C8",
    "output-activated": "#332288",
    "cross-entropy": "#5D3A9B",
    "chunks": "#CC79A7",
    "algorithms": "#D9C700",
}
DARK = LIGHT | {
    "": "#6B6F76",
    "activations": "#A87B1E",
    "replay": "#9C6B45",
    "pooling": "#00B386",
    "attention": "#00805F",
    "input-gradients": "#2A8FD0",
    "output-activated": "#7F7FD5",
    "masks": "#C2487F",
    "lean": "#F5CEDA",
    "cross-entropy": "#A68CE8",
    "chunks": "#E59CC5",
    "algorithms": "#F0E442",
}
OTHERS = ("#999933", "#44AA99", "#AA4499", "#117733")  # for kinds that a graph names by itself


def implementation_colours(kinds: Iterable[str], theme: Theme = "light") -> dict[str, str]:
    """A colour as ``#rrggbb`` for each kind; "" is the default implementation.

    >>> implementation_colours(["", "masks", "by hand"])
    {'': '#B5B5B5', 'masks': '#882255', 'by hand': '#999933'}
    """
    fixed, colours, unknown = LIGHT if theme == "light" else DARK, {}, 0
    for kind in kinds:
        if kind in fixed:
            colours[kind] = fixed[kind]
        else:
            colours[kind] = OTHERS[unknown % len(OTHERS)]
            unknown += 1
    return colours


@dataclass(frozen=True)
class Use:
    """How often a schedule runs the implementations of one name and kind.

    Attributes:
        kind: that it is for, "" for PyTorch's own.
        name: of the implementation.
        operations: that it runs for.
        runs: of these together, recomputations among them.
        tolerance: the largest relative error of its results, 0 where they are equal bit for bit.
    """

    kind: str
    name: str
    operations: int
    runs: int
    tolerance: float


def kinds_run(schedule: Schedule) -> np.ndarray:
    """What each cell of R is of: 0 where nothing runs, else 1 plus the place of its kind in ``("", *kinds_in(graph))``.

    >>> from remat_explorer.instances import linear
    >>> kinds_run(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))).tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    """
    graph = schedule.graph
    place = {kind: i for i, kind in enumerate((OWN, *kinds_in(graph)), start=1)}
    codes = np.zeros((graph.n, 1 + max(len(node.implementations) for node in graph.operations)), dtype=np.uint8)
    for k, kinds in enumerate(kinds_of_codes(graph)):
        codes[k, 1 : 1 + len(kinds)] = [place[kind] for kind in kinds]
    return codes[np.arange(graph.n), schedule.R]


def implementations_used(schedule: Schedule) -> list[Use]:
    """What a schedule runs besides the default implementations, by kind, then what runs most first.

    >>> from remat_explorer.instances import linear
    >>> implementations_used(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)))
    []
    """
    graph = schedule.graph
    order, kinds = ("", *kinds_in(graph)), kinds_of_codes(graph)
    runs: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], set[int]] = {}
    tolerance: dict[tuple[str, str], float] = {}
    for _, k, code in schedule.sequence:
        node, kind = graph.operations[k], kinds[k][code - 1]
        way = node.implementations[code - 1]
        if kind == OWN:
            continue
        key = kind, node.name if node.optional else way.name
        runs[key] += 1
        where.setdefault(key, set()).add(k)
        tolerance[key] = max(tolerance.get(key, 0.0), way.tolerance)
    uses = [Use(*key, len(where[key]), count, tolerance[key]) for key, count in runs.items()]
    return sorted(uses, key=lambda use: (order.index(use.kind), -use.runs, use.name))


def implementation_images(schedule: Schedule, theme: Theme = "light") -> Figure:
    """R with a colour for each kind of implementation, and how often each kind runs, first and again.

    Args:
        schedule: of a graph with choices, R of shape (stages, operations).
        theme: ground of the figure, "light" or "dark".

    Source: the choices are those of Shah et al., Memory Optimization for Deep Networks (ICLR 2021), section 4.

    >>> from remat_explorer.instances import linear
    >>> figure = implementation_images(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)))
    >>> figure.data[0].type, list(figure.data[1].x)
    ('image', [3])
    """
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    graph, colours = schedule.graph, palette(theme)
    cells, names = kinds_run(schedule), ("", *kinds_in(graph))
    hues = implementation_colours(names, theme)
    counts = np.bincount(cells.ravel(), minlength=1 + len(names))[1:]
    there = [(i, kind, int(counts[i])) for i, kind in enumerate(names) if counts[i]]
    titles = ("R: in which implementation", "runs of each kind")
    figure = make_subplots(rows=1, cols=2, column_widths=[0.55, 0.45], horizontal_spacing=0.16, subplot_titles=titles)
    figure.add_trace(matrix_image(cells, [colours.empty, *(hues[kind] for kind in names)], "R", "operation"), 1, 1)
    bars = go.Bar(
        x=[count for _, _, count in there],
        y=[in_figure(label_of(kind)) for _, kind, _ in there],
        orientation="h",
        marker={"color": [hues[kind] for _, kind, _ in there]},
        text=[str(count) for _, _, count in there],
        hovertemplate="%{y}: %{x} runs<extra></extra>",
        showlegend=False,
    )
    figure.add_trace(bars, 1, 2)
    for square in legend_squares(cells, [(i + 1, in_figure(label_of(kind)), hues[kind]) for i, kind, _ in there]):
        figure.add_trace(square, 1, 1)
    figure.update_xaxes(title_text="operation", range=[-0.5, graph.n - 0.5], row=1, col=1)
    figure.update_xaxes(title_text="runs", rangemode="tozero", row=1, col=2)
    figure.update_yaxes(autorange="reversed", row=1, col=2)
    lay_out(figure, schedule.stages, colours)
    return figure
