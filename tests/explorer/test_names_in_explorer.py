"""Whatever a graph calls its parts, the explorer shows it as text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import ipywidgets as w
import pytest

import remat_explorer as rx
from remat_explorer.explorer.state.state import PANELS
from tests.explorer.driven import settled
from tests.figures.choices import chain_with_choices
from tests.hostile_names import hostile


class Tags(HTMLParser):
    """Collects the names of elements and of attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found |= {tag, *(key for key, _ in attrs)}


def pages(widget: Any) -> list[str]:
    """The HTML that a widget and what is in it show."""
    own = [getattr(widget, name) for name in ("html",) if isinstance(getattr(widget, name, None), str)]
    own += [widget.value] if isinstance(widget, w.HTML) else []
    return own + [page for child in getattr(widget, "children", ()) for page in pages(child)]


@pytest.mark.parametrize("graph", [rx.linear(8), chain_with_choices()], ids=["chain", "choices"])
def test_no_name_becomes_an_element(graph: rx.Graph) -> None:
    explorer = settled(rx.Explorer(graph=hostile(graph), improve=False, sweep=False))
    explorer.state.budget = explorer.state.smallest.known_feasible
    explorer.solve()
    settled(explorer)
    explorer.compare("checkpoint-all")
    explorer.state.picture = "case"
    shown = list(pages(explorer))
    for panel in PANELS:
        explorer.state.panel = panel
        for value in range(len(graph.values)):
            explorer.state.value = value
            shown += pages(explorer)
    assert any("evil.example" in page for page in shown)  # it is there, as text
    dangerous = {"img", "script", "a", "onerror", "href", "src"}
    assert [page for page in shown if Tags(page).found & dangerous] == []
