"""A plotly figure that lives in the page: it survives a reload, and takes over only what has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

import numpy as np

Trace = dict[str, Any]


def live_figure(
    traces: Sequence[Trace],
    layout: dict[str, Any],
    handed_over: Callable[[], None] = lambda: None,
    lock: AbstractContextManager[Any] | None = None,
) -> Any:
    """Traces and layout as a widget that survives a reload of the page.

    plotly opens the connection to the page before the widget has data and layout, and a page that is fast enough shows
    an empty figure for good: here it is opened when both are there. plotly also freezes `_widget_data` and
    `_widget_layout` when it constructs the widget, so that a page that is loaded again would show the figure as it was
    in the beginning; they are refreshed whenever the whole state is asked for, and `handed_over` is called.

    plotly sends a change as a message and takes the message back at once. While the kernel takes in what the page says,
    a widget holds what it has to tell, and of two tellings only the last: a change that another thread makes meanwhile
    would be lost. So the page is heard under ``lock``, under which changes have to be made, too.
    """
    from plotly.graph_objects import Figure, FigureWidget

    hearing = lock or threading.RLock()

    class LiveFigure(FigureWidget):
        _complete = False

        def __init__(self, *given: Any) -> None:
            self._handed_over = handed_over
            super().__init__(*given)
            self._config = {"displaylogo": False, "displayModeBar": False, "responsive": False}
            self._complete = True
            self.open()

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
                self._handed_over()
            return super().get_state(key=key, drop_defaults=drop_defaults)

    return LiveFigure(Figure(list(traces), layout))


class Canvas:
    """A live figure that is drawn anew with as few changes as possible, all of them in one message.

    Args:
        traces: what the figure shows at first; the first ``fixed`` of them stay, those behind may come and go.
        layout: plotly's layout; later ones have the same keys.
        fixed: how many traces are always there.
        missed: called when a page begins to show the figure, and changes were sent to it before it could hear them:
            it is told the whole state early, but listens only when plotly has been loaded.
        lock: held while what the page says is taken in; who changes the figure holds it.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        layout: dict[str, Any],
        fixed: int,
        missed: Callable[[], None] = lambda: None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._changed = False  # since the page was handed the whole state
        self.figure = live_figure(traces, layout, self._handed_over, lock)
        self._fixed, self._missed = fixed, missed
        self._traces, self._layout = list(traces), layout
        self.figure.observe(self._seen, "_view_count")

    def _handed_over(self) -> None:
        self._changed = False

    def _seen(self, change: Any) -> None:
        if (change["new"] or 0) > (change["old"] or 0) and self._changed:
            self._missed()

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
            self._changed = True
        if moved or any(changes):
            with self.figure.batch_update():
                for trace, change in zip(self.figure.data, changes, strict=True):
                    if change:
                        trace.update(change)
                if moved:
                    self.figure.layout.update(moved)
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
