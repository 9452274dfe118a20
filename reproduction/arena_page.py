"""The page of what was judged: every method on every graph, in one HTML file that needs no network, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remat_explorer.documents import write_text
from remat_explorer.figures import ByteAxis, Theme, mark
from remat_explorer.figures.palette import palette
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.report import drawing, facts, paragraph, table, whole_page
from reproduction.judge import OURS, Verdict

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


REPORT = files("remat_explorer.report")  # its script and style
TITLE = "Every method on one meter"
READING = (
    "A cell is what a method costs above our schedule within the same peak, at the budget at which that is most. * "
    "some budget is exceeded in every setting, or there is no schedule within it; × that is so at all budgets, or the "
    "method is not for this graph. Ours needs no more memory, so this much is lost for certain; where ours is proven "
    "optimal, it is the distance from the optimum."
)


def write_arena(
    verdicts: Sequence[Verdict],
    path: str | Path,
    executed: Sequence[Mapping[str, Any]] = (),
    reported: Sequence[Mapping[str, Any]] = (),
    about: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write the page of what was judged.

    Args:
        verdicts: as `reproduction.judge` gives them, of any graphs.
        path: where to write it; what is there is replaced.
        executed: what ran, each with model, method, measured_peak, time_over_eager, gradients_equal, buffers_equal;
            None where it is not known.
        reported: PyTorch's memory budget beside ours, each with share, torch, budget and ours, as bytes.
        about: names and values of machine and versions.

    Returns:
        ``path``.

    Raises:
        OSError: if the folder does not exist or cannot be written.
    """
    return write_text(path, arena_page(verdicts, executed, reported, about))


def arena_page(
    verdicts: Sequence[Verdict],
    executed: Sequence[Mapping[str, Any]] = (),
    reported: Sequence[Mapping[str, Any]] = (),
    about: Sequence[tuple[str, str]] = (),
) -> str:
    """The page as HTML; arguments are those of `write_arena`.

    >>> page = arena_page([Verdict("g", "<m>", 8, 1.0, 1.5, 8, bound=1.0, ours=1.2, ours_peak=8)])
    >>> page[:15], "<m>" in page
    ('<!doctype html>', False)
    """
    from plotly.offline import get_plotlyjs

    graphs = list(dict.fromkeys(v.graph for v in verdicts))
    sections = [("Distance from the optimum", paragraph(READING) + _heat_map(verdicts))]
    sections += [(f"Curves: {graph}", _curves(i, graph, verdicts)) for i, graph in enumerate(graphs)]
    sections += [("Above the budget", _exceeded(verdicts))]
    sections += [("Executed: gradients and buffers", _executed(executed))] if executed else []
    sections += [("PyTorch's memory budget, measured", _reported(reported))] if reported else []
    sections += [("Rows", _rows(verdicts)), ("Set-up", facts(about))]
    links = "".join(f'<a href="#part-{i}">{escape(title)}</a>' for i, (title, _) in enumerate(sections))
    body = "".join(
        f'<section id="part-{i}"><h2>{escape(title)}</h2>{inner}</section>' for i, (title, inner) in enumerate(sections)
    )
    script = (REPORT / "drawing.js").read_text(
        encoding="utf-8"
    ) + 'keepDrawn();\ndocument.body.dataset.ready = "yes";\n'
    return whole_page(
        TITLE,
        (REPORT / "report.css").read_text(encoding="utf-8"),
        f"<header><h1>{TITLE}</h1><nav>{links}</nav></header><main>{body}</main>",
        {"plotly": get_plotlyjs(), "script": script},
        ["plotly", "script"],
    )


def _heat_map(verdicts: Sequence[Verdict]) -> str:
    return drawing("heat-map", lambda theme: distance_heat_map(verdicts, theme), READING, broad=True)


def _curves(i: int, graph: str, verdicts: Sequence[Verdict]) -> str:
    own = [v for v in verdicts if v.graph == graph]
    label = f"overhead against peak memory of every method on {graph}"
    return drawing(f"curves-{i}", lambda theme: judged_curves(own, theme), label, broad=True)


def _exceeded(verdicts: Sequence[Verdict]) -> str:
    """Who has schedules, but none within a budget."""
    rows = [
        (v.graph, v.method, format_bytes(v.budget), format_bytes(v.peak), f"{100 * (v.peak / v.budget - 1):.1f} %")
        for v in verdicts
        if v.kept is False and v.peak is not None
    ]
    if not rows:
        return paragraph("Nobody.")
    said = f"{len(rows)} of {len(verdicts)} rows: the smallest peak of all settings is above the budget."
    heads = ("graph", "method", " budget", " smallest peak", " above it by")
    return paragraph(said) + f'<div class="tall">{table(heads, rows)}</div>'


def _executed(executed: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            str(entry["model"]),
            str(entry["method"]),
            "" if entry["measured_peak"] is None else format_bytes(entry["measured_peak"]),
            "" if entry["time_over_eager"] is None else format_overhead(entry["time_over_eager"]),
            *({True: "equal", False: "CHANGED", None: ""}[entry[key]] for key in ("gradients_equal", "buffers_equal")),
        )
        for entry in executed
    ]
    changed = list(dict.fromkeys(str(e["method"]) for e in executed if e["gradients_equal"] is False))
    said = f"Gradients changed by: {', '.join(changed) or 'nobody'}. Equal means bit for bit, dropout included."
    return paragraph(said) + table(("model", "method", " measured peak", " time", "gradients", "buffers"), rows)


def _reported(reported: Sequence[Mapping[str, Any]]) -> str:
    said = (
        "The model of pytorch issue 197838. PyTorch's setting is a share of the bytes kept from the forward to the "
        "backward pass; ours is a budget in bytes, the same share between the smallest and keeping everything."
    )
    rows = [
        (f"{entry['share']:.2f}", *(format_bytes(entry[key]) for key in ("torch", "budget", "ours")))
        for entry in reported
    ]
    heads = (" setting", " PyTorch, measured peak", " our budget", " ours, measured peak")
    return paragraph(said) + table(heads, rows)


def _rows(verdicts: Sequence[Verdict]) -> str:
    def percent(share: float | None) -> str:
        return "" if share is None else f"{100 * share:.2f} %"

    rows = [
        (
            v.graph,
            v.method,
            format_bytes(v.budget),
            v.problem[:80] if v.peak is None else format_bytes(v.peak),
            "" if v.overhead is None else format_overhead(v.overhead),
            percent(v.at_least),
            percent(v.at_most),
            v.status or "",
            "" if v.kept is None else "yes" if v.kept else "NO",
        )
        for v in verdicts
    ]
    heads = ("graph", "method", " budget", " peak", " overhead", " above ours", " above the bound", "ours is", "kept")
    return f'<details><summary>{len(rows)} rows</summary><div class="tall">{table(heads, rows)}</div></details>'
