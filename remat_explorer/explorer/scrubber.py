"""The stage: a slider, a player, and what the stage does in one sentence."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as w

from remat_explorer.explanations import summarize_stage
from remat_explorer.explorer.state import State


class Scrubber:
    """Keeps player, slider and the state's stage together."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._play = w.Play(min=0, max=0, interval=150, show_repeat=False, layout=w.Layout(width="92px", height="28px"))
        self._slider = w.IntSlider(min=0, max=0, readout=True, layout=w.Layout(width="330px"))
        w.jslink((self._play, "value"), (self._slider, "value"))
        self._summary = w.HTML(layout=w.Layout(flex="1 1 0", min_width="0", margin="0 0 0 8px"))
        w.link((state, "playing"), (self._play, "playing"))
        label = w.Label("Stage", layout=w.Layout(margin="0 2px 0 8px"))
        self.widget = w.HBox([self._play, label, self._slider, self._summary])
        self.widget.add_class("remat-scrubber")
        self._slider.observe(lambda change: setattr(state, "stage", change["new"]), "value")
        state.observe(self._resize, "schedule")
        state.observe(self._move, ["stage", "schedule"])
        self._resize()
        self._move()

    def _resize(self, change: Any = None) -> None:
        schedule = self._state.schedule
        self._slider.max = self._play.max = max(0, schedule.stages - 1) if schedule else 0

    def _move(self, change: Any = None) -> None:
        self._slider.value = self._state.stage
        self._summary.value = f'<div class="remat-summary">{stage_sentence(self._state)}</div>'


def stage_sentence(state: State) -> str:
    """What the selected stage computes, recomputes and keeps, as HTML.

    >>> stage_sentence(State())
    ''
    """
    schedule, plan = state.schedule, state.plan
    if schedule is None or plan is None:
        return ""
    found = summarize_stage(schedule, plan, min(state.stage, schedule.stages - 1))
    return html.escape(found.sentence)
