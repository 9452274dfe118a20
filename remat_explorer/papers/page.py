"""An item as one HTML page: its result in words, its figure, and the data behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:14px}td,th{border:1px solid #ccc;padding:2px 8px;text-align:left}"
)


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
    lines = ("".join(f"<td>{escape(cell(row.get(column)))}</td>" for column in columns) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def cell(entry: Any) -> str:
    """An entry of a row as text: floats with four digits, nothing for None, lists by their length.

    >>> cell(0.5), cell(None), cell(["10", "01"]), cell(True)
    ('0.5', '', '2 entries', 'yes')
    """
    if entry is None:
        return ""
    if isinstance(entry, bool):
        return "yes" if entry else "no"
    if isinstance(entry, float):
        return f"{entry:.4g}" if abs(entry) < 1e4 else f"{entry:.6g}"
    return f"{len(entry)} entries" if isinstance(entry, list) else str(entry)
