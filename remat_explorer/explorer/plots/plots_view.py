"""Trade-off and memory timeline: the one plotly figure of the explorer, alive, and its legend."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from remat_explorer.explorer.page_widget import close_widgets
from remat_explorer.explorer.plots.live_figure import Canvas
from remat_explorer.explorer.plots.plots_legend import OTHER_METHODS, OTHER_METHODS_MEAN, legend_html
from remat_explorer.explorer.plots.plots_page import PlotsPage
from remat_explorer.explorer.plots.plots_scene import FIXED, PlotsScene
from remat_explorer.explorer.plots.plots_sketch import sketch_html
from remat_explorer.explorer.state.state import BUDGETS, State
from remat_explorer.explorer.work.screen import choose_next_point, choose_solution
from remat_explorer.figures.memory_timeline import PLACES
from remat_explorer.figures.palette import palette

SHOWN = ["schedule", "solution", "measurement", "shown_budget", "theme", "other", "frontier", "methods"]


class PlotsView:
    """Keeps the figure and the state together, both ways; what changes at once is drawn once."""

    def __init__(self, state: State) -> None:
        self._state, self._scene = state, PlotsScene()
        self._canvas: Canvas | None = None
        self._drawn: tuple[Any, ...] = ()
        self._marks = w.HTML(layout=w.Layout(flex="1 1 0", min_width="0"))
        self.less = self._step("chevron-left", "less", -1)
        self.more = self._step("chevron-right", "more", 1)
        self.methods = w.ToggleButton(
            description=OTHER_METHODS,
            tooltip=OTHER_METHODS_MEAN,
            layout=w.Layout(width="auto", flex="0 0 auto"),
        )
        self.methods.observe(lambda change: setattr(state, "methods", change["new"]), "value")
        row = w.HBox([self._marks, self.methods, self.less, self.more])
        row.add_class("remat-stacking")
        # The first touch of plotly costs seconds, so the figure comes with the first schedule, a sketch ahead of it.
        self.sketch = w.HTML().add_class("remat-before")
        self._place = w.Box([self.sketch]).add_class("remat-figure")
        self.page = PlotsPage(self._click, self._again, self._arrived)
        self._waits = True
        self._replaced: list[Any] = []  # figures that the page has missed
        self.widget = w.VBox([row, self._place, self.page])
        self.widget.add_class("remat-plots")
        state.observe(self._draw, [*SHOWN, *BUDGETS])
        state.observe(self._move, "stage")
        self._draw()

    def _step(self, icon: str, amount: str, by: int) -> w.Button:
        """A button for those who cannot click on the points."""
        hint = f"Choose the next point of the trade-off curve, with {amount} memory"
        button = w.Button(icon=icon, tooltip=hint, layout=w.Layout(width="26px", flex="0 0 auto", padding="0"))
        button.on_click(lambda _: choose_next_point(self._state, by))
        return button

    @property
    def figure(self) -> Any:
        """The FigureWidget, or None as long as there is no schedule."""
        return self._canvas.figure if self._canvas else None

    def _draw(self, change: Any = None) -> None:
        self.methods.value = self._state.methods
        shown = tuple(getattr(self._state, name) for name in SHOWN)
        same = len(self._drawn) == len(shown) and all(a is b for a, b in zip(self._drawn, shown, strict=True))
        if self._state.plan is None or same:  # of traits that change at once each one is announced
            return
        self._drawn = shown
        self._marks.value = legend_html(self._state.frontier, self._state.theme, not self._state.methods)
        traces, layout = self._scene.compose(self._state)
        if self._waits:
            self.sketch.value = sketch_html(traces, layout)
        if self._canvas is None:
            self._put(Canvas(traces, layout, FIXED, self._state.lock))
        else:
            self._canvas.draw(traces, layout)
            self.page.revision = self._canvas.revision
        self.page.colour = palette(self._state.theme).cursor
        self._move()

    def _put(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._place.children = (self.sketch, canvas.figure)
        self.page.revision = canvas.revision

    def _arrived(self) -> None:
        """Plotly's figure is on the screen, which the sketch stood in for.

        Those that it replaces end now: what is still loaded would answer a kernel that knows it no more.
        """
        self._waits, self.sketch.value = False, ""
        while self._replaced:
            close_widgets(self._replaced.pop())

    def _again(self) -> None:
        """The page has missed a change, as it does while it loads plotly: it gets the figure as it is now."""
        with self._state.lock:
            self._replaced.append(self.figure)
            self._put(Canvas(*self._scene.compose(self._state), FIXED, self._state.lock))

    def _move(self, change: Any = None) -> None:
        self.page.move(*self._scene.span(self._state.stage))

    def _click(self, trace: str, point: int) -> None:
        """On the timeline: the stage; on the trade-off: that solution."""
        if trace == PLACES:
            self._state.stage = self._scene.pointed(point)
        elif solution := self._scene.solution(trace, point):
            choose_solution(self._state, solution)
