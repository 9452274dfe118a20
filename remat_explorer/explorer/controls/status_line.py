"""The line that always says what is going on, and how long it has taken."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as w

from remat_explorer.explorer.state.state import State
from remat_explorer.quantities import format_seconds


class StatusLine:
    """Status, elapsed time and progress in a slot of fixed size."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = w.HTML(layout=w.Layout(width="100%", height="36px", margin="0"))
        state.observe(self._draw, ["status", "tone", "busy", "elapsed", "progress", "stale"])
        self._draw()

    def _draw(self, change: Any = None) -> None:
        self.widget.value = status_html(self._state)


def status_html(state: State) -> str:
    """The status line as HTML.

    >>> "Ready." in status_html(State())
    True
    """
    icon = {"plain": "●", "good": "✔", "warning": "▲", "error": "✖"}[state.tone]
    clock, bar = "", ""
    if state.busy:
        icon = '<i class="spinner"></i>'
        clock = (
            f'<span class="clock">{format_seconds(max(state.elapsed, 0.0)) if state.elapsed >= 0.1 else "0.0 s"}</span>'
        )
        if state.progress is not None:
            bar = f'<progress max="1" value="{state.progress:.3f}"></progress>'
    words = state.status
    if state.stale and state.graph is not None:
        words += f" The picture is still that of {state.graph.name}."
    text = html.escape(words)
    tone = "busy" if state.busy else state.tone
    return (
        f'<div class="remat-status {tone}" role="status" data-busy="{state.busy}"><span class="icon">{icon}</span>'
        f'{clock}{bar}<span class="text" title="{html.escape(words, quote=True)}">{text}</span></div>'
    )
