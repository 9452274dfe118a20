"""The picture of plots: trade-off and memory timeline, one plotly figure, which a reload of the page leaves alive.

In: plotly traces and a layout, and a lock that is held whenever the figure changes. Out: a widget (`live_figure`), and
a `Canvas` that draws further traces and layouts on it and sends only what has changed. `PlotsView` draws the state.

1. The connection to the page opens once the widget has its data and layout, so a page never shows an empty figure.
2. Whenever the page asks for the whole state, it gets the present one, not the one the widget was constructed with.
3. What the page reports is taken in under the lock, so no change that another thread makes meanwhile is lost.
4. What the page reports never deletes data or names that Python has set.
5. When several traces change, each is sent with every property that changes in any of them: plotly deletes a property
   that is sent as undefined.
6. `Canvas.draw` compares the new traces and layout with those drawn. Where the names of traces beyond the fixed ones
   differ, these traces are replaced. Whatever else differs goes in one message, with a new revision number in the
   layout: a page that has another number has missed a change.
7. What is said before the page has loaded plotly is kept there; where the page has missed one message, it draws none of
   those that follow (`plotly_later.js`), so that its number stays behind.
"""

from __future__ import annotations

import base64
import importlib
import itertools
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ipywidgets as w
import numpy as np
import traitlets
import traitlets as t

from remat_explorer.explorer.controllers.screen import choose_solution
from remat_explorer.explorer.page_widget import PageWidget, close_widgets, with_late_connection
from remat_explorer.explorer.plots_figure import FIXED, PlotsScene, legend_html
from remat_explorer.explorer.state.state import BUDGETS, State
from remat_explorer.figures import PLACES
from remat_explorer.figures.palette import palette

WAITING = "The plots are being drawn."
LATER = Path(__file__).parent / "plotly_later.js"
Trace = dict[str, Any]
SHOWN = ["schedule", "solution", "sending", "measurement", "shown_budget", "theme", "other", "frontier", "methods"]


class PlotsView:
    """Keeps the figure and the state together, both ways; what changes at once is drawn once."""

    def __init__(self, state: State) -> None:
        self._state, self._scene = state, PlotsScene()
        self._canvas: Canvas | None = None
        self._drawn: tuple[Any, ...] = ()
        self._marks = w.HTML().add_class("remat-stacking")
        self._place = w.Box([w.Label(WAITING)]).add_class("remat-figure")
        self.page = PlotsPage(self._click, self._again, self._arrived)
        self._importing: threading.Thread | None = None
        self._replaced: list[Any] = []  # figures that the page has missed
        self.widget = w.VBox([self._marks, self._place, self.page])
        self.widget.add_class("remat-plots")
        state.observe(self._draw, [*SHOWN, *BUDGETS, "picture"])
        state.observe(self._move, "stage")
        self._draw()

    @property
    def figure(self) -> Any:
        """The FigureWidget, or None as long as there is no schedule."""
        return self._canvas.figure if self._canvas else None

    def _draw(self, change: Any = None) -> None:
        self.widget.layout.display = None if self._state.picture == "plots" else "none"
        shown = tuple(getattr(self._state, name) for name in SHOWN)
        same = len(self._drawn) == len(shown) and all(a is b for a, b in zip(self._drawn, shown, strict=True))
        if (
            self._state.picture != "plots" or self._state.shown_plan is None or same
        ):  # of traits that change at once each one is announced
            return
        if "plotly.graph_objects" not in sys.modules:
            self._import_plotly()
            return
        self._drawn = shown
        self._marks.value = legend_html(self._state.frontier, self._state.theme, not self._state.methods)
        traces, layout = self._scene.compose(self._state)
        if self._canvas is None:
            self._put(Canvas(traces, layout, FIXED, self._state.lock))
        else:
            self._canvas.draw(traces, layout)
            self.page.revision = self._canvas.revision
        self.page.colour = palette(self._state.theme).ink
        self._move()

    def _import_plotly(self) -> None:
        """The first touch of plotly costs seconds, during which nobody should have to wait for the kernel."""
        if self._importing is None:
            self._importing = threading.Thread(target=self._import, name="remat-plotly", daemon=True)
            self._importing.start()

    def _import(self) -> None:
        importlib.import_module("plotly.graph_objects")
        with self._state.lock:
            if self._place.comm is not None:  # else it was closed meanwhile
                self._draw()

    def _put(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._place.children = (canvas.figure,)
        self.page.revision = canvas.revision

    def _arrived(self) -> None:
        """The figure is on the screen, and those that it replaces end.

        What is still loaded would answer a kernel that knows it no more.
        """
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


class PlotsPage(PageWidget):
    """Lies beside the figure, draws into it and listens to it.

    Moving a shape of plotly's would draw the whole figure anew, 0.1 s. And FigureWidget tells of a click by a trait, of
    which only the last value is kept while the kernel is busy: the news that the pointer has gone replaces the click.
    Nor does it notice that a change did not arrive: here a page that stays behind says so, each time later.

    Args:
        clicked: called with the name of the trace and the number of the point for each click on one.
        missed: called when a page shows another revision of the figure than the one it should.
        arrived: called when a page has drawn the figure for the first time.

    Attributes:
        start, end: where the stage begins and ends on the timeline's axis.
        colour: of the band, which is translucent.
        revision: of the figure that should be on the screen; see `remat_explorer.explorer.plots_view.Canvas`.

    >>> clicks, missed = [], []
    >>> page = PlotsPage(lambda *click: clicks.append(click), lambda: missed.append(page.revision), lambda: None)
    >>> page.move(2.0, 3.0)
    >>> page.start, page.end
    (2.0, 3.0)
    >>> page._handle_custom_msg({"trace": "optimal", "point": 4}, [])
    >>> clicks
    [('optimal', 4)]
    >>> page.revision = 7
    >>> page._handle_custom_msg({"missed": 6}, [])  # it has been told of another one meanwhile
    >>> page._handle_custom_msg({"missed": 7}, [])
    >>> missed
    [7]
    """

    _esm = Path(__file__).parent / "plots_view.js"
    start = t.Float(0).tag(sync=True)
    end = t.Float(0).tag(sync=True)
    colour = t.Unicode("").tag(sync=True)
    revision = t.Int(0).tag(sync=True)

    def __init__(
        self, clicked: Callable[[str, int], None], missed: Callable[[], None], arrived: Callable[[], None]
    ) -> None:
        super().__init__(layout=w.Layout(display="none"))
        self._clicked, self._missed, self._arrived = clicked, missed, arrived
        self.on_msg(self._hear)

    def _hear(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        if "trace" in content:
            self._clicked(content["trace"], content["point"])
        elif "arrived" in content:
            self._arrived()
        elif content["missed"] == self.revision:
            self._missed()

    def move(self, start: float, end: float) -> None:
        """Cover the timeline from ``start`` to ``end``, in units of its axis."""
        with self.hold_sync():
            self.start, self.end = start, end


class Canvas:
    """A live figure that is drawn anew with as few changes as possible, all of them in one message.

    Args:
        traces: what the figure shows at first; the first ``fixed`` of them stay, those behind may come and go.
        layout: plotly's layout; later ones have the same keys.
        fixed: how many traces are always there.
        lock: held while what the page says is taken in; who changes the figure holds it.

    Attributes:
        revision: the number of what is drawn, which is in the layout as its ``meta``. A page whose figure has another
            one has missed a change: it is told the whole state early, but listens only when plotly has been loaded.
    """

    _revisions = itertools.count(1)  # of all canvases, so that one that replaces another continues its numbers

    def __init__(
        self,
        traces: Sequence[Trace],
        layout: dict[str, Any],
        fixed: int,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.revision = next(self._revisions)
        self.figure = live_figure(traces, {**layout, "meta": self.revision}, lock)
        self._fixed = fixed
        self._traces, self._layout = list(traces), layout

    def draw(self, traces: Sequence[Trace], layout: dict[str, Any]) -> None:
        """Take over what differs from what is drawn."""
        renewed = self._names(traces) != self._names(self._traces)
        if renewed:
            self.figure.data = self.figure.data[: self._fixed]
            self._traces = self._traces[: self._fixed]
            if len(traces) > self._fixed:
                self.figure.add_traces(list(traces[self._fixed :]))
                self._traces += traces[self._fixed :]
        changes = [changed_entries(old, new) for old, new in zip(self._traces, traces, strict=True)]
        moved = changed_entries(self._layout, layout)
        if renewed or moved or any(changes):
            self.revision = next(self._revisions)
            with self.figure.batch_update():
                for trace, change in zip(self.figure.data, changes, strict=True):
                    if change:
                        trace.update(change)
                self.figure.layout.update({**moved, "meta": self.revision})
        self._traces, self._layout = list(traces), layout

    def _names(self, traces: Sequence[Trace]) -> list[str]:
        return [trace["name"] for trace in traces[self._fixed :]]


def live_figure(
    traces: Sequence[Trace], layout: dict[str, Any], lock: AbstractContextManager[Any] | None = None
) -> Any:
    """Traces and layout as a widget that survives a reload of the page.

    plotly opens the connection to the page before the widget has data and layout, and a page that is fast enough shows
    an empty figure for good: here it is opened when both are there. plotly also freezes `_widget_data` and
    `_widget_layout` when it constructs the widget, so that a page that is loaded again would show the figure as it was
    in the beginning; they are refreshed whenever the whole state is asked for.

    plotly sends a change as a message and takes the message back at once. While the kernel takes in what the page says,
    a widget holds what it has to tell, and of two tellings only the last: a change that another thread makes meanwhile
    would be lost. So the page is heard under ``lock``, under which changes have to be made, too.

    And plotly forgets what it was given once the page reports a value of its own for the same property: of a page that
    is still drawing an older state, names and data would be lost here, and missing from then on. Nothing is forgotten.

    Where several traces change in different properties, plotly says of the others "undefined", and a page that has no
    view of the figure yet takes them away. So every trace that changes is sent with all properties that change in any.
    """
    from plotly.basedatatypes import Undefined
    from plotly.graph_objects import Figure, FigureWidget

    hearing = lock or threading.RLock()

    class LiveFigure(FigureWidget):
        _esm = _module()
        _complete = False
        probed = traitlets.Bool(False).tag(sync=True)

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._config = {"displaylogo": False, "displayModeBar": False, "responsive": True}
            self._complete = True
            self.open()

        @staticmethod
        def _remove_overlapping_props(input_data: Any, delta_data: Any, prop_path: Any = ()) -> list[Any]:
            return []

        def _send_update_msg(
            self,
            restyle_data: dict[str, list[Any]],
            relayout_data: dict[str, Any],
            trace_indexes: Any = None,
            source_view_id: str | None = None,
        ) -> None:
            traces = self._normalize_trace_indexes(trace_indexes)
            for path, values in restyle_data.items():
                for place, index in enumerate(traces):
                    if values[place] is Undefined and (current := self.data[index][path]) is not None:
                        values[place] = current
            super()._send_update_msg(restyle_data, relayout_data, traces, source_view_id)

        def open(self) -> None:
            if self._complete:
                super().open()

        def set_state(self, sync_data: dict[str, Any]) -> None:
            with hearing:
                super().set_state(sync_data)

        def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
            if key is None and "_widget_data" in self._trait_values and getattr(self, "_layout_obj", None) is not None:
                self._trait_values["_widget_data"] = deepcopy(self._data)
                self._trait_values["_widget_layout"] = deepcopy(self._layout_obj._props)
            return super().get_state(key=key, drop_defaults=drop_defaults)

    return LiveFigure(Figure(list(traces), layout))


@cache
def _module() -> str:
    """plotly's widget for the page: of 5 MB 2.3 are sent, and what came with them is painted before it is compiled."""
    from plotly.graph_objects import FigureWidget

    code = base64.b64encode(zlib.compress(str(FigureWidget._esm).encode(), 1)).decode("ascii")
    return (
        with_late_connection(LATER.read_text("utf-8"))
        .replace("VERSION", version("plotly"))
        .replace('CODE"', f'{code}"')
    )


def changed_entries(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The entries of ``new`` that are not the same in ``old``.

    >>> changed_entries({"x": np.arange(2), "name": "a"}, {"x": np.arange(2), "name": "b"})
    {'name': 'b'}
    """
    return {key: value for key, value in new.items() if not _same(old.get(key), value)}


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if isinstance(old, np.ndarray) or isinstance(new, np.ndarray):
        return np.array_equal(old, new) if old is not None and new is not None else False
    return bool(old == new)
