"""The page of the arena: every method on every graph, in one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from remat_explorer.documents import write_text
from remat_explorer.figures.judged import distance_heat_map, judged_curves
from remat_explorer.judging import Verdict
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.report.contents import drawing
from remat_explorer.report.html import facts, paragraph, table, whole_page

HERE = Path(__file__).parent
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
        verdicts: as `remat_explorer.judging.judge` gives them, of any graphs.
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
    script = (HERE / "drawing.js").read_text(encoding="utf-8") + 'keepDrawn();\ndocument.body.dataset.ready = "yes";\n'
    return whole_page(
        TITLE,
        (HERE / "report.css").read_text(encoding="utf-8"),
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
