"""The case study: the schedule on the screen against plain execution and plain rematerialization, layer by layer."""

from __future__ import annotations

from typing import Any

from remat_explorer.explorer.panels.case_picture import case_html
from remat_explorer.explorer.panels.clickable import Click, Clickable
from remat_explorer.explorer.panels.markup import colours, note
from remat_explorer.explorer.panels.side_panel import select
from remat_explorer.explorer.state.state import BUDGETS, State
from remat_explorer.figures.case_study import CaseStudy, case_study_of, colours_of
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all
from remat_explorer.solvers.method import Support
from remat_explorer.solvers.registry import method_of
from remat_explorer.solvers.sweeps.own_points import best_within

EAGER, CHECKMATE, PINNED = "eager", "Checkmate", "pinned"
DRAWN = ["schedule", "other", "frontier", *BUDGETS, "picture", "theme"]


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
        others = others_of(state, schedule)
        key = (schedule, *others.values(), state.shown_budget, state.theme)
        if len(key) == len(self._drawn) and all(map(_same, key, self._drawn)):
            return
        self._drawn = key
        study = case_study_of("on the screen", schedule, others)
        hues = colours_of(list(study.memory), state.theme)
        body = case_html(study, hues, state.shown_budget) + f'<p class="quiet small">{_said(study, state)}</p>'
        self.widget.html = f'<div class="remat-panel case" style="{colours(state.theme)}">{body}</div>'


def _same(new: Any, old: Any) -> bool:
    """Schedules are the same when they are one; numbers and words when they are equal."""
    return new is old or (isinstance(new, str | int) and new == old)


def others_of(state: State, schedule: Schedule) -> dict[str, Schedule]:
    """What the schedule is compared with: eager, plain Checkmate within the budget as far as known, and the pinned one.

    >>> import remat_explorer as rx
    >>> from remat_explorer.explorer.work.solving import show_schedule
    >>> found = rx.solve(rx.linear(8), 4)
    >>> state = State(graph=found.graph, budget=4)
    >>> list(others_of(state, found.schedule))
    ['eager']
    """
    graph, frontier, others = schedule.graph, state.frontier, {}
    others[EAGER] = eager(schedule)
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


_eager: list[Schedule] = []


def eager(schedule: Schedule) -> Schedule:
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
