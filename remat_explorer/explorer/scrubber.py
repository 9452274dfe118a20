"""The row above the picture: which picture, the stage with its player, and the search."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import ipywidgets as w
import traitlets as t

from remat_explorer.errors import QuantityError
from remat_explorer.explanations import values_of_stages
from remat_explorer.explorer.page_widget import PageWidget, pull_traits, push_traits
from remat_explorer.explorer.state.navigation import parse_search
from remat_explorer.explorer.state.state import State

HINT = (
    "Find operations by name, pass and size of the largest output, or what is recomputed; all words must match: conv "
    "backward >10MiB. "
    "Enter goes to the next one."
)
HERE = Path(__file__).parent
PICTURES = (
    ("Overview", "overview"),
    ("Memory", "memory"),
    ("Matrices", "matrices"),
    ("Model", "model"),
    ("Layers", "case"),
    ("Plots", "plots"),
)
PICTURE_HINTS = (
    "What each stage computes and keeps, beside what is in memory",
    "Memory map: where every value lies, from when it is computed until it is freed",
    "R, S and U: what each stage computes, keeps and needs; here they are edited",
    "The graph of operations and values",
    "Case study: memory and overhead by layer, compared with keeping everything and with plain Checkmate",
    "The trade-off curve with every method, and memory over time",
)
BOTH_WAYS = ("stage", "playing", "speed")  # traits that the browser changes too


class Scrubber:
    """Keeps the switch of pictures, the bar of stages and the search together with the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        room = w.Layout(width="auto", flex="0 0 auto")
        self.picture = w.ToggleButtons(options=PICTURES, tooltips=PICTURE_HINTS, layout=room)
        self.picture.style.button_width = "auto"
        self.bar = StageBar(layout=w.Layout(flex="1 1 0", min_width="0", margin="0 6px"))
        self.search = SearchField(state)
        self.widget = w.HBox([self.picture, self.bar, self.search.widget])
        self.widget.add_class("remat-scrubber")
        w.link((state, "picture"), (self.picture, "value"))
        self.bar.observe(self._take, BOTH_WAYS)
        state.observe(self._play_along, "stage")
        state.observe(self._show, ["stage", "schedule", "playing", "speed", "picture"])
        self._show()

    def _take(self, change: Any) -> None:
        state = self._state
        ends = state.playing and not self.bar.playing and self.bar.stage != state.stage  # both come in one message
        pull_traits(state, self.bar, BOTH_WAYS)
        if ends:
            self._take_along()

    def _play_along(self, change: Any) -> None:
        if self._state.playing:
            self._take_along()

    def _take_along(self) -> None:
        """While the stages play, the selected value is the one that the stage is about."""
        state = self._state
        if state.schedule is not None:
            state.value = values_of_stages(state.schedule)[state.stage]

    def _show(self, change: Any = None) -> None:
        state, bar = self._state, self.bar
        state.playing = state.playing and state.schedule is not None
        with bar.hold_sync():
            bar.stages = state.schedule.stages if state.schedule is not None else 0
            bar.clocked = state.picture != "model"  # it goes by computations
            push_traits(state, bar, BOTH_WAYS)


class StageBar(PageWidget):
    """Steps, player, slider and speed of the stages.

    Attributes:
        stage: the selected one.
        stages: how many there are; 0 without a schedule.
        playing: whether they follow one another.
        clocked: whether the bar moves them then; if not, the picture that is shown does.
        speed: how many times faster than usual they play.
    """

    _esm = HERE / "scrubber.js"
    _css = HERE / "scrubber.css"
    stage = t.Int(0).tag(sync=True)
    stages = t.Int(0).tag(sync=True)
    playing = t.Bool(False).tag(sync=True)
    clocked = t.Bool(True).tag(sync=True)
    speed = t.Int(1).tag(sync=True)


class SearchField:
    """Keeps field, counter and the state's `search` and `found` together."""

    def __init__(self, state: State) -> None:
        self._state = state
        room = w.Layout(width="132px", flex="0 0 auto")
        self.field = w.Text(placeholder="search", description="Search", tooltip=HINT, layout=room)
        self.field.add_class("remat-unlabelled")
        self.counter = w.HTML(layout=w.Layout(width="auto", flex="0 0 auto", margin="0 2px"))
        self.previous = self._button("chevron-up", "Previous operation found (N in the matrices)", -1)
        self.next = self._button("chevron-down", "Next operation found (Enter here, n in the matrices)", 1)
        self.widget = w.HBox([self.field, self.counter, self.previous, self.next], layout=w.Layout(flex="0 0 auto"))
        self.field.value = state.search
        self.field.observe(lambda change: setattr(state, "search", change["new"]), "value")
        self.field.on_msg(self._entered)
        state.observe(lambda change: setattr(self.field, "value", change["new"]), "search")
        state.observe(self._count, ["search", "found", "value"])
        self._count()

    def _button(self, icon: str, tooltip: str, by: int) -> w.Button:
        button = w.Button(icon=icon, tooltip=tooltip, layout=w.Layout(width="26px", flex="0 0 auto", padding="0"))
        button.on_click(lambda clicked: self._state.select_found(by))
        return button

    def _entered(self, field: Any, content: Any, buffers: Any) -> None:
        if content.get("event") == "submit":
            self._state.select_found(1)

    def _count(self, change: Any = None) -> None:
        text, hint = count_found(self._state)
        self.counter.value = f'<span class="remat-count" title="{html.escape(hint, quote=True)}">{text}</span>'
        for button in (self.previous, self.next):
            button.layout.display = None if self._state.found else "none"


def count_found(state: State) -> tuple[str, str]:
    """How many operations are found and which of them is selected, and that in full.

    >>> import remat_explorer as rx
    >>> count_found(State(graph=rx.linear(2), search="backward")), count_found(State(search="> x"))[0]
    (('3 found', '3 operations found'), 'no size')
    """
    try:
        asked = parse_search(state.search)
    except QuantityError as error:
        return "no size", str(error)
    if not asked:
        return "", ""
    total = len(state.found)
    if total == 0:
        return "none", f"no operation matches {state.search!r}"
    selected = int(state.graph.producer[state.value]) if state.graph and state.graph.values else -1
    if selected in state.found:
        at = state.found.index(selected) + 1
        return f"{at} of {total}", f"the operation that writes the selected value is number {at} of {total} found"
    return f"{total} found", f"{total} operation{'' if total == 1 else 's'} found"
