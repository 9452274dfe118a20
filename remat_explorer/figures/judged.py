"""Methods that were judged: how far each is from the optimum on every graph, and their curves on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.tradeoff import mark
from remat_explorer.judging import OURS, Verdict
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_overhead

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FAR = 0.25  # distance from the optimum at which the scale ends
LOWEST_TOP = 40.0  # per cent of overhead that curves show at least; what is above lies on the edge


def worst(verdicts: Sequence[Verdict]) -> Verdict | None:
    """The verdict of a method on a graph that is farthest from the optimum, of those that keep the budget.

    >>> near = Verdict("g", "m", 10, 1.0, 1.0, 9, bound=1.0, ours=1.0)
    >>> far = Verdict("g", "m", 8, 1.0, 1.5, 8, bound=1.0, ours=1.2)
    >>> worst([near, far]) is far
    True
    """
    known = [v for v in verdicts if v.kept and v.at_least is not None]
    return max(known, key=lambda v: v.at_least or 0.0, default=None)


def distance_heat_map(verdicts: Sequence[Verdict], theme: Theme = "light") -> Figure:
    """The distance from the optimum, method by graph, at the budget at which it is largest.

    A cell has what is lost for certain, in per cent: the excess over our schedule within the same peak. An asterisk
    stands where some budget is exceeded in every setting, or there is no schedule; a cross where that is so at all.

    Args:
        verdicts: of any methods and graphs.
        theme: ground of the figure.

    >>> figure = distance_heat_map([Verdict("g", "m", 8, 1.0, 1.5, 8, bound=1.0, ours=1.2, ours_peak=8)])
    >>> figure.data[0].text[0][0]
    '25'
    """
    from plotly import graph_objects as go

    graphs = list(dict.fromkeys(v.graph for v in verdicts))
    methods = list(dict.fromkeys(v.method for v in verdicts))
    shades, texts, tips = [], [], []
    for method in methods:
        rows = [[v for v in verdicts if (v.graph, v.method) == (graph, method)] for graph in graphs]
        far = [worst(row) for row in rows]
        shades.append([None if v is None else min(FAR, v.at_least or 0.0) for v in far])
        texts.append([heat_cell(row) for row in rows])
        tips.append([_tip(v, row) for v, row in zip(far, rows, strict=True)])
    colours = palette(theme)
    scale = [(i / (len(colours.scale) - 1), shade) for i, shade in enumerate(colours.scale)]
    names = [in_figure(graph) for graph in graphs]
    figure = go.Figure(
        go.Heatmap(
            z=shades, x=names, y=methods, text=texts, texttemplate="%{text}", customdata=tips, zmin=0, zmax=FAR,
            colorscale=scale, hoverongaps=True, xgap=1, ygap=1,
            hovertemplate="%{y} on %{x}<br>%{customdata}<extra></extra>",
            colorbar={"title": {"text": "lost"}, "tickformat": ".0%"},
        )
    )  # fmt: skip
    figure.update_layout(
        height=150 + 24 * len(methods),
        margin={"t": 120, "l": 190, "b": 20},
        xaxis={"type": "category", "showgrid": False, "side": "top"},
        yaxis={"autorange": "reversed", "type": "category", "showgrid": False},
        title={  # above the names of many graphs, which are slanted
            "text": "Cost over ours within the same peak, at the worst budget (%)",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 12},
        },
        **colours.look,
        hoverlabel=colours.hover,
    )
    return figure


def judged_curves(verdicts: Sequence[Verdict], theme: Theme = "light") -> Figure:
    """Overhead against peak of every method on one graph, with ours and the bound at the same peaks.

    Args:
        verdicts: of one graph.
        theme: ground of the figure.

    >>> figure = judged_curves([Verdict("g", "m", 8, 1.0, 1.5, 8, bound=1.0, ours=1.2, ours_peak=8)])
    >>> [trace.name for trace in figure.data]
    ['bound', 'optimal', 'm']
    """
    from plotly import graph_objects as go

    colours = palette(theme)
    axis = ByteAxis.up_to(max((v.peak or 0 for v in verdicts), default=1))
    ours = {v.peak: (v.ours, v.bound, v.least) for v in verdicts if v.peak is not None and v.ours is not None}
    peaks = sorted(ours)
    figure = go.Figure()
    line = {"x": [peak / axis.bytes for peak in peaks], "mode": "lines"}
    bounds = [100 * ((ours[peak][1] or ours[peak][2]) / ours[peak][2] - 1) for peak in peaks]
    figure.add_scatter(name="bound", y=bounds, line={"color": colours.budget, "dash": "dot"}, **line)
    top = max([LOWEST_TOP, *(3 * 100 * ((cost or 0.0) / least - 1) for cost, _, least in ours.values())])
    costs = [100 * ((ours[peak][0] or 0.0) / ours[peak][2] - 1) for peak in peaks]
    figure.add_scatter(name=OURS, y=costs, line={"color": colours.ink, "width": 2}, **line)
    for method in dict.fromkeys(v.method for v in verdicts):
        points = {(v.peak, v.overhead): v for v in verdicts if v.method == method and v.peak is not None}
        if not points:
            continue
        placed = sorted(points.values(), key=lambda v: v.peak or 0)
        look = mark(method.partition(" (")[0], theme)
        figure.add_scatter(
            name=method,
            x=[(v.peak or 0) / axis.bytes for v in placed],
            y=[min(top, 100 * ((v.overhead or 1.0) - 1)) for v in placed],
            mode="markers",
            marker={
                "symbol": [look.shape + ("" if v.kept else "-open") for v in placed],
                "color": look.colour,
                "size": 9,
            },
            text=[f"overhead {format_overhead(v.overhead or 1.0)}<br>{_tip(v, [v])}" for v in placed],
            cliponaxis=False,
            hovertemplate="%{text}<extra>%{fullData.name}</extra>",
        )
    graph = next((v.graph for v in verdicts), "")
    axes = {"gridcolor": colours.grid, "zeroline": False}
    figure.update_layout(
        title=f"{in_figure(graph)}: overhead against peak memory (predicted); open: above its budget",
        height=460,
        margin={"t": 50, "b": 50},
        xaxis={**axes, "title": {"text": f"peak memory ({axis.unit})"}},
        yaxis={**axes, "title": {"text": f"overhead (%), up to {top:.0f}"}, "range": [-0.02 * top, top]},
        hovermode="closest",
        **colours.look,
        hoverlabel=colours.hover,
    )
    return figure


def heat_cell(row: Sequence[Verdict]) -> str:
    """A method on a graph, as the heat map says it.

    >>> heat_cell([Verdict("g", "m", 8, 1.0, 1.5, 8, bound=1.0, ours=1.2), Verdict("g", "m", 6, 1.0)])
    '25*'
    """
    far = worst(row)
    if far is None or far.at_least is None:
        return "×"
    missed = any(not v.kept for v in row)
    lost = f"{100 * far.at_least:.{0 if far.at_least >= 0.0995 else 1}f}"
    return lost.replace("-0.0", "0.0") + "*" * missed


def _tip(far: Verdict | None, row: Sequence[Verdict]) -> str:
    """A verdict in words, as HTML of a figure."""
    if far is None:
        return in_figure(next((v.problem for v in row if v.problem), "above every budget"))[:90]
    at_most = "no bound" if far.at_most is None else f"at most {100 * far.at_most:.2f} %"
    lost = "" if far.at_least is None else f"<br>{100 * far.at_least:.2f} % above ours, {at_most}"
    setting = f"<br>{in_figure(far.label)}" if far.label else ""
    return f"peak {far.peak:,} of {far.budget:,} bytes{lost}{setting}"
