"""The person's own code beside an explanation: lines around the one that a value comes from, with a margin.

Blocks are written once for a graph. Their margins, which say what a schedule keeps and repeats, are places in them.
"""

from __future__ import annotations

from remat_explorer.explanations.operations import line_of, lines_of, uses_of_lines
from remat_explorer.explorer.panels.markup import place, text
from remat_explorer.graph import Graph
from remat_explorer.permissions import Permissions
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule

CONTEXT = 3  # lines before and after


def source_place(graph: Graph, operation: int) -> str:
    """The place of the block of an operation's line; nothing where it comes from no line."""
    line = line_of(graph, operation)
    return "" if line is None else place(f"source{lines_of(graph)[line]}")


def source_part(graph: Graph, operation: int, permissions: Permissions | None) -> dict[str, str]:
    """What fills that place.

    Args:
        graph: the graph.
        operation: its number.
        permissions: which files may be shown; None for none.
    """
    line = line_of(graph, operation)
    return {} if line is None else {f"source{lines_of(graph)[line]}": _block(graph, operation, permissions)}


def source_parts(graph: Graph, permissions: Permissions | None) -> dict[str, str]:
    """The blocks of all lines of a graph."""
    parts: dict[str, str] = {}
    for k in range(graph.n):
        line = line_of(graph, k)
        if line is not None and f"source{lines_of(graph)[line]}" not in parts:
            parts |= source_part(graph, k, permissions)
    return parts


def margins(schedule: Schedule) -> dict[str, str]:
    """What fills the places of the margins: bytes kept for the backward pass, and how often a line is repeated."""
    parts = {}
    for i, use in enumerate(uses_of_lines(schedule)):
        parts[f"kept{i}"] = format_bytes(use.kept) if use.kept else ""
        parts[f"again{i}"] = f"{use.again:,}×" if use.again else ""
    return parts


def _block(graph: Graph, operation: int, permissions: Permissions | None) -> str:
    details = graph.operations[operation].details
    assert details is not None
    source, (name, _, digits) = details.source, details.line.rpartition(":")
    if source is None:
        return _missing(f"The source of {details.line} is not known: a graph file has only the number of the line.")
    if permissions is None or not permissions.shows_source_of(source.path):
        return _missing(f"The source of {details.line} is not shown here.")
    number = int(digits)
    if not source.lines:
        return _missing(f"The source of {details.line} could not be read when the model was captured.")
    numbers = lines_of(graph)
    rows = []
    for n, written in source.around(number, CONTEXT):
        at = numbers.get((source.path, f"{source.name}:{n}"))
        kept, again = ("", "") if at is None else (place(f"kept{at}"), place(f"again{at}"))
        here = ' class="here" aria-current="true"' if n == number else ""
        rows.append(
            f'<tr{here}><td class="kept">{kept}</td><td class="again">{again}</td><td class="number">{n}</td>'
            f"<td><code>{text(written)}</code></td></tr>"
        )
    head = (
        '<tr><th title="Bytes of the values of a line that are kept for the backward pass">kept</th>'
        '<th title="How many computations of a line repeat an earlier one">again</th><th></th>'
        f"<th>{text(name)}, as it was captured</th></tr>"
    )
    return (
        f'<div class="source" tabindex="0" role="region" aria-label="Source"><table>{head}{"".join(rows)}</table></div>'
    )


def _missing(words: str) -> str:
    return f'<p class="quiet small">{text(words)}</p>'
