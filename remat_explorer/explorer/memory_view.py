"""The memory map: every value a rectangle, from where it is computed to where it is freed, at its offset.

`map_columns`, `map_lines` and `map_names` are what the browser is sent; `MemoryView` keeps widget and state together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import traitlets as t

from remat_explorer.explanations import alive_at
from remat_explorer.explorer.page_widget import PageWidget, pull_traits, push_traits
from remat_explorer.explorer.state.state import BUDGETS, WITH_MAP, State
from remat_explorer.figures import (
    DARK,
    KINDS,
    LIGHT,
    AnyPlan,
    Palette,
    Piece,
    lanes_of,
    layers_of,
    pieces_of,
    waits_of,
)
from remat_explorer.graph import Graph, cost_unit
from remat_explorer.offload import TransferPlan
from remat_explorer.offsets import Arena
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes, format_seconds, format_share
from remat_explorer.solvers import checkpoint_all

MOST_GROUPS = 16  # of layers, beyond which their names are cut after fewer parts
OUTSIDE = "outside of modules"
RESIDENT = -1  # in place of a value; -2 - k stands for the workspace of operation k
HERE = Path(__file__).parent
SCRIPTS = ("drawing_tools.js", "canvas_axes.js", "memory_drawing.js", "memory_view.js")
BOTH_WAYS = ("stage", "value", "zoom", "playing", "map_colours", "moment")  # traits that the browser changes too
FOLLOWED = (*BOTH_WAYS, "found", "theme", "folded")
KEEP_EVERYTHING = "keeping everything"


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
        widget.compact = state.picture == "overview"
        widget.layout.display = None if state.picture in WITH_MAP else "none"
        plan, arena = state.shown_plan, state.arena
        if state.picture not in WITH_MAP:
            return
        with widget.hold_sync():
            if plan is None or arena is None:
                widget.columns = {}
            else:
                if self._named is not plan.graph:
                    self._named = plan.graph
                    widget.names, widget.resident = map_names(plan.graph), plan.graph.resident_bytes
                    widget.plain = peaks_of_stages(Plan.of(checkpoint_all(plan.graph)))
                measured = state.measurement.during if state.measurement is not None else None
                widget.columns, widget.lines = map_columns(plan, arena), map_lines(plan, measured)
                widget.lanes = map_lanes(plan) if isinstance(plan, TransferPlan) else {}
                widget.arena = {"size": arena.size, "bound": arena.bound, "words": describe_arena(arena)}
            self._follow()
            self._compare()

    def _follow(self, change: Any = None) -> None:
        if self._state.picture in WITH_MAP:
            self.widget.budget = self._state.shown_budget
            push_traits(self._state, self.widget, FOLLOWED)

    def _compare(self, change: Any = None) -> None:
        """While peaks are compared, the page knows what the other schedule holds: the pinned one, or keeping all."""
        state, other = self._state, None
        if state.picture not in WITH_MAP:
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
        if self._state.picture in WITH_MAP:
            pull_traits(self._state, self.widget, BOTH_WAYS)

    def _asked(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        """The keys n and N of the browser."""
        if "found" in content:
            self._state.select_found(int(content["found"]))


def map_columns(plan: AnyPlan, arena: Arena) -> dict[str, list[int]]:
    """Everything that a plan holds, in the order of birth, one entry each.

    Time is counted in computations: freeing takes none.

    Returns:
        ``birth``, computations since the one before was born; ``life``, for how many computations it lives;
        ``value``, or what stands for it, less that of the one before; ``kind``, an index of `KINDS`; ``offset``
        and ``bytes``.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offsets import Rectangles, place_at_once
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> columns = map_columns(plan, place_at_once(Rectangles.of(plan)))
    >>> columns["birth"], columns["life"], columns["offset"]
    ([0, 1, 1], [3, 2, 1], [0, 1, 2])
    """
    before = np.concatenate([[0], np.cumsum([isinstance(statement, Compute) for statement in plan.statements])])
    pieces = sorted(pieces_of(plan, arena.rectangles), key=lambda piece: piece.begin)
    rectangle = np.array([piece.rectangle for piece in pieces], dtype=np.int64)
    birth = before[[piece.begin for piece in pieces]].astype(np.int64)
    value = [piece.value if piece.value >= 0 else _standing_for(plan, piece) for piece in pieces]
    return {
        "birth": np.diff(birth, prepend=0).tolist(),
        "life": (before[[piece.end for piece in pieces]] - birth).tolist(),
        "value": np.diff(np.array(value, dtype=np.int64), prepend=0).tolist(),
        "kind": [KINDS.index(piece.kind) for piece in pieces],
        "offset": arena.offsets[rectangle].tolist(),
        "bytes": arena.rectangles.size[rectangle].tolist(),
    }


def _standing_for(plan: AnyPlan, piece: Piece) -> int:
    """What stands in place of a value for resident bytes, or for the workspace of the operation that runs."""
    running = plan.statements[piece.begin]
    return -2 - running.operation if piece.kind != "resident" and isinstance(running, Compute) else RESIDENT


def map_lines(plan: AnyPlan, measured: np.ndarray | None = None) -> dict[str, list[int]]:
    """Where stages begin, and what was measured; what is predicted are the rectangles themselves.

    Args:
        plan: c computations.
        measured: bytes while each statement ran, or None.

    Returns:
        ``starts``, the first computation of each stage, and c at last; ``measured`` bytes while each computation ran,
        empty where nothing was measured.
    """
    computes = np.array([isinstance(statement, Compute) for statement in plan.statements], dtype=bool)
    stages = np.array([statement.stage for statement in plan.statements], dtype=np.int64)[computes]
    last = int(stages[-1]) + 1 if len(stages) else 0
    return {
        "starts": np.searchsorted(stages, np.arange(last + 1)).tolist(),
        "measured": [] if measured is None else np.asarray(measured)[computes].tolist(),
    }


def map_lanes(plan: TransferPlan) -> dict[str, Any]:
    """What is drawn below the map of a plan that sends values; places are as in `Lane`.

    Returns:
        ``engines``, each with ``name``, ``busy`` (value, begin, end, and what it takes in words) and ``stalled``;
        ``waits``, the computations that wait, each with how long in words; ``waiting``, all of that, "" where none
        does; ``host``, most bytes of copies while each computation runs.
    """
    spell = partial(_spell, cost_unit(plan.graph))
    engines = [
        {
            "name": lane.name,
            "busy": [[v, round(begin, 3), round(end, 3), spell(cost)] for v, begin, end, cost in lane.busy],
            "stalled": [[round(begin, 3), round(end, 3)] for begin, end in lane.stalled],
        }
        for lane in lanes_of(plan)
    ]
    waits, host, most = waits_of(plan), [], 0
    for statement, after in zip(plan.statements, plan.timeline.host.tolist(), strict=True):
        most = max(most, after)
        if isinstance(statement, Compute):
            host.append(most)
            most = after
    total = sum(wait for _, wait in waits)
    words = [[run, spell(wait)] for run, wait in waits]
    return {"engines": engines, "waits": words, "waiting": spell(total) if waits else "", "host": host}


def _spell(unit: str, cost: float) -> str:
    return format_seconds(cost) if unit else f"{cost:.4g}"


def peaks_of_stages(plan: Plan) -> list[int]:
    """The most that is in memory in each stage of a plan, bytes.

    >>> from remat_explorer.instances import linear
    >>> peaks_of_stages(Plan.of(checkpoint_all(linear(2))))
    [1, 2, 3, 4, 3]
    """
    line = plan.timeline
    return np.maximum.reduceat(line.during, np.searchsorted(line.stage, np.arange(line.stage[-1] + 1))).tolist()


def describe_arena(arena: Arena) -> str:
    """How large the block is, how near that is to the least, and what lives at most at a time.

    >>> from remat_explorer.offsets import Rectangles, place_at_once
    >>> describe_arena(place_at_once(Rectangles.from_rows([(0, 2, 10), (1, 3, 5)])))
    'one block of 15 B, proven least'
    """
    proven = "proven least" if arena.optimal else f"within {format_share(arena.gap)} of the least"
    return f"one block of {format_bytes(arena.size)}, {proven}"


def map_names(graph: Graph) -> dict[str, Any]:
    """Names of a graph.

    Returns:
        ``values``: name, bytes and layer of each; ``operations``: name and layer of each; ``layers``: name and group
        of each; ``groups``: their names, of which the colours of the map tell.
    """
    layers = layers_of(graph)
    modules = {node.details.module for node in graph.operations if node.details is not None} - {""}
    groups, of_layer = group_layers([name if name in modules or not modules else OUTSIDE for name in layers.names])
    layer_of = layers.of_operation.tolist()
    return {
        "values": [[value.name, value.bytes, layer_of[graph.producer[v]]] for v, value in enumerate(graph.values)],
        "operations": [[node.name, layer_of[k]] for k, node in enumerate(graph.operations)],
        "layers": [[name, group] for name, group in zip(layers.names, of_layer, strict=True)],
        "groups": groups,
    }


def group_layers(names: Sequence[str], most: int = MOST_GROUPS) -> tuple[list[str], list[int]]:
    """Layers that have the first parts of their paths in common, with as many parts as give at most ``most`` groups.

    Args:
        names: paths of modules.
        most: groups, where a single part gives no more.

    Returns:
        Names of the groups, and the group of each layer.

    >>> group_layers(["head", "blocks.0.norm", "blocks.0.act", "blocks.1.norm"], most=3)
    (['head', 'blocks.0', 'blocks.1'], [0, 1, 1, 2])
    """
    parts = [name.split(".") for name in names]
    found: list[str] = []
    deepest = max(map(len, parts), default=1)
    for depth in range(1, deepest + 1):
        heads = [".".join(path[:depth]) for path in parts]
        if depth > 1 and len(set(heads)) > most:
            break
        found = heads
    groups = list(dict.fromkeys(found))
    number = {name: i for i, name in enumerate(groups)}
    return groups, [number[name] for name in found]


def peak_of_other(plan: Plan, label: str) -> dict[str, Any]:
    """What is in memory at the peak of another schedule.

    Returns:
        ``label``; ``stage``; ``bytes``; ``values``; and ``workspace``, with its operation as ``running``.
    """
    memory = alive_at(plan)
    running = plan.statements[memory.statement]
    return {
        "label": label,
        "stage": memory.stage,
        "bytes": memory.total,
        "values": [row.value for row in memory.rows if row.value is not None],
        "workspace": sum(row.bytes for row in memory.rows if row.kind == "workspace"),
        "running": running.operation if isinstance(running, Compute) else -1,
    }


def map_colours() -> dict[str, dict[str, Any]]:
    """Colours of both themes: of the kinds, and of groups of layers, none of which has another meaning here."""
    return {theme: _colours(palette) for theme, palette in (("light", LIGHT), ("dark", DARK))}


def _colours(palette: Palette) -> dict[str, Any]:
    kinds = ("resident", "kept", "temporaries", "gradients", "recompute", "sent")
    layers = (palette.kept, palette.gradients, palette.only_second, palette.temporaries, palette.hues[-1])
    others = (
        "predicted measured budget cursor found only_first only_second both empty ground ink grid resident recompute "
        "sent over"
    )
    return {
        "kinds": [getattr(palette, name) for name in kinds],
        "layers": list(layers),
        **{name: getattr(palette, name) for name in others.split()},
    }


class MemoryMap(PageWidget):
    """The widget: rectangles, lines, names, and the cursor.

    Attributes:
        names: what `map_names` says; empty when there is no graph.
        columns: what `map_columns` says; empty when there is no schedule.
        lines: what `map_lines` says.
        lanes: what `map_lanes` says; empty where nothing can be sent.
        arena: ``size`` and ``bound`` in bytes, and ``words`` about them.
        kinds: `KINDS`.
        resident, budget: bytes.
        map_colours: whether colours tell kinds or layers.
        moment: a stage, "peaks", or None: what the selected stage's memory is compared with.
        other: what `peak_of_other` says, while peaks are compared; empty otherwise.
        plain: what `peaks_of_stages` says of keeping everything: the outline over the map.
        compact: whether the map stands beside another picture, without tools and legends.
        hovered: the value that is pointed at in a list of the page, or -1.
        folded: numbers of the repeated blocks that are folded elsewhere; where there are any, the map says why it has
            all copies.
    """

    _esm = "".join((HERE / name).read_text() for name in SCRIPTS)
    _css = "".join((HERE / name).read_text() for name in ("matrices.css", "memory_view.css"))
    names = t.Dict({}).tag(sync=True)
    columns = t.Dict({}).tag(sync=True)
    lines = t.Dict({}).tag(sync=True)
    lanes = t.Dict({}).tag(sync=True)
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
    plain = t.List(t.Int(), []).tag(sync=True)
    compact = t.Bool(False).tag(sync=True)
    hovered = t.Int(-1).tag(sync=True)
