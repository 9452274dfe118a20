"""A plotly figure for a page: it survives a reload of the page, and a redraw sends only what has changed.

In: plotly traces and a layout, and a lock that is held whenever the figure changes. Out: a widget (`live_figure`), and
a `Canvas` that draws further traces and layouts on it.

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
import itertools
import threading
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import traitlets

from remat_explorer.explorer.page_widget import hearing

LATER = Path(__file__).parent / "plotly_later.js"
Trace = dict[str, Any]


@cache
def _module() -> str:
    """plotly's widget for the page: of 5 MB 2.3 are sent, and what came with them is painted before it is compiled."""
    from plotly.graph_objects import FigureWidget

    code = base64.b64encode(zlib.compress(str(FigureWidget._esm).encode(), 1)).decode("ascii")
    return hearing(LATER.read_text("utf-8")).replace("VERSION", version("plotly")).replace('CODE"', f'{code}"')


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
        changes = [changed(old, new) for old, new in zip(self._traces, traces, strict=True)]
        moved = changed(self._layout, layout)
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


def changed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The entries of ``new`` that are not the same in ``old``.

    >>> changed({"x": np.arange(2), "name": "a"}, {"x": np.arange(2), "name": "b"})
    {'name': 'b'}
    """
    return {key: value for key, value in new.items() if not _same(old.get(key), value)}


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if isinstance(old, np.ndarray) or isinstance(new, np.ndarray):
        return np.array_equal(old, new) if old is not None and new is not None else False
    return bool(old == new)
