"""What runs twice: every value that is computed again, with its layer, the time that it takes and what it saves."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Any

from remat_explorer.explanations import recomputed
from remat_explorer.explorer.panels.side_panel import Click, Clickable, colours, data, select, text
from remat_explorer.explorer.state.state import State
from remat_explorer.figures import journeys_of
from remat_explorer.offload import TransferPlan
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule

MOST = 200  # rows
TRAVEL_WIDTH = 6  # pixels: copies run beside computing, so their times are not compared with its
TRAVELS = "Nothing runs twice or travels: every value is kept until its last use."
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
        travels: whether it is sent to the host and fetched, not computed; ``share`` is then that of the copies.
    """

    value: int
    stage: int
    times: int
    share: float
    bytes: int
    travels: bool = False


class RunsTwiceView:
    """The table, whose rows select a value, and show it everywhere while they are pointed at."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = Clickable(self._clicked, "What runs twice")
        self.widget.add_class("remat-twice")
        state.observe(self._draw, ["schedule", "sending", "value", "theme"])
        self._draw()

    def _draw(self, change: Any = None) -> None:
        state = self._state
        content = "" if state.schedule is None else runs_twice_html(state.schedule, state.value, _plan_of(state))
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


def travelling_values(plan: TransferPlan) -> list[Repeated]:
    """What a plan sends and fetches, with the time of its copies, which computing may hide; the longest first.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload import Transfers
    >>> events = [("compute", 0, 0), ("send", 0, 0), ("compute", 1, 1), ("fetch", 2, 0), ("compute", 2, 2)]
    >>> row = travelling_values(TransferPlan.from_events(linear(1), Transfers(1, 1), events))[0]
    >>> row.value, row.stage, round(row.share, 2)
    (0, 2, 0.67)
    """
    transfers, total = plan.transfers, plan.graph.total_cost or 1.0
    rows: dict[int, Repeated] = {}
    for journey in journeys_of(plan):
        size, before = plan.graph.values[journey.value].bytes, rows.get(journey.value)
        if before is None:
            seconds = transfers.out_seconds(size) + transfers.back_seconds(size)
            rows[journey.value] = Repeated(journey.value, journey.fetched, 1, seconds / total, size, True)
        else:
            share = before.share + transfers.back_seconds(size) / total
            rows[journey.value] = replace(before, times=before.times + 1, share=share)
    return sorted(rows.values(), key=lambda row: (-row.share, row.value))


def _plan_of(state: State) -> TransferPlan | None:
    return None if state.sending is None else state.sending.plan


def runs_twice_html(schedule: Schedule, selected: int, plan: TransferPlan | None = None) -> str:
    """The table as HTML, the row of the selected value marked; with a plan that sends, what travels as well."""
    rows = [*repeated_values(schedule), *(travelling_values(plan) if plan is not None else ())]
    if not rows:
        return f'<p class="note">{text(NOTHING if plan is None else TRAVELS)}</p>'
    widest = max((row.share for row in rows if not row.travels), default=0.0) or 1.0
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
    travel = any(row.travels for row in rows)
    title, time = ("Runs twice or travels", "time (copies)") if travel else ("Runs twice", "time")
    head = f'<tr><th>{title}</th><th class="number">{time}</th><th class="number">saves' + f"{unit}</th></tr>"
    return f'<table class="twice roving">{head}{"".join(lines)}{more}</table>'


def _row(row: Repeated, name: str, whole: str, size: str, selected: bool, width: float) -> str:
    times = f" ×{row.times + (not row.travels)}" if row.times > 1 else ""
    time = f"({100 * row.share:.1f} %)" if row.travels else f"+{100 * row.share:.1f} %"
    current = ' aria-current="true" class="selected"' if selected else ""
    kind = "bar travels" if row.travels else "bar"
    return (
        f'<tr{data(row.value, row.stage)}{current} title="{text(whole)}">'
        f'<td><i class="{kind}" style="width:{TRAVEL_WIDTH if row.travels else 30 * width:.1f}px"></i>'
        f'<span class="link" role="button" tabindex="0"{data(row.value, row.stage)}>{text(name)}</span>{times}</td>'
        f'<td class="number">{time}</td><td class="number">{size}</td></tr>'
    )
