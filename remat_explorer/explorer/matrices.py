"""R, S and U with one linked cursor, drawn by the browser on canvases; edits by hand in S.

`MatrixCells` and `Frame` are what the browser is sent, `MatrixEdits` answers clicks while a schedule is edited, and
`MatrixView` keeps widget and state together. JavaScript: `matrices.js` on the scripts that `SCRIPTS` names before it.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import traitlets as t

from remat_explorer.explanations import cost_text, kinds_in, kinds_of_codes, label_of
from remat_explorer.explorer.controllers.editing import (
    apply_edit,
    begin_editing,
    refusals_in_status,
    stop_editing,
    toggle_cell,
)
from remat_explorer.explorer.page_widget import PageWidget, pull_traits, push_traits
from remat_explorer.explorer.state.edited_schedule import EditedSchedule, why_not_editable
from remat_explorer.explorer.state.navigation import scroll_to
from remat_explorer.explorer.state.state import WITH_MATRICES, State
from remat_explorer.figures import DARK, LIGHT, difference, implementation_colours, journeys_of, kinds_of_computations
from remat_explorer.graph import Graph
from remat_explorer.graph.repeated_blocks import repeated_blocks
from remat_explorer.offload import TransferPlan
from remat_explorer.plan import Compute
from remat_explorer.schedule import Schedule, memory_before

LEVELS = 65535  # U travels as 16 bits: fine enough for three digits, a quarter of int64
COMPUTATIONS = 4  # of computation; a cell of R is its kind plus 4 times the number of the implementation
STEPS = {"undo": EditedSchedule.undo, "redo": EditedSchedule.redo}
HERE = Path(__file__).parent
SCRIPTS = (  # in the order in which they build on one another
    "drawing_tools.js",
    "matrix_drawing.js",
    "matrix_frames.js",
    "canvas_axes.js",
    "matrix_folds.js",
    "matrices.js",
)
BOTH_WAYS = ("stage", "value", "zoom", "playing", "folded")  # traits that the browser changes too
FOLLOWED = (*BOTH_WAYS, "budget", "found")


class MatrixView:
    """Keeps the widget together with the state: schedules, cursor, zoom, marks, budget, player and theme."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = Matrices()
        self._edits = MatrixEdits(state, self.widget)
        self._named: Graph | None = None
        self._frames: dict[Schedule, Frame] = {}  # of the curve, by peak
        self._drawn: tuple[Any, ...] = (None, None, None)  # schedule, the other one, and the solution that sends
        state.observe(self._draw, ["schedule", "sending", "other"])
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
        shown = (schedule, other, self._state.sending)
        if shown == self._drawn and change is not None:
            return
        with widget.hold_sync():
            if schedule is None:
                widget.rows = 0
            else:
                self._fill(schedule, other)
            self._drawn = shown
            self._edits.follow()
            self._copy()
        _let_it_leave()

    def _fill(self, schedule: Schedule, other: Schedule | None) -> None:
        widget = self.widget
        if self._named is not schedule.graph:
            self._named = schedule.graph
            widget.operations, widget.values = hover_labels(schedule.graph)
            widget.kinds = kind_colours(schedule.graph)
            widget.blocks = folded_blocks(schedule.graph)
            widget.resident = schedule.graph.resident_bytes
        sending = self._state.sending
        if schedule is not self._drawn[0] or sending is not self._drawn[2]:
            plan = None if sending is None else sending.plan
            cells = MatrixCells.of(schedule, plan)
            widget.journeys = [] if plan is None else [list(astuple(journey)) for journey in journeys_of(plan)]
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
        push_traits(self._state, self.widget, FOLLOWED)

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
        picture = self._state.picture
        self.widget.compact = picture == "overview"
        self.widget.layout.display = None if picture in WITH_MATRICES else "none"

    def _take(self, change: Any) -> None:
        pull_traits(self._state, self.widget, BOTH_WAYS)

    def _asked(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        """The keys n and N of the browser, and edits."""
        if "found" in content:
            self._state.select_found(int(content["found"]))
        self._edits.asked(content)


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
                widget.fixed = uneditable_values(state.graph) if state.graph is not None else []
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


class Matrices(PageWidget):
    """The widget: matrices as bytes, names, the cursor, and what is marked.

    Attributes:
        rows: stages on the screen, of both schedules when two are compared.
        runs, R, S, U, largest: the attributes of `MatrixCells`.
        compared_computed, compared_kept: what `difference_planes` says; empty when nothing is compared.
        frames: of the trade-off curve, by peak: the fields of `Frame`; empty while the curve is not known.
        journeys: of values to the host and back: the fields of `Journey`.
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
        compact: whether R and S stand alone, beside another picture, without tools and legends.
        hovered: the value that is pointed at in a list of the page, or -1.
        kinds: of implementations, the default one first: label, colour on light ground, colour on dark ground.
    """

    _esm = "".join((HERE / name).read_text() for name in SCRIPTS)
    _css = HERE / "matrices.css"
    rows = t.Int(0).tag(sync=True)
    runs = t.Bytes(b"").tag(sync=True)
    R = t.Bytes(b"").tag(sync=True)
    S = t.Bytes(b"").tag(sync=True)
    U = t.Bytes(b"").tag(sync=True)
    largest = t.Float(0).tag(sync=True)
    compared_computed = t.Bytes(b"").tag(sync=True)
    compared_kept = t.Bytes(b"").tag(sync=True)
    frames = t.List([]).tag(sync=True)
    journeys = t.List([]).tag(sync=True)
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
    compact = t.Bool(False).tag(sync=True)
    hovered = t.Int(-1).tag(sync=True)


@dataclass(frozen=True)
class MatrixCells:
    """The matrices of a schedule, as small as they get without losing anything: what is there, row by row.

    Attributes:
        runs, S: what `Schedule.row_lists` says of R and S.
        R: one byte for each computation in order, the kind of `computation_kinds` plus `COMPUTATIONS` times the
            implementation.
        U: of these cells, little-endian 16-bit, the share of ``largest`` times `LEVELS`, at least 1: first the memory
            that is held before each computation, back to the stage's one before, then the memory while each runs.
        largest: bytes of the highest level.
    """

    runs: bytes
    R: bytes
    S: bytes
    U: bytes
    largest: float

    @staticmethod
    def of(schedule: Schedule, plan: TransferPlan | None = None) -> MatrixCells:
        """The cells of a schedule, or of what a plan that sends values computes, with the memory of that plan.

        >>> from remat_explorer.instances import linear
        >>> cells = MatrixCells.of(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)))
        >>> [np.frombuffer(sent, "<u4").tolist() for sent in (cells.runs, cells.S)], list(cells.R)
        ([[3, 1, 1, 1, 0, 1, 2], [3, 0, 1, 1, 0, 1]], [5, 6, 6])
        """
        computations, held = schedule.computations, schedule.held
        shown = np.concatenate([memory_before(computations, held), held.during])
        if plan is not None:
            runs = np.array([i for i, one in enumerate(plan.statements) if isinstance(one, Compute)], dtype=np.int64)
            line = plan.timeline
            shown = np.concatenate([np.append(plan.graph.resident_bytes, line.after)[runs], line.during[runs]])
        largest = float(shown.max()) if shown.size else 0.0
        levels = np.maximum(1, np.rint(shown * (LEVELS / max(largest, 1.0))))
        kinds = kinds_of_computations(schedule) + computations.implementation * np.uint8(COMPUTATIONS)
        runs, S = schedule.row_lists()
        return MatrixCells(
            runs=runs,
            R=kinds.tobytes(),
            S=S,
            U=levels.astype("<u2").tobytes(),
            largest=largest,
        )


@dataclass(frozen=True)
class Frame:
    """A schedule of the trade-off curve, as small as it gets: the page draws it without asking for it.

    Attributes:
        peak: bytes; it is shown for budgets from here on.
        rows: stages.
        largest: the attribute of `MatrixCells`.
        lengths: of runs, R, S and U in bytes.
        packed: these, one behind the other, as a zlib stream.
        journeys: of values to the host and back, the fields of `Journey`.
    """

    peak: int
    rows: int
    largest: float
    lengths: tuple[int, int, int, int]
    packed: bytes
    journeys: tuple[tuple[int, int, int, int], ...] = ()

    @staticmethod
    def of(schedule: Schedule, peak: int, plan: TransferPlan | None = None) -> Frame:
        """The frame of a schedule with that peak, or of what a plan that sends values computes.

        >>> from remat_explorer.instances import linear
        >>> Frame.of(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)), 3).lengths
        (28, 3, 24, 12)
        """
        cells = MatrixCells.of(schedule, plan)
        journeys = () if plan is None else tuple(astuple(journey) for journey in journeys_of(plan))
        parts = (cells.runs, cells.R, cells.S, cells.U)
        runs, R, S, U = map(len, parts)
        packed = zlib.compress(b"".join(parts))
        return Frame(peak, schedule.stages, cells.largest, (runs, R, S, U), packed, journeys)


def difference_planes(first: Schedule, second: Schedule) -> tuple[bytes, bytes, int]:
    """What `difference` says of R and of S, and the number of stages.

    Each code from 0 to 3 is two bits in two planes, the low one first; rows are padded to bytes.
    """
    cells = difference(first, second)
    return _planes(cells.R), _planes(cells.S), len(cells.R)


def _planes(codes: np.ndarray) -> bytes:
    return b"".join(np.packbits(codes >> bit & 1, axis=1).tobytes() for bit in (0, 1))


def hover_labels(graph: Graph) -> tuple[list[list[Any]], list[list[Any]]]:
    """What the hover says: of operations and of values.

    Returns:
        Operations as (name, phase, cost, first output or -1, names of the implementations where there are several,
        places of their kinds among `kind_colours`), and values as (name, bytes, producer).
    """
    place = {kind: i for i, kind in enumerate(("", *kinds_in(graph)))}
    operations = [
        [
            node.name,
            node.phase,
            cost_text(graph, node.default.cost),
            node.default.outputs[0] if node.default.outputs else -1,
            [way.name for way in node.implementations] if len(node.implementations) > 1 else [],
            [place[kind] for kind in kinds] if len(place) > 1 else [],
        ]
        for node, kinds in zip(graph.operations, kinds_of_codes(graph), strict=True)
    ]
    values = [[value.name, value.bytes, int(graph.producer[v])] for v, value in enumerate(graph.values)]
    return operations, values


def folded_blocks(graph: Graph) -> list[dict[str, Any]]:
    """The blocks that a graph repeats: label, the first copy's name, what to call each copy beside the label, and
    operations and values of each copy.

    >>> from remat_explorer.instances import linear
    >>> (block,) = folded_blocks(linear(4))
    >>> block["label"], block["short"], block["operations"]
    ('v1–v3, v5–v7', ['1', '2', '3'], [[1, 7], [2, 6], [3, 5]])
    """
    return [
        {
            "label": blocks.label,
            "name": blocks.names[0],
            "short": list(blocks.short_names),
            "operations": blocks.operations.tolist(),
            "values": blocks.values.tolist(),
        }
        for blocks in repeated_blocks(graph)
    ]


def kind_colours(graph: Graph) -> list[list[str]]:
    """The kinds of a graph's implementations, the default one first: label, colour on light and on dark ground.

    >>> from remat_explorer.instances import linear
    >>> kind_colours(linear(1))
    [['default', '#B5B5B5', '#6B6F76']]
    """
    kinds = ("", *kinds_in(graph))
    light, dark = implementation_colours(kinds, "light"), implementation_colours(kinds, "dark")
    return [[label_of(kind), light[kind], dark[kind]] for kind in kinds]


def uneditable_values(graph: Graph) -> list[int]:
    """The values that are never kept, since nobody reads them, or always, since they persist.

    >>> from remat_explorer.instances import linear
    >>> uneditable_values(linear(2))
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


def _let_it_leave() -> None:
    """Let the kernel's sending thread have the interpreter, before other views keep it busy for many milliseconds."""
    time.sleep(0.0005)
