"""The cells of a table of results: a column is a title, and a function from an entry to a text or a number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from report import narrow_table

from remat_explorer.quantities import format_bytes

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column: its title, and the cell of an entry; what is missing is an empty cell."""

    title: str
    cell: Callable[[Entry], Any]

    def text(self, entry: Entry) -> str:
        """The cell in words."""
        try:
            found = self.cell(entry)
        except (KeyError, TypeError, ZeroDivisionError):
            return ""
        return "" if found is None else str(found)


def shortened(words: str, limit: int = 150) -> str:
    """The first line of an error, not longer than ``limit``."""
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def rows_table(columns: tuple[Column, ...], entries: list[dict[str, Any]]) -> str:
    """A table of entries, without empty columns; a sentence where there is no entry."""
    if not entries:
        return "No such row was measured."
    filled = [column for column in columns if any(column.text(entry) for entry in entries)]
    rows = [[column.text(entry).replace("|", "/") for column in filled] for entry in entries]
    return narrow_table([column.title for column in filled], rows)


def of_bytes(*path: str) -> Callable[[Entry], Any]:
    """A number of bytes deep in an entry, in words."""
    return lambda entry: _optional(_deep(entry, path), format_bytes)


def of(*path: str, show: Callable[[Any], Any] = str) -> Callable[[Entry], Any]:
    """Anything deep in an entry, in words."""
    return lambda entry: _optional(_deep(entry, path), show)


def _deep(entry: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        entry = None if entry is None else entry.get(key)
    return entry


def _optional(value: Any, show: Callable[[Any], Any]) -> Any:
    return None if value is None else show(value)


def results(run: Entry) -> str | None:
    """Whether results are plain PyTorch's, bit for bit."""
    equal = [run.get(key) for key in ("gradients_equal", "buffers_equal", "random_state_equal")]
    if None in equal:
        return None
    if all(equal) and not run.get("loss_difference"):
        return "equal"
    if run.get("as_plain_varies"):
        return "vary as plain PyTorch's do"
    begins = run.get("difference_begins") or {}
    repeats = "; plain PyTorch differs from itself" if begins.get("repeats") is False else ""
    return f"differ by {run['gradient_difference']:.2g}{repeats}"


def share(value: float) -> str:
    return f"{value:+.3%}"
