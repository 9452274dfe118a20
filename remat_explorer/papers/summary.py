"""The table of all items, with results that were found before: what docs/papers.md shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remat_explorer.papers.item import Item
from remat_explorer.papers.items import ITEMS

TABLE_BEGINS = "<!-- table: python benchmarks/papers.py --table -->"
TABLE_ENDS = "<!-- end of the table -->"
COLUMNS = ("paper item", "notebook", "function", "test", "our result", "published result", "remark")
NOTHING = "not run yet"


def items_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """All items as a Markdown table.

    Args:
        results: by item, with ``result``, ``settings`` and ``complete``; items without an entry have not been run.

    >>> items_table({}).splitlines()[0]
    '| paper item | notebook | function | test | our result | published result | remark |'
    """
    rows = [_row(item, results.get(key)) for key, item in ITEMS.items()]
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
