"""What every panel beside the plots has in common: it draws itself only while it is looked at."""

from __future__ import annotations

from typing import Any, ClassVar

from remat_explorer.explorer.panels.clickable import Click, Clickable
from remat_explorer.explorer.panels.markup import colours
from remat_explorer.explorer.state.state import State


class SidePanel:
    """A panel: `html` of the state, drawn again when one of `traits` has changed and the panel is the chosen one.

    Attributes:
        name: one of `remat_explorer.explorer.state.state.PANELS`.
        traits: what the content depends on.
        content: the widget that shows it.
        widget: the panel, by default the content alone.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    traits: ClassVar[tuple[str, ...]]

    def __init__(self, state: State) -> None:
        self.state = state
        self.content = Clickable(self.clicked, self.title)
        self.widget: Any = self.content
        self._stale = True
        state.observe(self._changed, [*self.traits, "theme"])
        state.observe(self._shown, "panel")
        self._shown()

    def html(self) -> str:
        """The content, its text escaped."""
        raise NotImplementedError

    def scroll(self) -> str:
        """What the scroll position belongs to: where it changes, the panel is shown from its top again."""
        return self.name

    def clicked(self, click: Click) -> None:
        """Select what was clicked."""
        select(self.state, click)

    def _changed(self, change: Any) -> None:
        self._stale = True
        self._shown()

    def _shown(self, change: Any = None) -> None:
        if self._stale and self.state.panel == self.name:
            self._stale = False
            style, scroll = colours(self.state.theme), self.scroll()
            self.content.html = (
                f'<div class="remat-panel {self.name}" data-scroll="{scroll}" style="{style}">{self.html()}</div>'
            )


def select(state: State, click: Click) -> None:
    """Select the value and the stage of a click; what it does not name stays."""
    if click.value is not None:
        state.value = click.value
    if click.stage is not None:
        state.stage = click.stage


def shown_stage(state: State) -> int:
    """The selected stage; while a new schedule arrives it may be one that the schedule does not have."""
    return min(state.stage, state.schedule.stages - 1) if state.schedule is not None else state.stage
