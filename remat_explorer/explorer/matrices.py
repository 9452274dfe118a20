"""R, S and U with one linked cursor, drawn by the browser on canvases."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets as t

from remat_explorer.explorer.state import State
from remat_explorer.figures.memory_heatmap import memory_in_stages
from remat_explorer.figures.palette import DARK, LIGHT
from remat_explorer.figures.schedule_heatmap import computation_kinds
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_seconds
from remat_explorer.schedule import Schedule

HERE = Path(__file__).parent
LEVELS = 65535  # U travels as 16 bits per cell: fine enough for three digits, a quarter of int64


class Matrices(anywidget.AnyWidget):
    """The widget: matrices as bytes, names, and the cursor.

    Attributes:
        R: kinds of `computation_kinds`, one byte per cell.
        S: bits, most significant first, rows padded to bytes.
        U: little-endian 16-bit levels, 0 where nothing runs, else share of ``largest`` times `LEVELS`.
    """

    _esm = "".join((HERE / name).read_text() for name in ("quantities.js", "matrix_panels.js", "matrix.js"))
    _css = HERE / "matrix.css"
    rows = t.Int(0).tag(sync=True)
    R = t.Bytes(b"").tag(sync=True)
    S = t.Bytes(b"").tag(sync=True)
    U = t.Bytes(b"").tag(sync=True)
    largest = t.Float(0).tag(sync=True)
    resident = t.Float(0).tag(sync=True)
    budget = t.Float(0).tag(sync=True)
    operations = t.List([]).tag(sync=True)
    values = t.List([]).tag(sync=True)
    palettes = t.Dict({"light": asdict(LIGHT), "dark": asdict(DARK)}).tag(sync=True)
    stage = t.Int(0).tag(sync=True)
    value = t.Int(0).tag(sync=True)
    theme = t.Unicode("light").tag(sync=True)


class MatrixView:
    """Keeps the widget and the state's schedule, cursor, budget and theme together."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = Matrices()
        self._named: Graph | None = None
        state.observe(self._draw, "schedule")
        state.observe(self._move, ["stage", "value", "budget"])
        self.widget.observe(self._select, ["stage", "value"])
        self.widget.observe(lambda change: setattr(state, "theme", change["new"]), "theme")
        self._draw()

    def _draw(self, change: Any = None) -> None:
        schedule, widget = self._state.schedule, self.widget
        with widget.hold_sync():
            if schedule is None:
                widget.rows = 0
                return
            if self._named is not schedule.graph:
                self._named = schedule.graph
                widget.operations, widget.values = labels(schedule.graph)
                widget.resident = schedule.graph.resident_bytes
            widget.rows = schedule.stages
            widget.R = computation_kinds(schedule).tobytes()
            widget.S = np.packbits(schedule.S, axis=1).tobytes()
            widget.U, widget.largest = memory_levels(schedule)
        self._move()

    def _move(self, change: Any = None) -> None:
        state = self._state
        with self.widget.hold_sync():
            self.widget.stage, self.widget.value, self.widget.budget = state.stage, state.value, state.budget

    def _select(self, change: Any) -> None:
        setattr(self._state, change["name"], change["new"])


def labels(graph: Graph) -> tuple[list[list[Any]], list[list[Any]]]:
    """What the hover says: (name, phase, cost, first output) of operations, (name, bytes, producer) of values."""
    operations = [
        [node.name, node.phase, _cost(node.default.cost), node.default.outputs[0] if node.default.outputs else -1]
        for node in graph.operations
    ]
    values = [[value.name, value.bytes, int(graph.producer[v])] for v, value in enumerate(graph.values)]
    return operations, values


def _cost(cost: float) -> str:
    """Costs of captured graphs are seconds; those of the teaching graphs are whole units."""
    return f"cost {cost:g}" if cost == int(cost) and cost > 0 else format_seconds(cost)


def memory_levels(schedule: Schedule) -> tuple[bytes, float]:
    """U as little-endian 16-bit levels, and the bytes of the highest level."""
    U = memory_in_stages(schedule)
    largest = float(U.max())
    levels = np.maximum(1, np.rint(U.data / max(largest, 1.0) * LEVELS))
    return np.where(U.mask, 0, levels).astype("<u2").tobytes(), largest
