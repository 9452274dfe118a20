"""What an item of a paper is, a figure, a table or a number; what regenerating it gives; and its page.

`Item.run` gives an `Outcome`: a result in words, rows of data, and a figure, which `Outcome.save` writes as one HTML
page or as JSON. `progress_listener` passes on what a solver reports while an item runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from remat_explorer.documents import write_json, write_text
from remat_explorer.errors import QuantityError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


Settings = Literal["small", "full"]
Tell = Callable[[str], None]
Cancelled = Callable[[], bool]
PAPERS = {
    "Checkmate": "Jain et al., Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization, MLSys 2020",
    "MONeT": "Shah et al., Memory Optimization for Deep Networks, ICLR 2021",
    "POET": "Patil et al., POET: Training Neural Networks on Tiny Devices with Integrated Rematerialization and "
    "Paging, ICML 2022",
}
FORMATS = (".html", ".json")
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:14px}td,th{border:1px solid #ccc;padding:2px 8px;text-align:left}"
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an item gives.

    Attributes:
        result: in a sentence or two, with units and settings.
        rows: the data, one mapping from column to number, text or None for each row; JSON can hold all of it.
        draw: makes the figure from the rows' data.
        complete: False where the run was cancelled, so that rows are missing.

    >>> outcome = Outcome("The optimum is 26.", ({"budget": 4, "cost": 26.0},), lambda: None)
    >>> outcome.to_document()["rows"]
    [{'budget': 4, 'cost': 26.0}]
    """

    result: str
    rows: tuple[Mapping[str, Any], ...]
    draw: Callable[[], Figure]
    complete: bool = True

    @cached_property
    def figure(self) -> Figure:
        """The item as a plotly figure."""
        return self.draw()

    def to_document(self) -> dict[str, Any]:
        """Everything but the figure, for JSON."""
        return {"result": self.result, "complete": self.complete, "rows": [dict(row) for row in self.rows]}

    def save(self, path: str | Path, title: str = "") -> Path:
        """Write the item as a page with its figure and data, or as JSON, by the ending of ``path``.

        Args:
            path: ends in .html or .json. A page opens with no network.
            title: of the page.

        Raises:
            QuantityError: if the ending is another one.
            OSError: if the file cannot be written.
        """
        require_format(path)
        if Path(path).suffix == ".json":
            document = self.to_document() | {"figure": json.loads(self.figure.to_json() or "null")}
            return write_json(path, document)
        return write_text(path, page(title, self.result, self.figure, self.rows, self.complete))


def require_format(path: str | Path) -> None:
    """Refuse a file whose ending names no format.

    Raises:
        QuantityError: quoting it.

    >>> require_format("figure.html")
    >>> require_format("figure.png")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.QuantityError: 'figure.png' names no format that is written; let it end in .html or .json
    """
    if Path(path).suffix not in FORMATS:
        raise QuantityError(f"{str(path)!r} names no format that is written; let it end in {' or '.join(FORMATS)}")


Run = Callable[[Settings, Tell, Cancelled], Outcome]
Words = Callable[[Sequence[Mapping[str, Any]], Settings], str]


@dataclass(frozen=True, eq=False)
class Item:
    """A figure, a table or a number of a paper, and how it is regenerated here.

    Attributes:
        key: how commands name it, such as "checkmate-figure-5".
        paper: a key of `PAPERS`.
        place: where it stands there, such as "Figure 5".
        title: what it shows.
        notebook: file that explains it.
        function: public name that computes it.
        test: file that holds it.
        published: what the paper says: statements with "; " between them, each with its place there in parentheses.
        remark: why the result differs from the published one, or what to know when comparing.
        compute: makes the outcome; see `run`.
        words: the outcome's result in words, from its rows and the settings alone: what a results file holds can be
            told in other words without running anything again.
    """

    key: str
    paper: str
    place: str
    title: str
    notebook: str
    function: str
    test: str
    published: str
    remark: str
    compute: Run
    words: Words

    @property
    def name(self) -> str:
        """The paper and the place in it.

        >>> from reproduction import ITEMS
        >>> ITEMS["checkmate-figure-5"].name
        'Checkmate, Figure 5'
        """
        return f"{self.paper}, {self.place}"

    def run(
        self,
        settings: Settings = "small",
        progress: Tell = lambda doing: None,
        cancelled: Cancelled = lambda: False,
    ) -> Outcome:
        """Regenerate the item.

        Args:
            settings: "small" takes seconds; "full" has the paper's networks and sizes, and takes minutes to hours.
            progress: called in this thread with what is being done.
            cancelled: asked between steps; once True the outcome has what there is by then.

        Raises:
            QuantityError: if there are no such settings.
            RematError: if what the item needs is not there.
        """
        if settings not in ("small", "full"):
            raise QuantityError(f"there are no settings {settings!r}; give 'small' or 'full'")
        return self.compute(settings, progress, cancelled)


def progress_listener(progress: Tell, where: str) -> Callable[[Any], None]:
    """A listener for a solver's reports, which passes on what it is doing and for which instance.

    Args:
        progress: hears sentences.
        where: the instance, in words.

    >>> from remat_explorer.solvers import Progress
    >>> progress_listener(print, "VGG16 within 60%")(Progress(0.1, "planning"))
    VGG16 within 60%: planning
    """

    def listen(report: Any) -> None:
        progress(f"{where}: {report.doing}")

    return listen


def name_list(names: list[str]) -> str:
    """Names as a list in a sentence.

    >>> name_list(["a", "b", "c"]), name_list(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def page(title: str, result: str, figure: Figure, rows: Sequence[Mapping[str, Any]], complete: bool) -> str:
    """The page, which opens with no network.

    Args:
        title: its heading.
        result: in a sentence or two.
        figure: the item's figure.
        rows: the data behind it, one mapping from column to entry for each row.
        complete: False where the run was cancelled; the page says so.
    """
    drawing = figure.to_html(full_html=False, include_plotlyjs=True)
    unfinished = "" if complete else "<p>The run was cancelled before it was complete.</p>"
    return (
        f"<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1><p>{escape(result)}</p>{unfinished}"
        f"{drawing}{table_of(rows)}</body></html>\n"
    )


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as an HTML table; rows of different columns leave cells empty.

    >>> table_of([{"n": 3, "gap": 0.12345678}])
    '<table><tr><th>n</th><th>gap</th></tr><tr><td>3</td><td>0.1235</td></tr></table>'
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = ("".join(f"<td>{escape(_cell(row.get(column)))}</td>" for column in columns) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(entry: Any) -> str:
    """An entry of a row as text: floats with four digits, nothing for None, lists by their length.

    >>> _cell(0.5), _cell(None), _cell(["10", "01"]), _cell(True)
    ('0.5', '', '2 entries', 'yes')
    """
    if entry is None:
        return ""
    if isinstance(entry, bool):
        return "yes" if entry else "no"
    if isinstance(entry, float):
        return f"{entry:.4g}" if abs(entry) < 1e4 else f"{entry:.6g}"
    return f"{len(entry)} entries" if isinstance(entry, list) else str(entry)
