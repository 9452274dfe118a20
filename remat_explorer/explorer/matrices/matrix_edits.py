"""Edits by hand in the matrix S: what the browser needs for them, and what it asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

from remat_explorer.explorer.state.edited_schedule import EditedSchedule, why_not_editable
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.editing import (
    apply_edit,
    begin_editing,
    refusals_in_status,
    stop_editing,
    toggle_cell,
)
from remat_explorer.graph import Graph

STEPS = {"undo": EditedSchedule.undo, "redo": EditedSchedule.redo}


class MatrixEdits:
    """Tells the widget what can be edited, and does what it asks for; a refusal is said in the status line.

    Args:
        state: whose schedule is edited.
        widget: a `Matrices`.
    """

    def __init__(self, state: State, widget: Any) -> None:
        self._state, self._widget = state, widget
        self._graph: Graph | None = None
        state.observe(lambda _: self.follow(), ["editing", "graph"])

    def follow(self) -> None:
        """Bring the widget up to date."""
        state, widget, edited = self._state, self._widget, self._state.editing
        with widget.hold_sync():
            widget.editing = state.is_edited
            widget.no_editing = why_not_editable(state.graph)
            if state.graph is not self._graph:
                self._graph = state.graph
                widget.fixed = fixed_values(state.graph) if state.graph is not None else []
            vain = edited.in_vain if edited is not None and state.is_edited else np.zeros((0, 0), dtype=bool)
            widget.in_vain = np.packbits(vain, axis=1).tobytes() if vain.any() else b""

    def asked(self, content: dict[str, Any]) -> None:
        """A message of the browser: ``edit`` begins or ends, ``step`` undoes or does again, ``cells`` are changed.

        ``cells`` has either ``stage`` and ``value``, which are flipped, or ``stages`` (first and last), ``values`` and
        ``keep``.
        """
        state = self._state
        with refusals_in_status(state):
            if "edit" in content:
                _switch(state, bool(content["edit"]))
            elif content.get("step") in STEPS:
                apply_edit(state, STEPS[content["step"]])
            elif isinstance(cells := content.get("cells"), dict):
                _change_cells(state, cells)


def fixed_values(graph: Graph) -> list[int]:
    """The values that are never kept, since nobody reads them, or always, since they persist.

    >>> from remat_explorer.instances import linear
    >>> fixed_values(linear(2))
    [4]
    """
    return [v for v in range(len(graph.values)) if graph.persistent[v] or not graph.readers[v]]


def _switch(state: State, on: bool) -> None:
    if on:
        begin_editing(state)
        state.panel = "edit"
    else:
        stop_editing(state)


def _change_cells(state: State, cells: dict[str, Any]) -> None:
    if "stage" in cells:
        toggle_cell(state, int(cells["stage"]), int(cells["value"]))
        return
    first, last = sorted(int(stage) for stage in cells["stages"])
    values, keep = [int(value) for value in cells["values"]], bool(cells["keep"])
    apply_edit(state, lambda edited: edited.paint(range(first, last + 1), values, keep))
