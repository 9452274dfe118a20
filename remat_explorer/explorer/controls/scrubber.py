"""The row above the picture: which picture, the stage with its player, what the stage does, and the search."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as w

from remat_explorer.explanations import summarize_stage, values_of_stages
from remat_explorer.explorer.controls.search_field import SearchField
from remat_explorer.explorer.state.state import State

INTERVAL = 150  # milliseconds that a stage is shown for while playing at speed 1
PICTURES = (("Matrices", "matrices"), ("Memory", "memory"), ("Model", "model"), ("Layers", "case"))
PICTURE_HINTS = (
    "R, S and U: what each stage computes, keeps and needs",
    "Memory map: where every value lies, from where it is computed to where it is freed",
    "The graph of operations and values",
    "Case study: memory and overhead by layer, against plain execution and plain Checkmate",
)


class Scrubber:
    """Keeps switch, player, slider and search together with the state.

    The browser is the clock of the player (a hidden `Play`), so that stages never come faster than they can be drawn.
    The model's picture has a clock of its own, which goes by computations.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.picture = w.ToggleButtons(options=PICTURES, description="Show", tooltips=PICTURE_HINTS)
        self.picture.style.button_width = "66px"
        self.picture.layout = w.Layout(width="310px", flex="0 0 auto")
        self.back = _button("step-backward", "Previous stage", lambda: self._step(-1))
        self.play = _button("play", "", self._toggle)
        self.forward = _button("step-forward", "Next stage", lambda: self._step(1))
        self.slider = w.IntSlider(min=0, max=0, readout=False, layout=w.Layout(flex="1 0 96px", max_width="156px"))
        self.slider.tooltip = "The selected stage; arrow keys, Page up and Page down move it"
        self.clock = w.Play(min=0, max=0, interval=INTERVAL, show_repeat=False, layout=w.Layout(display="none"))
        w.jslink((self.clock, "value"), (self.slider, "value"))
        self.label = w.Label(tooltip="Stages count from 0", layout=w.Layout(width="126px", flex="0 0 auto"))
        self.speed = w.Dropdown(options=[(f"{s}×", s) for s in (1, 2, 4)], description="Speed")
        self.speed.tooltip = "How fast the stages play"
        self.speed.layout = w.Layout(width="92px", flex="0 0 auto")
        self.picture.style.description_width = self.speed.style.description_width = "initial"
        self.summary = w.HTML(layout=w.Layout(flex="1 1 0", min_width="0", margin="0 6px"))
        self.summary.add_class("remat-sentence")
        self.search = SearchField(state)
        parts = (self.picture, self.back, self.play, self.forward, self.slider, self.clock, self.label, self.speed)
        self.widget = w.HBox([*parts, self.summary, self.search.widget])
        self.widget.add_class("remat-scrubber")
        for name, field in (("stage", self.slider), ("speed", self.speed), ("picture", self.picture)):
            self._bind(name, field)
        self.clock.observe(self._ended, "playing")
        state.observe(self._resize, "schedule")
        state.observe(self._take_along, "stage")
        state.observe(self._move, ["stage", "schedule"])
        state.observe(self._show_player, ["playing", "speed", "schedule", "picture"])
        self._resize()
        self._move()
        self._show_player()

    def _bind(self, name: str, field: Any) -> None:
        field.value = getattr(self._state, name)
        field.observe(lambda change: setattr(self._state, name, change["new"]), "value")
        if name != "stage":
            self._state.observe(lambda change: setattr(field, "value", change["new"]), name)

    def _ended(self, change: Any) -> None:
        if change["new"] or self._state.picture != "model":
            self._state.playing = change["new"]

    def _step(self, by: int) -> None:
        self._state.stage += by  # the state keeps it inside

    def _toggle(self) -> None:
        self._state.playing = not self._state.playing

    def _take_along(self, change: Any) -> None:
        """While the stages play, the selected value is the one that the stage is about."""
        state = self._state
        if state.playing and state.schedule is not None:
            state.value = values_of_stages(state.schedule)[state.stage]

    def _resize(self, change: Any = None) -> None:
        schedule = self._state.schedule
        self.slider.max = self.clock.max = max(0, schedule.stages - 1) if schedule else 0
        self._state.playing = self._state.playing and schedule is not None

    def _move(self, change: Any = None) -> None:
        state, schedule = self._state, self._state.schedule
        self.slider.value = state.stage
        self.label.value = f"Stage {state.stage} of 0–{schedule.stages - 1}" if schedule else "No schedule yet"
        self.summary.value = stage_html(state)
        self.back.disabled = state.stage == 0
        self.forward.disabled = schedule is None or state.stage == schedule.stages - 1

    def _show_player(self, change: Any = None) -> None:
        state = self._state
        if state.playing and not self.clock.playing and state.stage == self.slider.max:
            state.stage = 0  # played to the end before: from the beginning
        self.clock.interval = INTERVAL // state.speed
        self.clock.playing = state.playing and state.picture != "model"
        self.play.icon = "pause" if state.playing else "play"
        doing = "Stop here" if state.playing else "Play the stages one after the other, up to the last"
        self.play.tooltip = f"{doing} (Space in the matrices)"
        self.play.disabled = state.schedule is None


def _button(icon: str, tooltip: str, action: Any) -> w.Button:
    button = w.Button(icon=icon, tooltip=tooltip, layout=w.Layout(width="28px", flex="0 0 auto", padding="0"))
    button.on_click(lambda clicked: action())
    return button


def stage_sentence(state: State) -> str:
    """What the selected stage computes, recomputes and keeps.

    >>> stage_sentence(State())
    ''
    """
    schedule, plan = state.schedule, state.plan
    if schedule is None or plan is None:
        return ""
    return summarize_stage(schedule, plan, min(state.stage, schedule.stages - 1)).sentence


def stage_html(state: State) -> str:
    """`stage_sentence` for a place that may be too narrow for it: the tooltip has it in full."""
    sentence = html.escape(stage_sentence(state), quote=True)
    return f'<div class="remat-summary" title="{sentence}">{sentence}</div>'
