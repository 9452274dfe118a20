"""The first minutes, one line after the other: a budget, the best, a run, what runs twice, the peak, a comparison."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import ipywidgets as w

from remat_explorer.explanations import alive_at, recomputed
from remat_explorer.explorer.state.state import State

STYLE = Path(__file__).parent / "tour.css"
STEPS = (
    ("Pick a budget", "Drag along the curve: the best schedule known within that memory follows."),
    ("Find the best", "Press Find the best: the search goes on until nothing cheaper can exist."),
    ("Run it", "Press Run it: one training step runs, and its measured memory is drawn over the prediction."),
    ("Ask why", "Click a row of Runs twice: the panel Why says why it is computed again."),
    ("Go to the peak", "In the panel Peak, press Go to the peak: it lists what is in memory there, and why."),
    ("Compare", "In the panel Compare, press Keep everything: you see which cells differ."),
)


class Tour:
    """Moves `hint` on when the person does what it says.

    Args:
        state: whose hint it is.
        wanted: whether the tour opens once the first model is loaded.

    >>> state = State(busy="loading")
    >>> tour = Tour(state, wanted=True)
    >>> state.busy = ""
    >>> state.hint
    1
    >>> state.budget = 4
    >>> state.hint
    2
    >>> tour.close()
    >>> state.hint
    0
    """

    def __init__(self, state: State, wanted: bool) -> None:
        self._state, self._wanted = state, wanted
        state.observe(self._budget_set, "budget")
        state.observe(self._work_ended, "busy")
        state.observe(self._selected, ["stage", "value"])
        state.observe(self._compared, "other")
        state.observe(lambda change: self.close(), "model")

    def step(self, by: int) -> None:
        """Go on, or back; beyond the last step the tour is closed."""
        hint = self._state.hint + by
        if hint > len(STEPS):
            self.close()
        else:
            self._state.hint = max(1, hint)

    def close(self) -> None:
        """End the tour for good."""
        self._wanted, self._state.hint = False, 0

    def _budget_set(self, change: Any) -> None:
        if self._state.hint == 1 and not self._state.busy:
            self._state.hint = 2

    def _work_ended(self, change: Any) -> None:
        state, ended = self._state, change["old"]
        if change["new"]:
            return
        if ended == "loading" and self._wanted:
            self._wanted, state.hint = False, 1
        elif ended == "solving" and 1 <= state.hint <= 2 and getattr(state.answer, "schedule", None) is not None:
            state.hint = 3
        elif ended == "executing" and state.hint == 3 and state.measurement is not None:
            state.hint = 4

    def _selected(self, change: Any) -> None:
        """What was clicked, where that is what the step asks for."""
        state = self._state
        if state.schedule is None or state.plan is None or state.playing or state.hint not in (4, 5) or state.busy:
            return
        if (state.stage, state.value) == state.auto_selection:  # nobody has clicked
            return
        if state.hint == 4 and (state.stage, state.value) in recomputed(state.schedule):
            state.hint = 5
        elif state.hint == 5 and state.stage == alive_at(state.plan).stage:
            state.hint = 6

    def _compared(self, change: Any) -> None:
        if self._state.hint == 6 and change["new"] is not None:
            self.close()


class TourView:
    """The step as a slim line with its buttons; nothing at all while the tour is closed."""

    def __init__(self, state: State, tour: Tour) -> None:
        self._state = state
        self._text = w.HTML(layout=w.Layout(flex="1 1 0", min_width="0", margin="0"))
        self.back = _button("Back", "The step before", lambda: tour.step(-1))
        self.next = _button("Next", "The next step", lambda: tour.step(1))
        self.close = _button("Close", "Close these hints for good", tour.close)
        style = w.HTML(f"<style>{STYLE.read_text()}</style>", layout=w.Layout(display="none"))
        self.widget = w.HBox([style, self._text, self.back, self.next, self.close])
        self.widget.add_class("remat-tour")
        state.observe(self._draw, "hint")
        self._draw()

    def _draw(self, change: Any = None) -> None:
        hint = self._state.hint
        self.widget.layout.display = "flex" if hint else "none"
        if hint:
            self._text.value = hint_html(hint)
            self.back.disabled = hint == 1
            self.back.tooltip = "This is the first step" if hint == 1 else "The step before"
            self.next.description = "Next" if hint < len(STEPS) else "Done"


def hint_html(hint: int) -> str:
    """A step of the tour as HTML.

    Args:
        hint: from 1.

    >>> "2 of 6" in hint_html(2), "<b>Find the best</b>" in hint_html(2)
    (True, True)
    """
    title, text = STEPS[hint - 1]
    count = f'<span class="count">{hint} of {len(STEPS)}</span>'
    words = html.escape(text)
    return f'<div role="note" aria-live="polite" title="{words}">{count} <b>{html.escape(title)}</b> {words}</div>'


def _button(text: str, tooltip: str, action: Any) -> w.Button:
    button = w.Button(description=text, tooltip=tooltip, layout=w.Layout(width="58px", height="22px", flex="0 0 auto"))
    button.on_click(lambda clicked: action())
    return button
