"""The model's graph, drawn by the browser: what the selected stage computes and keeps, who reads what, and the step.

`graph_picture` lays a graph out, `step_plan` is a plan as the browser replays it, computation by computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import traitlets as t

from remat_explorer.explanations import cost_text
from remat_explorer.explorer.page_widget import PageWidget, pull_traits, push_traits
from remat_explorer.explorer.state.state import BUDGETS, State
from remat_explorer.figures import DARK, LIGHT, AnyPlan, folded_picture, host_stack, snake_layout, snake_picture
from remat_explorer.graph import Graph
from remat_explorer.graph.repeated_blocks import repeated_blocks
from remat_explorer.offload import Fetch
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all

NONE = -1  # where a computation overwrites nothing
HERE = Path(__file__).parent
SCRIPTS = ("drawing_tools.js", "model_step.js", "model_drawing.js", "model_view.js")
FOLLOWED = ("stage", "computation", "value", "found", "theme", "playing", "speed")
SELECTED = ("stage", "computation", "value", "playing")  # what the browser changes, too


class ModelView:
    """Keeps the widget and the state together; what is hidden is neither laid out nor sent."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = ModelGraph()
        self._drawn: tuple[Graph | None, Schedule | None] = (None, None)
        self._laid_out: tuple[int, ...] = ()  # blocks that are folded in the picture
        state.observe(self._show, ["picture", "graph", "schedule", "folded"])
        state.observe(self._follow, [*FOLLOWED, *BUDGETS])
        self.widget.observe(self._select, SELECTED)
        self.widget.observe(self._fold, "folded")
        self._show()

    def _show(self, change: Any = None) -> None:
        state, widget = self._state, self.widget
        widget.layout.display = "" if state.picture == "model" else "none"
        if state.picture != "model":
            return
        schedule = state.schedule
        graph = state.graph if schedule is None else schedule.graph
        with widget.hold_sync():
            folded: tuple[int, ...] = state.folded if graph is state.graph else ()
            if graph is not self._drawn[0] or folded != self._laid_out:
                widget.picture, widget.boxes = ({}, b"") if graph is None else graph_picture(graph, folded)
                self._laid_out, widget.folded = folded, [*folded]
            if graph is not self._drawn[0]:
                widget.plain = b"" if graph is None else step_plan(Plan.of(checkpoint_all(graph))).tobytes()
            if schedule is not self._drawn[1]:
                widget.stages = 0 if schedule is None else schedule.stages
                widget.R, widget.S = (b"", b"") if schedule is None else schedule.row_lists()
                sends = None if state.sending is None else state.sending.plan
                widget.host = [] if sends is None else host_stack(sends).total.tolist()
                widget.steps = b"" if schedule is None else step_plan(state.shown_plan or Plan.of(schedule)).tobytes()
            self._drawn = (graph, schedule)
            self._follow()

    def _follow(self, change: Any = None) -> None:
        if self._state.picture == "model":
            self.widget.budget = self._state.shown_budget
            push_traits(self._state, self.widget, FOLLOWED)

    def _fold(self, change: Any) -> None:
        if self._state.picture == "model":
            self._state.folded = tuple(self.widget.folded)

    def _select(self, change: Any) -> None:
        """Stage and computation go together: of one alone the state would make the other."""
        if self._state.picture == "model":
            pull_traits(self._state, self.widget, SELECTED)


class ModelGraph(PageWidget):
    """The widget: the picture of a graph, the bits of a schedule, its plan, the cursor and the player.

    Attributes:
        picture: see `graph_picture`; empty when there is no graph.
        boxes: left, top, right and bottom of each operation in columns and rows, little-endian 32-bit floats.
        R: whether an operation runs in a stage, bits, most significant first, rows padded to bytes.
        S: whether a value is kept into a stage, bits in the same way.
        stages: rows of R and S.
        steps: the plan of the schedule, as `step_plan` has it.
        plain: the plan that keeps everything, in the same way.
        host: bytes on the host while each computation runs; empty where nothing can be sent.
        folded: numbers of the repeated blocks that are one box on each rail.
        computation: the one of the plan that the step has come to; one of the stage.
        playing: whether the browser moves the step on, as long as it shows it.
    """

    _esm = "".join((HERE / name).read_text() for name in SCRIPTS)
    _css = HERE / "model_view.css"
    picture = t.Dict({}).tag(sync=True)
    boxes = t.Bytes(b"").tag(sync=True)
    R = t.Bytes(b"").tag(sync=True)
    S = t.Bytes(b"").tag(sync=True)
    host = t.List([]).tag(sync=True)
    stages = t.Int(0).tag(sync=True)
    steps = t.Bytes(b"").tag(sync=True)
    plain = t.Bytes(b"").tag(sync=True)
    palettes = t.Dict({"light": asdict(LIGHT), "dark": asdict(DARK)}).tag(sync=True)
    stage = t.Int(0).tag(sync=True)
    value = t.Int(0).tag(sync=True)
    computation = t.Int(0).tag(sync=True)
    budget = t.Float(0).tag(sync=True)
    playing = t.Bool(False).tag(sync=True)
    speed = t.Int(1).tag(sync=True)
    found = t.List([]).tag(sync=True)
    folded = t.List(t.Int(), []).tag(sync=True)
    theme = t.Unicode("light").tag(sync=True)


def graph_picture(graph: Graph, folded: Sequence[int] = ()) -> tuple[dict[str, Any], bytes]:
    """What the browser draws: numbers and names of the snake's picture, and its boxes.

    Args:
        graph: n operations.
        folded: numbers of its `repeated_blocks` that are one box on each rail.

    ``operations`` has name, phase, cost in words, share of the highest cost, workspace, the values read and written and
    the workspace of each implementation for each operation; ``values`` has name, bytes, producer and whether it stays
    to the end for each value.

    >>> from remat_explorer.instances import linear
    >>> picture, boxes = graph_picture(linear(2))
    >>> picture["rows"], picture["operations"][1], len(boxes) // 16
    (1, ['v1', 'forward', 'cost 1', 1.0, 0, [0], [1], [0]], 5)
    """
    layout, boxes = graph_layout(graph, folded)
    highest = max(float(graph.costs.max()), 1e-30)
    operations = [
        [
            node.name,
            node.phase,
            cost_text(graph, node.default.cost),
            round(node.default.cost / highest, 4),
            node.default.workspace,
            sorted(set(node.default.inputs)),
            list(node.default.outputs),
            [way.workspace for way in node.implementations],
        ]
        for node in graph.operations
    ]
    producer = graph.producer.tolist()
    picture = {
        **layout,
        "operations": operations,
        "values": [
            [value.name, value.bytes, producer[v], bool(graph.persistent[v])] for v, value in enumerate(graph.values)
        ],
        "resident": graph.resident_bytes,
    }
    return picture, boxes


def graph_layout(graph: Graph, folded: Sequence[int] = ()) -> tuple[dict[str, Any], bytes]:
    """The part of `graph_picture` that depends on what is folded.

    ``blocks`` has label, copies, and the operations of the forward and of the backward pass of each repeated block, and
    ``folded`` those that are one box, of which the first operation of each pass stands for all.
    """
    blocks = repeated_blocks(graph)
    drawn = folded_picture(graph, [blocks[number] for number in folded]) if folded else None
    shown = [] if drawn is None else list(folded)
    drawn = drawn or snake_picture(graph, snake_layout(graph))
    layout = {
        "columns": drawn.layout.columns,
        "rows": drawn.layout.rows,
        "lanes": list(drawn.lanes),
        "lines": drawn.lines,
        "labels": [[label.left, label.right, label.row, label.line, label.text] for label in drawn.labels],
        "skips": drawn.layout.skips.tolist(),
        "blocks": [
            [block.label, block.copies, block.forward.ravel().tolist(), np.sort(block.backward.ravel()).tolist()]
            for block in blocks
        ],
        "folded": shown,
    }
    return layout, drawn.boxes.astype("<f4").tobytes()


def step_plan(plan: AnyPlan) -> np.ndarray:
    """The computations of a plan, one behind the other, as whole numbers.

    Each is: stage, operation, implementation (from 0), 1 where it runs again or else 0, the value that it overwrites or
    -1; then three lists, each behind its length: the results that stay, and values that were fetched before it; the
    results that are dropped when it is done; and the values that are freed before the next computation.

    Args:
        plan: its statements begin with a computation.

    Returns:
        int32, of as many numbers as that takes.

    >>> from remat_explorer.instances import linear
    >>> step_plan(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])).tolist()
    [0, 0, 0, 0, -1, 1, 0, 0, 0, 1, 1, 0, 0, -1, 1, 1, 0, 0, 2, 2, 0, 0, -1, 1, 2, 0, 3, 0, 1, 2]
    """
    numbers: list[int] = []
    freed: list[int] = []
    fetched: list[int] = []
    heads: list[tuple[Compute, list[int], list[int]]] = []
    for statement in plan.statements:
        if isinstance(statement, Compute):
            freed = []
            heads.append((statement, fetched, freed))
            fetched = []
        elif isinstance(statement, Free):
            freed.append(statement.value)
        elif isinstance(statement, Fetch):
            fetched.append(statement.value)
    for statement, before, after in heads:
        results = plan.graph.outputs(statement.operation, statement.implementation)
        stay = [*(value for value in results if value not in statement.drops), *before]
        overwrites = NONE if statement.overwrites is None else statement.overwrites
        numbers += [statement.stage, statement.operation, statement.implementation - 1, int(not statement.first)]
        numbers.append(overwrites)
        for values in (stay, statement.drops, after):
            numbers += _counted(values)
    return np.array(numbers, dtype="<i4")


def _counted(values: Iterable[int]) -> list[int]:
    listed = list(values)
    return [len(listed), *listed]
