"""Pieces of HTML that the panels share; every text in them is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping

from remat_explorer.explanations import Mention, Words
from remat_explorer.figures.palette import Theme, palette

COLOURS = (
    *("forward", "backward", "recompute", "kept", "resident", "gradients"),
    *("predicted", "measured", "budget", "over", "cursor", "grid"),
)
PLACE = re.compile("\ue000(\\w+)\ue001")  # characters that no text of a model has a use for


def text(content: object) -> str:
    """Any text, escaped.

    >>> text('<b> & "c"')
    '&lt;b&gt; &amp; &quot;c&quot;'
    """
    return html.escape(str(content), quote=True)


def data(value: int | None = None, stage: int | None = None, action: str = "") -> str:
    """The attributes by which an element can be clicked.

    >>> data(3, 57), data(action="swap")
    (' data-value="3" data-stage="57"', ' data-action="swap"')
    """
    parts = [("value", value), ("stage", stage), ("action", action or None)]
    return "".join(f' data-{name}="{text(part)}"' for name, part in parts if part is not None)


def link(mention: Mention) -> str:
    """A name that selects a value or a stage.

    >>> link(Mention("conv <1>", value=3))
    '<span class="link" role="button" tabindex="0" data-value="3">conv &lt;1&gt;</span>'
    """
    target = data(mention.value, mention.stage)
    if not target:
        return text(mention.text)
    # no button element, whose text would not break into lines with the sentence around it
    return f'<span class="link" role="button" tabindex="0"{target}>{text(mention.text)}</span>'


def sentence(words: Words) -> str:
    """A sentence with its names as links."""
    return "".join(text(word) if isinstance(word, str) else link(word) for word in words)


def button(label: str, action: str, tooltip: str, enabled: bool = True) -> str:
    """A button that sends an action."""
    off = "" if enabled else " disabled"
    return (
        f'<button type="button" class="action" title="{text(tooltip)}"{data(action=action)}{off}>{text(label)}</button>'
    )


def table(rows: Iterable[Iterable[str]], head: Iterable[str] = (), kind: str = "") -> str:
    """A table; cells are HTML already.

    >>> table([["peak", "3 B"]])
    '<table class=""><tr><td>peak</td><td>3 B</td></tr></table>'
    """
    top = "".join(f"<th>{cell}</th>" for cell in head)
    return f'<table class="{kind}">' + (f"<tr>{top}</tr>" if top else "") + f"{table_rows(rows)}</table>"


def table_rows(rows: Iterable[Iterable[str]]) -> str:
    """Rows of a table; cells are HTML already."""
    return "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)


def place(name: str) -> str:
    """A place in HTML that is written once for several schedules or stages; `filled` fills it."""
    return f"\ue000{name}\ue001"


def filled(template: str, parts: Mapping[str, str]) -> str:
    """HTML with its places filled; what fills them may have places, too.

    >>> filled(f"{place('size')} in {place('where')}", {"size": "3 B", "where": f"stage {place('t')}", "t": "2"})
    '3 B in stage 2'
    """
    while PLACE.search(template):
        template = PLACE.sub(lambda found: parts[found[1]], template)
    return template


def note(content: str) -> str:
    """A sentence in place of content that is not there yet."""
    return f'<p class="note">{text(content)}</p>'


def colours(theme: Theme) -> str:
    """The palette as CSS variables.

    >>> colours("light").split(";")[0]
    '--forward:#56B4E9'
    """
    theme_colours = palette(theme)
    return ";".join(f"--{name}:{getattr(theme_colours, name)}" for name in COLOURS)
