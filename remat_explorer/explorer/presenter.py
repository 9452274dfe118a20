"""The button Present, and the bar with the caption under the scene."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import traitlets as t

from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.state import State

HERE = Path(__file__).parent


class PresenterBar(PageWidget):
    """A button as long as nothing is presented, then the caption with the way to the next scene.

    Attributes:
        scene: number of the scene on the screen, or -1.
        count: how many there are.
        caption: what is said.
    """

    _esm = HERE / "presenter.js"
    _css = HERE / "presenter.css"
    scene = t.Int(-1).tag(sync=True)
    count = t.Int(0).tag(sync=True)
    caption = t.Unicode("").tag(sync=True)


class PresenterView:
    """Keeps bar and state together.

    Args:
        state: whose scenes are presented.
        present: begins the usual scenes.
    """

    def __init__(self, state: State, present: Callable[[], None]) -> None:
        self._state, self._present = state, present
        self.widget = PresenterBar()
        state.observe(self._show, ["scene", "scenes", "caption"])
        self.widget.observe(self._take, "scene")
        self.widget.on_msg(self._asked)
        self._show()

    def _show(self, change: Any = None) -> None:
        state = self._state
        with self.widget.hold_sync():
            self.widget.count, self.widget.caption, self.widget.scene = len(state.scenes), state.caption, state.scene

    def _take(self, change: Any) -> None:
        self._state.scene = change["new"]

    def _asked(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        """The button: the scenes that there are, or the usual ones."""
        if not content.get("present"):
            return
        if self._state.scenes:
            self._state.scene = 0
        else:
            self._present()
