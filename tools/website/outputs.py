"""Outputs of notebooks as the site shows them: figures for the site's own plotly, and explorers as live pages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any

from nbformat.notebooknode import NotebookNode

from tools.website.execution import WIDGET

PLOTLY = "application/vnd.plotly.v1+json"
PICTURE = "picture"  # tag of the cells that show a figure to whoever does not run the notebook
STANDING = "remat-standing"  # class of the picture that an explorer leaves for pages without a kernel


def shown(notebook: NotebookNode, live: Mapping[str, str]) -> NotebookNode:
    """The notebook with outputs that need neither a kernel nor a network.

    Args:
        notebook: executed; it is changed.
        live: the address of the live page, relative to the notebook's, by the identity of the explorer's widget.
    """
    notebook.cells = [cell for cell in notebook.cells if PICTURE not in cell.metadata.get("tags", ())]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            paged = any(_page_of(output, live) for output in cell.outputs)
            kept = [output for output in cell.outputs if not _left_out(output, paged)]
            cell.outputs = [_drawn(output, live) for output in kept]
    return notebook


def _page_of(output: NotebookNode, live: Mapping[str, str]) -> str | None:
    view = output.get("data", {}).get(WIDGET)
    return live.get(view["model_id"]) if view else None


def _left_out(output: NotebookNode, paged: bool) -> bool:
    """Progress and warnings, widgets that are no explorers, and the picture of an explorer that has its live page."""
    if output.output_type == "stream":
        return output.name == "stderr"
    data = output.get("data", {})
    if WIDGET in data:
        return not paged
    return paged and STANDING in str(data.get("text/html", ""))


def _drawn(output: NotebookNode, live: Mapping[str, str]) -> NotebookNode:
    data = output.get("data", {})
    if WIDGET in data:
        html = framed(live[data[WIDGET]["model_id"]], "The explorer")
    elif PLOTLY in data:
        html = figure_html(data[PLOTLY])
    else:
        return output
    output["data"] = {"text/html": html}
    return output


def framed(place: str, title: str) -> str:
    """A page within a page, and a link to it.

    >>> framed("live.html", "The explorer").count("live.html")
    2
    """
    html = f'<iframe class="live-page" title="{title}" loading="lazy" src="{place}"></iframe>'
    return html + f'<p><a href="{place}">{title} on a page of its own</a>: it needs no kernel.</p>'


def figure_html(figure: Mapping[str, Any]) -> str:
    """A figure as the site's script finds it; who does not see it is told its title.

    >>> html = figure_html({"data": [], "layout": {"title": {"text": "<b>Memory</b></script>"}}})
    >>> html.count("</script>"), html.partition(">")[0]
    (1, '<div class="site-figure" role="img" aria-label="Figure: Memory"')
    """
    title = figure["layout"].get("title", {}).get("text") or ""
    label = escape(" ".join(["Figure:", *re.sub(r"<[^>]*>", " ", title).split()]).removesuffix(":"))
    wanted = {key: figure[key] for key in ("data", "layout", "frames") if key in figure}
    text = json.dumps(wanted, separators=(",", ":")).replace("</", "<\\/")
    script = f'<script type="application/json">{text}</script>'
    return f'<div class="site-figure" role="img" aria-label="{label}">{script}</div>'
