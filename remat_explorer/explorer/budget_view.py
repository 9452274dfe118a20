"""The budget: a slider with marks, and a field that understands "1.5 GiB" and "60%"."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets as w
import traitlets as t

from remat_explorer.errors import QuantityError, shown
from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.state import State
from remat_explorer.quantities import format_bytes

HERE = Path(__file__).parent
LARGE = 1000  # bytes: nobody means a budget below it where nothing fits into it
BEYOND = 1.05  # the slider ends a little above checkpoint-all


class BudgetSlider(PageWidget):
    """A range with clickable marks; all traits are bytes.

    ``dragged`` is where the thumb is while it is dragged, else 0, for other widgets of the page. ``moving`` follows it:
    the browser sends its next position only when ``answered`` says that the last one is on the screen, so positions
    never queue up. Neither is echoed by the kernel: an echo would put back an earlier position while the thumb goes on.
    """

    _esm = (HERE / "drawing_tools.js").read_text() + (HERE / "budget_view.js").read_text()
    _css = HERE / "budget_view.css"
    low = t.Float(0).tag(sync=True)
    high = t.Float(0).tag(sync=True)
    known = t.Float(0).tag(sync=True)
    checkpoint_all = t.Float(0).tag(sync=True)
    value = t.Float(0).tag(sync=True)
    dragged = t.Float(0).tag(sync=True, echo_update=False)
    moving = t.Float(0).tag(sync=True, echo_update=False)
    answered = t.Float(0).tag(sync=True)
    ticks = t.List(t.Float()).tag(sync=True)


class BudgetView:
    """Keeps slider, field and the state's budget together.

    Args:
        state: whose budget it is.
        preview: called with the bytes under the thumb while it is dragged.
    """

    def __init__(self, state: State, preview: Callable[[int], None]) -> None:
        self._state, self._preview = state, preview
        self.slider = BudgetSlider(layout=w.Layout(width="100%"))
        self.field = w.Text(
            description="Budget",
            continuous_update=False,
            layout=w.Layout(width="92px", height="auto", margin="0 6px 0 0", flex="0 0 auto"),
            tooltip='Bytes, "1.5 GiB", "60%" of what keeping everything takes, or "smallest"',
        )
        self.field.add_class("remat-named")
        self._share = w.Label(tooltip="Share of the memory that keeping everything takes, as checkpoint-all does")
        over = w.VBox([self._share, self.slider], layout=w.Layout(flex="1 1 200px", min_width="0", overflow="hidden"))
        self.widget = w.HBox([self.field, over], layout=w.Layout(flex="1 1 300px", min_width="0"))
        self.widget.add_class("remat-budget-row")
        self.slider.observe(lambda change: setattr(state, "budget", int(change["new"])), "value")
        self.slider.observe(self._drag, "moving")
        self.slider.observe(self._let_go, "dragged")
        self.field.observe(self._typed, "value")
        state.observe(self._draw, ["budget", "smallest", "checkpoint_all_peak"])
        state.observe(self._tick, ["frontier", "smallest"])
        self._draw()
        self._tick()

    def _drag(self, change: Any) -> None:
        try:
            self._draw_for(int(change["new"]))
        finally:
            self.slider.answered = change["new"]  # after what the preview sent: messages arrive in order

    def _let_go(self, change: Any) -> None:
        """Where the thumb is let go at the budget that is set, nothing else brings back what was shown for it."""
        state = self._state
        if not change["new"] and int(self.slider.value) == state.budget != state.shown_budget:
            self._draw_for(0)

    def _draw_for(self, dragged: int) -> None:
        budget = dragged or self._state.budget
        self._show(budget)
        with self._state.at_once():  # the schedule comes first: the matrices follow it
            self._preview(budget)
            self._state.dragged = dragged

    def _tick(self, change: Any = None) -> None:
        traits = slider_range(self._state)
        with self.slider.hold_sync():
            self.slider.ticks, self.slider.known = traits["ticks"], traits["known"]

    def _draw(self, change: Any = None) -> None:
        traits = slider_range(self._state)
        with self.slider.hold_sync():
            for name in ("low", "high", "checkpoint_all"):
                setattr(self.slider, name, traits[name])
            self.slider.value = self._state.budget
        self._show(self._state.budget)

    def _show(self, budget: float) -> None:
        self._shown = format_bytes(budget) if budget else ""
        self.field.value = self._shown
        peak = self._state.checkpoint_all_peak
        self._share.value = f"{100 * budget / peak:.1f} % of keeping everything" if peak else ""

    def _typed(self, change: Any) -> None:
        if change["new"] == self._shown:
            return
        try:
            require_unit(change["new"], self._state)
            self._state.set_budget(change["new"])
            self._state.accept()
        except QuantityError as error:
            self._state.refuse(str(error))
        self._draw()


def slider_range(state: State) -> dict[str, Any]:
    """The ends and the marks of the slider, as `BudgetSlider` has them.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import minimum_budget
    >>> slider_range(State(smallest=minimum_budget(linear(8)), checkpoint_all_peak=10))
    {'low': 3, 'high': 11, 'known': 3, 'checkpoint_all': 10, 'ticks': []}
    """
    frontier, smallest = state.frontier, state.smallest
    peaks = {point.peak for point in frontier.nondominated()} if frontier is not None else set()
    ticks = sorted(float(peak) for peak in peaks if peak is not None)
    feasible = [smallest.known_feasible] if smallest else []
    return {
        "low": smallest.lower_bound if smallest else 0,
        "high": max(math.ceil(state.checkpoint_all_peak * BEYOND), state.budget),
        "known": min([*feasible, *ticks[:1]], default=0),  # a solve may have found less
        "checkpoint_all": state.checkpoint_all_peak,
        "ticks": ticks,
    }


def require_unit(text: str, state: State) -> None:
    """Ask back where a number without a unit is too little in bytes, and may have been meant as a share.

    Raises:
        QuantityError: if so; the message says what can be written.

    >>> from dataclasses import replace
    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import minimum_budget
    >>> state = State(smallest=replace(minimum_budget(linear(8)), lower_bound=4000))
    >>> require_unit("60", state)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.QuantityError: '60' alone is bytes, and nothing fits below 3.91 KiB; write "60%" or "60 MiB"
    """
    digits, least = text.strip(), state.smallest.lower_bound if state.smallest else 0
    if least >= LARGE and digits.replace(".", "", 1).isdecimal() and len(digits) < 6 and float(digits) < LARGE:
        raise QuantityError(
            f'{shown(text)} alone is bytes, and nothing fits below {format_bytes(least)}; write "{digits}%" or '
            f'"{digits} MiB"'
        )
