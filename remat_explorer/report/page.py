"""The page: its sections, its style and its script, in one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from remat_explorer.documents import write_text
from remat_explorer.entry_checks import require_arguments
from remat_explorer.offload import TransferSolution
from remat_explorer.report.contents import Origin, ReportContents, Step
from remat_explorer.report.html import whole_page
from remat_explorer.report.sections import (
    comparison,
    curve,
    implementations,
    matrices,
    model,
    numbers,
    peak,
    search,
    sending,
    setup,
    statements,
    summary,
    timeline,
    usage,
    validation,
)
from remat_explorer.solvers import Frontier, Solution

if TYPE_CHECKING:
    from remat_explorer.runtime import Measurement

HERE = Path(__file__).parent

# A section is a function from the contents to HTML, or to "" where it has nothing to show.
SECTIONS: tuple[tuple[str, Callable[[ReportContents], str]], ...] = (
    ("Summary", summary),
    ("Memory", timeline),
    ("Trade-off", curve),
    ("Schedule", matrices),
    ("Implementations", implementations),
    ("Numbers", numbers),
    ("Validation", validation),
    ("Set-up", setup),
    ("Model", model),
    ("Comparison", comparison),
    ("Search", search),
    ("At the peak", peak),
    ("Plan", statements),
    ("Use it", usage),
)


def write_report(
    solution: Solution | TransferSolution,
    path: str | Path,
    *,
    measurement: Measurement | None = None,
    frontier: Frontier | None = None,
    history: Sequence[Step] | None = None,
    other: Solution | None = None,
    source: Origin | None = None,
) -> Path:
    """Write one HTML file, atomically, that shows a solution and holds its graph and its schedule.

    It needs no network and nothing beside it: figures can be hovered over and zoomed into, and the files in it saved.

    Args:
        solution: what the report is about; without a schedule the report says why there is none. Of a plan that sends
            values the report has the predicted times of its copies.
        path: where to write it; what is there is replaced.
        measurement: of that solution, as `remat_explorer.measure` gives it.
        frontier: the trade-off curve, as `remat_explorer.sweep` gives it.
        history: steps of the solve, each with ``seconds``, ``cost`` and ``lower_bound``.
        other: a solution of the same graph to compare with.
        source: where the graph comes from; it makes the set-up and the program complete.

    Returns:
        ``path``.

    Raises:
        OSError: if the folder does not exist or cannot be written.
    """
    require_arguments(write_report, locals())
    if isinstance(solution, TransferSolution):
        return write_text(path, framed(solution.graph.name, sending(solution, measurement)))
    contents = ReportContents(solution, measurement, frontier, tuple(history or ()), other, source or Origin())
    return write_text(path, page(contents))


def page(contents: ReportContents) -> str:
    """The whole page as HTML."""
    return framed(contents.name, [(title, section(contents)) for title, section in SECTIONS])


def framed(name: str, sections: Sequence[tuple[str, str]]) -> str:
    """Sections that have something to show, with plotly's JavaScript; nothing may run but that and the page's own."""
    from plotly.offline import get_plotlyjs

    shown = [(title, body) for title, body in sections if body]
    contents_list = "".join(f'<a href="#{_identity(title)}">{title}</a>' for title, _ in shown)
    main = "".join(f'<section id="{_identity(title)}"><h2>{title}</h2>{body}</section>' for title, body in shown)
    heading = f"{name}: rematerialization report"
    return whole_page(
        heading,
        _read("report.css"),
        f"<header><h1>{escape(heading)}</h1><nav>{contents_list}</nav></header><main>{main}</main>",
        {"plotly": get_plotlyjs(), "script": _read("drawing.js") + _read("report.js")},
        ["plotly", "script"],
    )


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _identity(title: str) -> str:
    """A section's anchor.

    >>> _identity("At the peak")
    'section-at-the-peak'
    """
    return "section-" + title.lower().replace(" ", "-")
