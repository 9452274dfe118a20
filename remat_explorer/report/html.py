"""Pieces of HTML that the sections are put together from; every text that comes from outside is escaped."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from remat_explorer.documents import to_json

UNPACKING = Path(__file__).parent / "unpacking.js"
WITHOUT_SCRIPTS = "<noscript><p>The figures here are drawn by scripts of the page, which do not run.</p></noscript>"


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


def packed(identity: str, text: str, file_name: str = "") -> str:
    """A text inside of the page, compressed, which `unpacking.js` unpacks; as a file it is offered for download.

    Matrices as digits shrink to a fiftieth.
    """
    content = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")
    name = f' data-name="{escape(file_name)}"' if file_name else ""
    return f'<script type="application/gzip" id="{identity}"{name}>{content}</script>'


def whole_page(title: str, style: str, body: str, scripts: Mapping[str, str], first: Sequence[str]) -> str:
    """A page that needs nothing beside it; nothing else may run in it than its scripts, which it holds compressed.

    Args:
        title: as text.
        style: its CSS.
        body: its HTML.
        scripts: its JavaScript, by identities of elements; each may call what `unpacking.js` has.
        first: which of them run at once, in this order; the others when one of these runs them.
    """
    begin = UNPACKING.read_text(encoding="utf-8") + f"beginPacked({', '.join(map(json.dumps, first))});"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy([begin, *scripts.values()])}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><link rel="icon" href="data:,"><title>{escape(title)}</title>'
        f"<style>{style}</style></head><body>{body}{WITHOUT_SCRIPTS}"
        + "".join(_packed_script(name, script) for name, script in scripts.items())
        + f"<script>{begin}</script></body></html>\n"
    )


@lru_cache(8)  # they are alike in every page, and plotly takes half a second
def _packed_script(identity: str, script: str) -> str:
    return packed(identity, script)


def policy(scripts: Sequence[str]) -> str:
    """A Content-Security-Policy for a page with these scripts: they run, no others do, and nothing is fetched.

    >>> policy(["1"])[:78]
    "default-src 'none'; script-src 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3be"
    """
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
