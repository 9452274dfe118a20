"""Pieces of HTML that the sections are put together from; every text that comes from outside is escaped."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from remat_explorer.documents import to_json


def paragraph(text: str) -> str:
    """A paragraph of plain text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{escape(text)}</p>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they are, as a table of two columns; pairs without a text are left out."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in pairs if text)
    return f'<table class="facts">{rows}</table>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a row of heads; columns whose head begins with a space are numbers, set to the right.

    >>> table(["name", " bytes"], [("loss", "4 B")]).count("<td")
    2
    """
    marks = [' class="number"' if head.startswith(" ") else "" for head in heads]
    top = "".join(f"<th{mark}>{escape(head.strip())}</th>" for head, mark in zip(heads, marks, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{escape(cell)}</td>" for cell, mark in zip(row, marks, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def code(text: str) -> str:
    """A block of code."""
    return f"<pre><code>{escape(text)}</code></pre>"


def data(identity: str, entry: Any) -> str:
    """A JSON object that the page's script reads by its identity.

    >>> data("names", ["</script>"])
    '<script type="application/json" id="names">["\\\\u003c/script>"]</script>'
    """
    text = to_json(entry).replace("<", "\\u003c")  # nothing in it ends the script
    return f'<script type="application/json" id="{identity}">{text}</script>'


def packed(identity: str, file_name: str, text: str) -> str:
    """A file inside of the page, compressed, which the page's script unpacks and offers for download.

    Matrices as digits shrink to a fiftieth.
    """
    content = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")
    return f'<script type="application/gzip" id="{identity}" data-name="{escape(file_name)}">{content}</script>'
