"""The row of kinds of implementations: a toggle for each, and whether they colour R."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets as w

from remat_explorer.explanations import EXPLAINED, is_exact, kinds_in, label_of
from remat_explorer.explorer.page_widget import close_widgets
from remat_explorer.explorer.state.state import State
from remat_explorer.figures import implementation_colours

STYLE = Path(__file__).parent / "implementations_view.css"
COLOURINGS = (("computation", "computation"), ("implementation", "implementation"))
COLOURING_HINTS = (
    "R shows what is computed for the first time, and what again",
    "R shows the kind of implementation that each computation runs",
)


class ImplementationsView:
    """Toggles of the loaded graph's kinds; the row is there while the graph has choices.

    Args:
        state: whose kinds are shown.
        toggle: called with a kind when its button is pressed.
    """

    def __init__(self, state: State, toggle: Callable[[str, bool], None]) -> None:
        self._state, self._toggle = state, toggle
        self._showing = False
        self.toggles: dict[str, w.ToggleButton] = {}
        self.buttons = w.HBox([], layout=w.Layout(flex="1 1 0", min_width="0", flex_flow="row wrap"))
        self.colouring = w.ToggleButtons(options=COLOURINGS, tooltips=COLOURING_HINTS)
        self.colouring.style.button_width = "108px"
        self.style = w.HTML(layout=w.Layout(display="none"))
        self.colouring.observe(lambda change: setattr(state, "colouring", change["new"]), "value")
        self.widget = w.HBox([self.style, w.Label("May choose"), self.buttons, w.Label("Colours of R"), self.colouring])
        self.widget.add_class("remat-implementations")
        state.observe(self._build, ["graph", "theme"])
        state.observe(self._show, ["implementations", "colouring"])
        self._build()

    def _build(self, change: Any = None) -> None:
        graph = self._state.graph
        kinds = kinds_in(graph) if graph is not None and graph.has_choices else ()
        self.widget.layout.display = None if kinds else "none"
        if graph is not None and tuple(self.toggles) != kinds:
            before, self.toggles = self.toggles, {kind: self._button(kind) for kind in kinds}
            self.buttons.children = tuple(self.toggles.values())
            close_widgets(before)
        hues = implementation_colours(["", *kinds], self._state.theme)
        rules = "".join(f".remat-kind-{_slug(kind)}{{--kind:{hue}}}" for kind, hue in hues.items())
        self.style.value = f"<style>{STYLE.read_text()}{rules}</style>"
        self._show()

    def _button(self, kind: str) -> w.ToggleButton:
        graph = self._state.graph
        assert graph is not None
        said = EXPLAINED[kind][1] if kind in EXPLAINED else f"Implementations called {kind!r}"
        equal = "Results are equal bit for bit" if is_exact(graph, kind) else "Results differ by rounding"
        button = w.ToggleButton(
            description=label_of(kind), tooltip=f"{said}. {equal}.", layout=w.Layout(width="auto", flex="0 0 auto")
        )
        button.add_class(f"remat-kind-{_slug(kind)}")
        button.observe(lambda change: self._pressed(kind, change["new"]), "value")
        return button

    def _pressed(self, kind: str, chosen: bool) -> None:
        if not self._showing and (kind in self._state.kinds) != chosen:
            self._toggle(kind, chosen)

    def _show(self, change: Any = None) -> None:
        state = self._state
        chosen = state.kinds
        self._showing = True
        for kind, button in self.toggles.items():
            button.value = kind in chosen
        self._showing = False
        self.colouring.value = state.colouring


def _slug(kind: str) -> str:
    """A kind as part of a class name."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "-") else "_" for c in kind) or "default"
