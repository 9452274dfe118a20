"""R, S and U with one linked cursor, drawn by the browser on canvases."""

from __future__ import annotations

import time
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import traitlets as t

from remat_explorer.explorer.matrices.matrix_cells import (
    Frame,
    MatrixCells,
    difference_planes,
    folded_blocks,
    kind_colours,
    labels,
)
from remat_explorer.explorer.matrices.matrix_edits import MatrixEdits
from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.navigation import scroll_to
from remat_explorer.explorer.state.sharing import give, take
from remat_explorer.explorer.state.state import State
from remat_explorer.figures.palette import DARK, LIGHT
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule

HERE = Path(__file__).parent
SCRIPTS = (  # in the order in which they build on one another
    "../quantities",
    "../row_lists",
    "../when_seen",
    "../enlarged",
    *(f"matrix_{part}" for part in ("cells", "frames", "panels", "raster", "axes", "zoom", "parts", "input", "edit")),
    *(f"matrix_{part}" for part in ("folds", "folded_panels", "labels")),
    "matrix",
)
BOTH_WAYS = ("stage", "value", "zoom", "playing", "folded")  # traits that the browser changes too
FOLLOWED = (*BOTH_WAYS, "budget", "found")


class Matrices(PageWidget):
    """The widget: matrices as bytes, names, the cursor, and what is marked.

    Attributes:
        rows: stages on the screen, of both schedules when two are compared.
        runs, R, S, U, largest: the attributes of `MatrixCells`.
        compared_computed, compared_kept: what `difference_planes` says; empty when nothing is compared.
        frames: of the trade-off curve, by peak: the fields of `Frame`; empty while the curve is not known.
        dragged: the budget under the thumb, whose frame is shown; 0 when nothing is dragged.
        found: operations that are marked.
        zoom: first and last stage, first and last operation on the screen; empty is everything.
        blocks: that the graph repeats, as `folded_blocks` says; empty where it repeats none.
        folded: numbers of those of which one copy's rows and columns stand for all.
        colouring: whether the colours of R tell kinds of computation or of implementation.
        editing: whether a click in S keeps or drops what is under it.
        no_editing: why schedules of this graph cannot be edited, or "".
        in_vain: bits like S, of what a person keeps though nobody reads it there.
        fixed: values that are always, or never, kept.
        kinds: of implementations, the default one first: label, colour on light ground, colour on dark ground.
    """

    _esm = "".join((HERE / f"{name}.js").read_text() for name in SCRIPTS)
    _css = HERE / "matrix.css"
    rows = t.Int(0).tag(sync=True)
    runs = t.Bytes(b"").tag(sync=True)
    R = t.Bytes(b"").tag(sync=True)
    S = t.Bytes(b"").tag(sync=True)
    U = t.Bytes(b"").tag(sync=True)
    largest = t.Float(0).tag(sync=True)
    compared_computed = t.Bytes(b"").tag(sync=True)
    compared_kept = t.Bytes(b"").tag(sync=True)
    frames = t.List([]).tag(sync=True)
    dragged = t.Float(0).tag(sync=True)
    resident = t.Float(0).tag(sync=True)
    budget = t.Float(0).tag(sync=True)
    operations = t.List([]).tag(sync=True)
    values = t.List([]).tag(sync=True)
    palettes = t.Dict({"light": asdict(LIGHT), "dark": asdict(DARK)}).tag(sync=True)
    stage = t.Int(0).tag(sync=True)
    value = t.Int(0).tag(sync=True)
    zoom = t.List(t.Int(), []).tag(sync=True)
    found = t.List(t.Int(), []).tag(sync=True)
    blocks = t.List([]).tag(sync=True)
    folded = t.List(t.Int(), []).tag(sync=True)
    playing = t.Bool(False).tag(sync=True)
    theme = t.Unicode("light").tag(sync=True)
    colouring = t.Unicode("computation").tag(sync=True)
    kinds = t.List([]).tag(sync=True)
    editing = t.Bool(False).tag(sync=True)
    no_editing = t.Unicode("").tag(sync=True)
    in_vain = t.Bytes(b"").tag(sync=True)
    fixed = t.List(t.Int(), []).tag(sync=True)


class MatrixView:
    """Keeps the widget together with the state: schedules, cursor, zoom, marks, budget, player and theme."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = Matrices()
        self._edits = MatrixEdits(state, self.widget)
        self._named: Graph | None = None
        self._frames: dict[Schedule, Frame] = {}  # of the curve, by peak
        self._drawn: tuple[Schedule | None, Schedule | None] = (None, None)
        state.observe(self._draw, ["schedule", "other"])
        state.observe(self._move, FOLLOWED)
        state.observe(self._follow, ["stage", "value"])
        state.observe(self._switch, ["picture", "colouring"])
        state.observe(self._keep_curve, ["frontier", "sweeping", "editing", "schedule"])
        self.widget.observe(self._take, BOTH_WAYS)
        self.widget.observe(lambda change: setattr(state, "theme", change["new"]), "theme")
        self.widget.on_msg(self._asked)
        self._draw()
        self._switch()

    def _draw(self, change: Any = None) -> None:
        schedule, other, widget = self._state.schedule, self._compared(), self.widget
        if (schedule, other) == self._drawn and change is not None:
            return
        with widget.hold_sync():
            if schedule is None:
                widget.rows = 0
            else:
                self._fill(schedule, other)
            self._drawn = (schedule, other)
            self._edits.follow()
            self._copy()
        _let_it_leave()

    def _fill(self, schedule: Schedule, other: Schedule | None) -> None:
        widget = self.widget
        if self._named is not schedule.graph:
            self._named = schedule.graph
            widget.operations, widget.values = labels(schedule.graph)
            widget.kinds = kind_colours(schedule.graph)
            widget.blocks = folded_blocks(schedule.graph)
            widget.resident = schedule.graph.resident_bytes
        if schedule is not self._drawn[0]:
            cells = MatrixCells.of(schedule)
            widget.runs, widget.R, widget.S = cells.runs, cells.R, cells.S
            widget.U, widget.largest = cells.U, cells.largest
        if other is None:
            widget.compared_computed, widget.compared_kept, widget.rows = b"", b"", schedule.stages
        else:
            widget.compared_computed, widget.compared_kept, widget.rows = difference_planes(schedule, other)

    def _keep_curve(self, change: Any) -> None:
        """The page gets the curve once it is known, so that it can show it by itself while the budget is dragged.

        What a person edits stays on the screen while the budget is dragged, and what is best is not given away.
        """
        state = self._state
        if state.is_edited:
            self._frames, self.widget.frames = {}, []
            return
        if state.frontier is not None and state.sweeping is not None:
            return  # there will be more of it
        points = state.frontier.scheduled() if state.frontier is not None else []
        kept = {schedule: self._frames.get(schedule) or Frame.of(schedule, peak) for schedule, peak in points}
        if kept.keys() != self._frames.keys():
            self._frames = kept
            self.widget.frames = [list(astuple(frame)) for frame in kept.values()]

    def _compared(self) -> Schedule | None:
        """The other schedule, where it is one of the same graph."""
        schedule, other = self._state.schedule, self._state.other
        if schedule is None or other is None or other.schedule is None or other.schedule is schedule:
            return None
        same = [operation.name for operation in schedule.graph.operations] == [
            operation.name for operation in other.schedule.graph.operations
        ]
        return other.schedule if same and len(schedule.graph.values) == len(other.schedule.graph.values) else None

    def _move(self, change: Any) -> None:
        self._copy()
        if change["name"] in ("stage", "value"):
            _let_it_leave()

    def _copy(self) -> None:
        give(self._state, self.widget, FOLLOWED)

    def _follow(self, change: Any) -> None:
        """Where only a part is on the screen, it moves along when the cursor leaves it."""
        state, schedule = self._state, self._state.schedule
        if not state.zoom or schedule is None:
            return
        first, last, left, right = state.zoom
        if change["name"] == "stage":
            first, last = scroll_to(first, last, state.stage_shown(state.stage), self.widget.rows)
        else:
            operation = state.operation_shown(int(schedule.graph.producer[state.value]))
            left, right = scroll_to(left, right, operation, schedule.graph.n)
        state.zoom = (first, last, left, right)

    def _switch(self, change: Any = None) -> None:
        self.widget.colouring = self._state.colouring
        self.widget.layout.display = None if self._state.picture == "matrices" else "none"

    def _take(self, change: Any) -> None:
        take(self._state, self.widget, BOTH_WAYS)

    def _asked(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        """The keys n and N of the browser, and edits."""
        if "found" in content:
            self._state.select_found(int(content["found"]))
        self._edits.asked(content)


def _let_it_leave() -> None:
    """Let the kernel's sending thread have the interpreter, before other views keep it busy for many milliseconds."""
    time.sleep(0.0005)
