"""What runs twice: every value that is computed again, with its layer, the time that it takes and what it saves."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from remat_explorer.explanations import recomputed
from remat_explorer.explorer.panels.side_panel import Click, Clickable, colours, data, select, text
from remat_explorer.explorer.state.state import State
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule

MOST = 200  # rows
NOTHING = "Nothing runs twice: every value is kept until its last use."


@dataclass(frozen=True)
class Repeated:
    """A value that is computed again.

    Attributes:
        value: its number.
        stage: where it is computed again for the first time.
        times: how often it is computed again.
        share: cost of that, as a share of computing everything once.
        bytes: its size: what is free while it is not there.
    """

    value: int
    stage: int
    times: int
    share: float
    bytes: int


class RunsTwiceView:
    """The table, whose rows select a value, and show it everywhere while they are pointed at."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = Clickable(self._clicked, "What runs twice")
        self.widget.add_class("remat-twice")
        state.observe(self._draw, ["schedule", "value", "theme"])
        self._draw()

    def _draw(self, change: Any = None) -> None:
        state = self._state
        content = "" if state.schedule is None else runs_twice_html(state.schedule, state.value)
        look = f'data-scroll="{id(state.schedule)}" style="{colours(state.theme)}"'
        self.widget.html = f'<div class="remat-panel" {look}>{content}</div>'

    def _clicked(self, click: Click) -> None:
        select(self._state, click)


def repeated_values(schedule: Schedule) -> list[Repeated]:
    """What a schedule computes again, the dearest first.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> [(row.value, row.stage, row.times) for row in repeated_values(solve(linear(4), 4).schedule)]
    [(0, 7, 1), (1, 7, 1)]
    """
    total = schedule.graph.total_cost or 1.0
    found: dict[int, list[tuple[int, float, int]]] = defaultdict(list)
    for (stage, value), (cost, size) in recomputed(schedule).items():
        found[value].append((stage, cost, size))
    rows = [
        Repeated(
            value, min(stage for stage, _, _ in runs), len(runs), sum(cost for _, cost, _ in runs) / total, runs[0][2]
        )
        for value, runs in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.share, row.value))


def runs_twice_html(schedule: Schedule, selected: int) -> str:
    """The table as HTML, the row of the selected value marked."""
    rows = repeated_values(schedule)
    if not rows:
        return f'<p class="note">{text(NOTHING)}</p>'
    widest = max(row.share for row in rows) or 1.0
    names = [schedule.graph.operations[int(schedule.graph.producer[row.value])].name for row in rows[:MOST]]
    sizes = [format_bytes(row.bytes) for row in rows[:MOST]]
    units = {size.rpartition(" ")[2] for size in sizes}
    unit = f", {units.pop()}" if len(units) == 1 else ""  # said once
    layers = Counter(name.partition(" ")[0] for name in names)
    lines = []
    for row, name, size in zip(rows, names, sizes, strict=False):
        layer = name.partition(" ")[0]
        if layers[layer] > 1 or layer.isdigit():  # too little for a name
            layer = name
        marked = row.value == selected, row.share / widest
        lines.append(_row(row, layer, name, size.removesuffix(unit[2:]), *marked))
    more = f'<tr><td class="note" colspan="3">and {len(rows) - MOST} more</td></tr>' if len(rows) > MOST else ""
    head = '<tr><th>Runs twice</th><th class="number">time</th><th class="number">saves' + f"{unit}</th></tr>"
    return f'<table class="twice roving">{head}{"".join(lines)}{more}</table>'


def _row(row: Repeated, name: str, whole: str, size: str, selected: bool, width: float) -> str:
    times = f" ×{row.times + 1}" if row.times > 1 else ""
    current = ' aria-current="true" class="selected"' if selected else ""
    return (
        f'<tr{data(row.value, row.stage)}{current} title="{text(whole)}">'
        f'<td><i class="bar" style="width:{30 * width:.1f}px"></i>'
        f'<span class="link" role="button" tabindex="0"{data(row.value, row.stage)}>{text(name)}</span>{times}</td>'
        f'<td class="number">+{100 * row.share:.1f} %</td><td class="number">{size}</td></tr>'
    )
