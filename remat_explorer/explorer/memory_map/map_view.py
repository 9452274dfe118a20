"""The memory map as a widget, and what keeps it together with the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import traitlets as t

from remat_explorer.explorer.memory_map.map_cells import (
    arena_words,
    map_colours,
    map_columns,
    map_lines,
    map_names,
    peak_of_other,
)
from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.sharing import give, take
from remat_explorer.explorer.state.state import BUDGETS, State
from remat_explorer.figures.memory_map import KINDS
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.solvers.checkpoint_all import checkpoint_all

HERE = Path(__file__).parent
SCRIPTS = (  # in the order in which they build on one another
    "../quantities.js",
    "../when_seen.js",
    "../enlarged.js",
    "../matrices/matrix_axes.js",
    "../matrices/matrix_zoom.js",
    "../matrices/matrix_parts.js",
    *(f"map_{part}.js" for part in ("data", "moments", "space", "drawing", "parts", "input")),
    "map.js",
)
BOTH_WAYS = ("stage", "value", "zoom", "playing", "map_colours", "moment")  # traits that the browser changes too
FOLLOWED = (*BOTH_WAYS, "found", "theme", "folded")
KEEP_EVERYTHING = "keeping everything"


class MemoryMap(PageWidget):
    """The widget: rectangles, lines, names, and the cursor.

    Attributes:
        names: what `map_names` says; empty when there is no graph.
        columns: what `map_columns` says; empty when there is no schedule.
        lines: what `map_lines` says.
        arena: ``size`` and ``bound`` in bytes, and ``words`` about them.
        kinds: `KINDS`.
        resident, budget: bytes.
        map_colours: whether colours tell kinds or layers.
        moment: a stage, "peaks", or None: what the selected stage's memory is compared with.
        other: what `peak_of_other` says, while peaks are compared; empty otherwise.
        folded: numbers of the repeated blocks that are folded elsewhere; where there are any, the map says why it has
            all copies.
    """

    _esm = "".join((HERE / name).read_text() for name in SCRIPTS)
    _css = "".join((HERE / name).read_text() for name in ("../matrices/matrix.css", "map.css"))
    names = t.Dict({}).tag(sync=True)
    columns = t.Dict({}).tag(sync=True)
    lines = t.Dict({}).tag(sync=True)
    arena = t.Dict({}).tag(sync=True)
    kinds = t.List(list(KINDS)).tag(sync=True)
    resident = t.Float(0).tag(sync=True)
    budget = t.Float(0).tag(sync=True)
    colours = t.Dict(map_colours()).tag(sync=True)
    map_colours = t.Unicode("kind").tag(sync=True)
    moment = t.Any(None).tag(sync=True)
    other = t.Dict({}).tag(sync=True)
    folded = t.List(t.Int(), []).tag(sync=True)
    stage = t.Int(0).tag(sync=True)
    value = t.Int(0).tag(sync=True)
    zoom = t.List(t.Int(), []).tag(sync=True)
    found = t.List(t.Int(), []).tag(sync=True)
    playing = t.Bool(False).tag(sync=True)
    theme = t.Unicode("light").tag(sync=True)


class MemoryView:
    """Keeps the widget and the state together; what is hidden is neither computed nor sent."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = MemoryMap()
        self._named: Graph | None = None
        self._other: Plan | None = None
        state.observe(self._show, ["picture", "arena", "measurement"])
        state.observe(self._follow, [*FOLLOWED, *BUDGETS])
        state.observe(self._compare, ["moment", "other", "arena"])
        self.widget.observe(self._take, BOTH_WAYS)
        self.widget.on_msg(self._asked)
        self._show()

    def _show(self, change: Any = None) -> None:
        state, widget = self._state, self.widget
        widget.layout.display = None if state.picture == "memory" else "none"
        plan, arena = state.plan, state.arena
        if state.picture != "memory":
            return
        with widget.hold_sync():
            if plan is None or arena is None:
                widget.columns = {}
            else:
                if self._named is not plan.graph:
                    self._named = plan.graph
                    widget.names, widget.resident = map_names(plan.graph), plan.graph.resident_bytes
                measured = state.measurement.during if state.measurement is not None else None
                widget.columns, widget.lines = map_columns(plan, arena), map_lines(plan, measured)
                widget.arena = {"size": arena.size, "bound": arena.bound, "words": arena_words(arena)}
            self._follow()
            self._compare()

    def _follow(self, change: Any = None) -> None:
        if self._state.picture == "memory":
            self.widget.budget = self._state.shown_budget
            give(self._state, self.widget, FOLLOWED)

    def _compare(self, change: Any = None) -> None:
        """While peaks are compared, the page knows what the other schedule holds: the pinned one, or keeping all."""
        state, other = self._state, None
        if state.picture != "memory":
            return
        if state.moment == "peaks" and state.schedule is not None:
            if state.other is not None and state.other.plan is not None:
                other, label = state.other.plan, f"{state.other.strategy}, pinned as B"
            else:
                other, label = Plan.of(checkpoint_all(state.schedule.graph)), KEEP_EVERYTHING
            if other is not self._other or not self.widget.other:
                self.widget.other = peak_of_other(other, label)
        else:
            self.widget.other = {}
        self._other = other

    def _take(self, change: Any) -> None:
        if self._state.picture == "memory":
            take(self._state, self.widget, BOTH_WAYS)

    def _asked(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        """The keys n and N of the browser."""
        if "found" in content:
            self._state.select_found(int(content["found"]))
