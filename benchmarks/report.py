"""What every benchmark shares: a table on the screen, and a JSON file with versions and machine beside it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remat_explorer.documents import write_text

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "mip", "highspy", "cbcbox", "numpy")


def machine() -> dict[str, Any]:
    """Versions and hardware, as far as they change a result."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine(), **versions}


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table with aligned columns."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, rows)])


def narrow_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table without the blanks that align it, for pages."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows))


def publish(name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], details: Any, **where: Any) -> None:
    """Print the table and write results/NAME.json."""
    print(table(columns, rows))
    print(f"written to {write(name, columns, rows, details, **where)}")


def write(name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], details: Any, **where: Any) -> Path:
    """Write results/NAME.json, as `publish` does."""
    RESULTS.mkdir(exist_ok=True)
    lines = table(columns, rows).splitlines()
    document = {"benchmark": name, "machine": machine() | where, "table": lines, "details": details}
    return write_text(RESULTS / f"{name}.json", in_lines(document) + chr(10))


def kept(name: str) -> list[dict[str, Any]]:
    """The rows of results/NAME.json, if they were made with this version of PyTorch."""
    path = RESULTS / f"{name}.json"
    document = json.loads(path.read_text()) if path.exists() else None
    if document is None or document["machine"]["torch"] != machine()["torch"]:
        return []
    return document["details"]


def fill(page: Path, begins: str, ends: str, text: str) -> None:
    """Replace what a page has between two marks, each on a line of its own."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begins)
    write_text(page, f"{before}{begins}\n{text}\n{ends}{rest.partition(ends)[2]}")


def in_lines(entry: Any, margin: str = "", width: int = 500) -> str:
    """JSON in which each object or list stands on one line if that has at most ``width`` characters.

    >>> print(in_lines({"rows": [{"n": 5, "cost": 1.5}, {"n": 9}], "of": []}, width=40))
    {
     "rows": [{"n": 5, "cost": 1.5}, {"n": 9}],
     "of": []
    }
    """
    line = json.dumps(entry)
    if len(line) <= width or not isinstance(entry, dict | list | tuple):
        return line
    inside = margin + " "
    if isinstance(entry, dict):
        parts = [f"{json.dumps(str(key))}: {in_lines(part, inside, width)}" for key, part in entry.items()]
    else:
        parts = [in_lines(part, inside, width) for part in entry]
    begin, end = "{}" if isinstance(entry, dict) else "[]"
    return f"{begin}\n{inside}" + f",\n{inside}".join(parts) + f"\n{margin}{end}"
