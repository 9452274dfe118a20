"""The case study: the schedule on the screen against plain execution and plain rematerialization, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from remat_explorer.explorer.panels.side_panel import Click, Clickable, colours, note, select, text
from remat_explorer.explorer.state.state import BUDGETS, State
from remat_explorer.figures import CaseStudy, case_study_of, colours_of
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import Support, best_within, checkpoint_all, method_of

WIDTH, HEIGHT = 380, 222
LEFT, RIGHT, TOP, BOTTOM = 62, 6, 8, 22  # margins
NAMES, NAME_WIDTH, LETTERS = 66, 10, 10  # room below bars for layers' names; of each; and its letters at most
RIGHT_SIDE, FOOT = WIDTH - RIGHT, HEIGHT - BOTTOM
EAGER, CHECKMATE, PINNED = "eager", "Checkmate", "pinned"
DRAWN = ["schedule", "other", "frontier", *BUDGETS, "picture", "theme"]
_eager: list[Schedule] = []


class CaseView:
    """Draws the case study while it is the chosen picture."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = Clickable(self._clicked, "Case study: memory and overhead by layer")
        self.widget.layout.height = "266px"
        self._drawn: tuple[Any, ...] = ()
        state.observe(self._draw, DRAWN)
        self._draw()

    def _clicked(self, click: Click) -> None:
        select(self._state, click)

    def _draw(self, change: Any = None) -> None:
        state = self._state
        self.widget.layout.display = None if state.picture == "case" else "none"
        if state.picture != "case":
            return
        schedule = state.schedule
        if schedule is None:
            self.widget.html = note("Load a model, and this compares its schedule with plain execution.")
            return
        others = compared_schedules(state, schedule)
        key = (schedule, *others.values(), state.shown_budget, state.theme)
        if len(key) == len(self._drawn) and all(map(_same, key, self._drawn)):
            return
        self._drawn = key
        study = case_study_of("on the screen", schedule, others)
        hues = colours_of(list(study.memory), state.theme)
        body = case_html(study, hues, state.shown_budget) + f'<p class="quiet small">{_said(study, state)}</p>'
        self.widget.html = f'<div class="remat-panel case" style="{colours(state.theme)}">{body}</div>'


def case_html(study: CaseStudy, hues: Mapping[str, str], budget: int = 0) -> str:
    """The pictures side by side, with a key of the schedules.

    Args:
        study: what is drawn.
        hues: a colour for each schedule.
        budget: bytes, drawn as a line; 0 for none.
    """
    keys = "".join(
        f'<span><i style="background:{hues[name]}"></i>{text(name)} ({format_bytes(int(memory.max()))})</span>'
        for name, memory in study.memory.items()
    )
    line = stage_lines(study, hues, budget)
    saved = layer_bars(study.layers, study.saved, hues, _bytes, "Memory saved by each layer")
    overhead = layer_bars(study.layers, study.overhead, hues, _share, "Overhead of each layer")
    return (
        f'<div class="case-key">{keys}</div><div class="case-parts">'
        f"<figure><figcaption>Memory along the execution, highest in each stage</figcaption>{line}"
        f"</figure><figure><figcaption>Memory saved by each layer until the backward pass</figcaption>{saved}"
        f"</figure><figure><figcaption>Overhead of each layer, % of one pass</figcaption>{overhead}</figure></div>"
    )


def stage_lines(study: CaseStudy, hues: Mapping[str, str], budget: int = 0) -> str:
    """Memory in each stage, a line for each schedule."""
    top = 1.05 * max(budget, *(int(line.max()) for line in study.memory.values()), 1)
    stages = max(len(line) for line in study.memory.values())
    parts = _frame(_bytes(top / 1.05), "0 B", f"stages 0 to {stages - 1}")
    for name, line in reversed(list(study.memory.items())):
        across = LEFT + (RIGHT_SIDE - LEFT) * np.arange(stages + 1) / stages
        down = FOOT - (FOOT - TOP) * line / top
        points = " ".join(f"{across[t]:.1f},{down[t]:.1f} {across[t + 1]:.1f},{down[t]:.1f}" for t in range(len(line)))
        said = f"{name}: highest {format_bytes(int(line.max()))} in stage {int(line.argmax())}"
        parts.append(f'<polyline stroke="{hues[name]}" points="{points}"><title>{text(said)}</title></polyline>')
    if budget:
        y = FOOT - (FOOT - TOP) * budget / top
        parts.append(f'<line class="budget" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT_SIDE}" y2="{y:.1f}"/>')
        parts.append(f'<text class="budget" x="{LEFT + 3}" y="{y - 3:.1f}">budget</text>')
    return _svg(parts, "Memory along the execution")


def layer_bars(
    layers: tuple[str, ...],
    amounts: Mapping[str, np.ndarray],
    hues: Mapping[str, str],
    say: Callable[[float], str],
    label: str,
) -> str:
    """A group of bars for each layer, one for each schedule that is compared with; the largest have names."""
    foot = FOOT - NAMES
    every = np.concatenate([np.zeros(1), *amounts.values()])
    high, low = float(every.max()), float(every.min())
    span = 1.05 * (high - low) or 1.0
    zero = TOP + (foot - TOP) * 1.025 * high / span if high - low else foot
    below = f"{len(layers)} layers, in the order of the forward pass"
    parts = _frame(say(high), say(low) if low < 0 else "", below, foot)
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{zero:.1f}" x2="{RIGHT_SIDE}" y2="{zero:.1f}"/>')
    group = (RIGHT_SIDE - LEFT) / max(len(layers), 1)
    width = max(0.8, 0.84 * group / max(len(amounts), 1))
    for place, (name, values) in enumerate(amounts.items()):
        for i in np.flatnonzero(values):
            size = (foot - TOP) * float(values[i]) / span
            x, y = LEFT + group * i + place * width, zero - max(size, 0.0)
            said = f"{layers[i]}, against {name}: {say(float(values[i]))}"
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(abs(size), 0.5):.1f}" '
                f'fill="{hues[name]}"><title>{text(said)}</title></rect>'
            )
    largest = np.abs([np.zeros(len(layers)), *amounts.values()]).max(axis=0)
    named: list[float] = []
    for i in np.argsort(-largest, kind="stable"):
        x = LEFT + group * (i + 0.42)
        if largest[i] and all(abs(x - other) >= NAME_WIDTH for other in named):
            named.append(x)
            turned = f'x="{x:.1f}" y="{foot + 5}" transform="rotate(-90 {x:.1f} {foot + 5})"'
            parts.append(f'<text class="name" {turned} text-anchor="end" dy="3">{text(_cut(layers[i]))}</text>')
    return _svg(parts, label)


def _cut(name: str) -> str:
    """A name of a few letters: as much of its end as is whole, else both ends, which tell layers apart.

    >>> _cut("blocks.0.relu"), _cut("blocks.0.convolution1")
    ('0.relu', 'bloc…tion1')
    """
    parts = name.split(".")
    for i in range(len(parts)):
        if len(end := ".".join(parts[i:])) <= LETTERS and len(end) > 1:
            return end
    return name if len(name) <= LETTERS else f"{name[: LETTERS // 2 - 1]}…{name[-(LETTERS // 2) :]}"


def _frame(high: str, low: str, below: str, foot: int = FOOT) -> list[str]:
    return [
        f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{foot}"/>',
        f'<text x="{LEFT - 4}" y="{TOP + 9}" text-anchor="end">{high}</text>',
        f'<text x="{LEFT - 4}" y="{foot}" text-anchor="end">{low}</text>',
        f'<text x="{(LEFT + RIGHT_SIDE) / 2}" y="{HEIGHT - 7}" text-anchor="middle">{below}</text>',
    ]


def _svg(parts: list[str], label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _bytes(amount: float) -> str:
    count = format_bytes(abs(round(amount)))
    return f"−{count}" if amount <= -0.5 else count


def _share(amount: float) -> str:
    return f"{100 * amount:+.2f} %".replace("-", "−") if amount else "0 %"


def _same(new: Any, old: Any) -> bool:
    """Schedules are the same when they are one; numbers and words when they are equal."""
    return new is old or (isinstance(new, str | int) and new == old)


def compared_schedules(state: State, schedule: Schedule) -> dict[str, Schedule]:
    """What the schedule is compared with: eager, plain Checkmate within the budget as far as known, and the pinned one.

    >>> import remat_explorer as rx
    >>> from remat_explorer.explorer.controllers.screen import show_schedule
    >>> found = rx.solve(rx.linear(8), 4)
    >>> state = State(graph=found.graph, budget=4)
    >>> list(compared_schedules(state, found.schedule))
    ['eager']
    """
    graph, frontier, others = schedule.graph, state.frontier, {}
    others[EAGER] = keep_all_schedule(schedule)
    if frontier is not None and graph.has_choices and frontier.graph is graph:
        plain = [one for one in frontier.points if _is_checkmates(one.strategy)]
        best = best_within(state.shown_budget, plain)
        if best is not None and best.schedule is not None and best.schedule is not schedule:
            others[CHECKMATE] = best.schedule
    pinned = state.other.schedule if state.other is not None else None
    if pinned is not None and pinned.graph is graph and pinned is not schedule:
        others[PINNED] = pinned
    return others


def _is_checkmates(strategy: str) -> bool:
    """Whether a strategy solves Checkmate's problem: any schedule with stages, of default implementations."""
    method = method_of(strategy)
    return method is not None and method.complete and method.choices is not Support.YES


def keep_all_schedule(schedule: Schedule) -> Schedule:
    """The schedule that keeps everything, the same object for the same graph."""
    if not _eager or _eager[0].graph is not schedule.graph:
        _eager[:] = [checkpoint_all(schedule.graph)]
    return _eager[0]


def _said(study: CaseStudy, state: State) -> str:
    words = []
    for name, saved in study.saved.items():
        extra = 100 * float(study.overhead[name].sum())
        total = int(saved.sum())
        kept = f"{format_bytes(abs(total))} {'less' if total >= 0 else 'more'} kept for the backward pass"
        words.append(f"against {name}: {kept}, {extra:+.1f} % of a pass in time")
    if CHECKMATE not in study.saved and state.graph is not None and state.graph.has_choices:
        words.append("plain Checkmate has no schedule within this budget yet (its curve fills in the background)")
    return " · ".join(words)
