"""The page of a report: its sections, figures, style and script in one file, and what it is about.

A figure is drawn for light ground, with what is different on dark ground.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from remat_explorer.documents import write_text
from remat_explorer.entry_checks import require_arguments
from remat_explorer.figures.palette import Theme
from remat_explorer.graph import Graph
from remat_explorer.report.html import data, whole_page
from remat_explorer.report.sections import (
    comparison,
    curve,
    implementations,
    matrices,
    model,
    numbers,
    peak,
    search,
    setup,
    statements,
    summary,
    timeline,
    usage,
    validation,
)
from remat_explorer.solution import Solution
from remat_explorer.solvers import Frontier, MinimumBudget, checkpoint_all_peak, minimum_budget
from remat_explorer.solvers.base import Progress
from remat_explorer.solvers.sweeps.joining import joined

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from remat_explorer.runtime.measurement import Measurement


Place = tuple[str | int, ...]


def drawing(identity: str, draw: Callable[[Theme], Figure], label: str, broad: bool = False) -> str:
    """A place for a figure, and its data in both themes.

    Args:
        identity: of the place, unique in the page.
        draw: makes the figure for a theme.
        label: what the figure shows, for those who do not see it.
        broad: whether it needs more width than a phone has, and is moved under its frame there.
    """
    light, dark = (json.loads(str(_without_template(draw(theme)).to_json())) for theme in ("light", "dark"))
    entry = {"light": light, "dark": [[list(path), value] for path, value in differences(light, dark)]}
    height = light["layout"].get("height", 400)
    said = escape(label)
    place = f'<div class="figure" id="{identity}" role="group" aria-label="{said}" style="min-height:{height}px"></div>'
    place = f'<div class="frame{" broad" if broad else ""}">{place}</div>'
    return place + data(f"{identity}-data", entry)


def differences(old: Any, new: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Where two JSON values differ: paths into the old one, and what stands there in the new one.

    >>> list(differences({"a": [1, {"b": 2}], "c": 3}, {"a": [1, {"b": 5}], "c": 3}))
    [(('a', 1, 'b'), 5)]
    """
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from differences(old[key], new[key], (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*path, i))
    elif old != new:
        yield path, new


def _without_template(figure: Figure) -> Figure:
    """plotly's standard template is several kilobytes in every figure, and the figures set what they show."""
    figure.update_layout(template="none")
    return figure


@dataclass(frozen=True)
class Origin:
    """Where a graph comes from, as far as that is known, for the set-up and the code of a report.

    Attributes:
        kind: a model of the zoo, a function of a file, a module in a notebook, or a graph without a model.
        model: its name in the zoo, ``file.py:function``, the module's class, or the graph's name.
        batch, image, sequence: sizes of the inputs, where they are known; an image is a side or (height, width).
        device: where costs were measured and the schedule executed, or "".
        costs: where costs come from, in words, or "".
    """

    kind: Literal["zoo", "file", "module", "graph"] = "graph"
    model: str = ""
    batch: int | None = None
    image: int | tuple[int, int] | None = None
    sequence: int | None = None
    device: str = ""
    costs: str = ""


@dataclass(frozen=True, eq=False)
class ReportContents:
    """Everything that the sections of a report are written from.

    Attributes:
        solution: what the report is about, with or without a schedule.
        measurement: of that solution, executed.
        frontier: the trade-off curve of its graph, as a sweep gave it.
        history: steps of the solve, each with seconds, cost and lower_bound.
        other: a solution to compare with.
        origin: where the graph comes from.
    """

    solution: Solution
    measurement: Measurement | None = None
    frontier: Frontier | None = None
    history: Sequence[Any] = ()
    other: Solution | None = None
    origin: Origin = Origin()

    @property
    def graph(self) -> Graph:
        """The graph that was scheduled."""
        return self.solution.graph

    @property
    def name(self) -> str:
        """The model's name, for titles and file names."""
        return self.graph.name

    @cached_property
    def curve(self) -> Frontier | None:
        """The trade-off curve with the solution on it, and with what its bound proves for the other points.

        A solution of a graph with choices may be that of some implementations only, and joins no curve of others.
        """
        frontier, solution = self.frontier, self.solution
        if frontier is None or frontier.graph is not solution.graph or solution.graph.has_choices:
            return frontier
        return joined(solution.graph, frontier, [solution])

    @cached_property
    def keep_all(self) -> int:
        """Peak of the schedule that keeps everything, bytes."""
        return checkpoint_all_peak(self.graph)

    @cached_property
    def smallest(self) -> MinimumBudget:
        """Between which budgets the graph starts to be feasible; some seconds of work for large graphs."""
        return minimum_budget(self.graph)

    def file_name(self, what: str) -> str:
        """A name for a file that is taken out of the report.

        >>> from remat_explorer.instances import linear
        >>> from remat_explorer.solvers import solve
        >>> ReportContents(solve(linear(8), 4)).file_name("graph")
        'linear8-graph.json'
        """
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in self.name)
        return f"{plain.strip('.') or 'model'}-{what}.json"


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
    solution: Solution,
    path: str | Path,
    *,
    measurement: Measurement | None = None,
    frontier: Frontier | None = None,
    history: Sequence[Progress] | None = None,
    other: Solution | None = None,
    source: Origin | None = None,
) -> Path:
    """Write one HTML file, atomically, that shows a solution and holds its graph and its schedule.

    It needs no network and nothing beside it: figures can be hovered over and zoomed into, and the files in it saved.

    Args:
        solution: what the report is about; without a schedule the report says why there is none.
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
    contents = ReportContents(solution, measurement, frontier, tuple(history or ()), other, source or Origin())
    return write_text(path, page(contents))


def page(contents: ReportContents) -> str:
    """The whole page as HTML, with plotly's JavaScript; nothing else may run than that and the page's own."""
    from plotly.offline import get_plotlyjs

    shown = [(title, body) for title, section in SECTIONS if (body := section(contents))]
    contents_list = "".join(f'<a href="#{_identity(title)}">{title}</a>' for title, _ in shown)
    sections = "".join(f'<section id="{_identity(title)}"><h2>{title}</h2>{body}</section>' for title, body in shown)
    heading = f"{contents.name}: rematerialization report"
    return whole_page(
        heading,
        _read("report.css"),
        f"<header><h1>{escape(heading)}</h1><nav>{contents_list}</nav></header><main>{sections}</main>",
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
