"""The tables of all items, with results that were found before: what docs/papers.md shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remat_explorer.papers.item import Item
from remat_explorer.papers.items import ITEMS

TABLE_BEGINS = "<!-- table: python benchmarks/papers.py --table -->"
TABLE_ENDS = "<!-- end of the table -->"
COLUMNS = ("paper item", "notebook", "function", "test", "our result", "published result", "remark")
NOTHING = "not run yet"
UNITS = {  # of each paper, and of its table
    "Checkmate": "GB are 10^9 bytes, here as in the authors' artifact.",
    "MONeT": "GiB and MiB are 2^30 and 2^20 bytes. The paper writes GB for GiB.",
}


def items_tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table for each paper, under its name and its units.

    Args:
        results: as `items_table` takes them.

    >>> items_tables({}).splitlines()[0]
    '### Checkmate'
    """
    tables = (f"### {paper}\n\n{units}\n\n{items_table(results, paper)}" for paper, units in UNITS.items())
    return "\n\n".join(tables)


def items_table(results: Mapping[str, Mapping[str, Any]], paper: str) -> str:
    """The items of a paper as a Markdown table.

    Args:
        results: by item, with ``result``, ``settings`` and ``complete``; items without an entry have not been run.
        paper: a key of `remat_explorer.papers.PAPERS`.

    >>> items_table({}, "MONeT").splitlines()[0]
    '| paper item | notebook | function | test | our result | published result | remark |'
    """
    rows = [_row(item, results.get(key)) for key, item in ITEMS.items() if item.paper == paper]
    return "\n".join(map(_line, (COLUMNS, ["---"] * len(COLUMNS), *rows)))


def _row(item: Item, entry: Mapping[str, Any] | None) -> list[str]:
    notebook = f"[{item.notebook.partition('_')[0]}](../notebooks/{item.notebook})"
    test = f"[{item.test.rpartition('/')[2]}](../{item.test})"
    place = f"{item.name}: {item.title} (`{item.key}`)"
    return [place, notebook, f"`{item.function}`", test, _result(entry), item.published, item.remark]


def _result(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return NOTHING
    notes = ["small settings"] if entry["settings"] != "full" else []
    notes += [] if entry["complete"] else ["interrupted"]
    return entry["result"] + (f" ({', '.join(notes)})" if notes else "")


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
