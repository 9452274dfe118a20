"""What the page does for the explorer as a whole: says that its kernel has gone, and names what has no name."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import traitlets as t

from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import unsuitable_strategies


class ExplorerPage(PageWidget):
    """A line above the explorer, empty as long as its kernel answers, for no kernel can say that it has gone.

    It remembers in the browser whether the fields under "More" were open, for the explorers that are shown next. And it
    gives the page what ipywidgets has no trait for: the stage slider's name, that buttons are tabs, and what is to be
    said of entries of a list: the strategies that the graph is not for, which cannot be chosen, or in part only.
    """

    more = t.Bool(False).tag(sync=True)
    fits = t.Dict({}).tag(sync=True)
    _esm = Path(__file__).parent / "explorer_page.js"

    def __init__(self, state: State) -> None:
        super().__init__(more=state.more)
        self.observe(lambda change: setattr(state, "more", change["new"]), "more")
        state.observe(lambda change: setattr(self, "more", change["new"]), "more")
        state.observe(self._tell_fits, "graph")
        self._state = state
        self._tell_fits()

    def _tell_fits(self, change: Any = None) -> None:
        graph = self._state.graph
        self.fits = (
            {name: asdict(fit) for name, fit in unsuitable_strategies(graph).items()} if graph is not None else {}
        )
