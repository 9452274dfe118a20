"""What the live page holds of each point of its curve: plotly's figures, and why each value is or is not in memory.

Figures are in both themes, with the best points of the curve and with all. What is said of a value is written once for
all stages in which it is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from remat_explorer.explanations import Explanation, explain_value, lives_of
from remat_explorer.explorer.controls import OTHER_METHODS
from remat_explorer.explorer.curve import curve_of, points_on_curve
from remat_explorer.explorer.panels.explain_panel import (
    StatementNumbers,
    life_strip,
    reason_parts,
    schedule_parts,
    sending_reason,
)
from remat_explorer.explorer.panels.side_panel import place
from remat_explorer.explorer.plots_figure import FIXED, HITS, PlotsScene, legend_html
from remat_explorer.explorer.state.state import State
from remat_explorer.figures import Theme, journeys_of
from remat_explorer.offload import TransferPlan
from remat_explorer.plan import Plan
from remat_explorer.report import differences
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import Frontier

THEMES: tuple[Theme, ...] = ("light", "dark")
BUDGET_LINES = {"y": HITS - 1, "x": FIXED - 3}  # traces that follow the budget: over the timeline, through the curve


def record_figures(scene: PlotsScene, state: State) -> dict[str, Any]:
    """Plotly's figure of a state, and where it differs in the dark and with the points of other methods.

    Args:
        scene: draws the state.
        state: has a schedule and a budget.

    Returns:
        The figure, with the bytes of a unit on the axes of the budget's lines, and paths into it with what stands there
        otherwise: colours of the dark theme, points of other methods and the axes that have room for them.
    """
    light = _figure(scene, state, "light")
    others = {
        "dark": _figure(scene, state, "dark"),
        "methods": _figure(scene, state, "light", methods=True),
    }
    return {"figure": light} | {
        name: [[list(path), value] for path, value in differences(light, figure)] for name, figure in others.items()
    }


def _figure(scene: PlotsScene, state: State, theme: Theme, methods: bool = False) -> Any:
    with state.at_once():
        state.theme, state.methods = theme, methods
    traces, layout = scene.compose(state)
    at = {axis: traces[line][axis][:1] for axis, line in BUDGET_LINES.items()}  # nothing where all is of 0 bytes
    units = {axis: state.budget / place[0] if place and place[0] else 1.0 for axis, place in at.items()}
    return to_json({"data": traces, "layout": {**layout, "meta": 0}, "units": units})


def record_curves(frontier: Frontier, sent: dict[str, Any] | None = None) -> dict[str, Any]:
    """The curve that is the slider, with its marks and the legend of its strategies in both themes.

    Args:
        frontier: the curve.
        sent: what `sent_curve` says, with a colour for each theme, or None.

    Returns:
        "best", with the points that no other beats, and "every", or None where there are no others; and the words of
        the button that shows them.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> record_curves(Frontier(linear(8), (solve(linear(8), 4),)))["every"]
    >>> two = Frontier(linear(8), (solve(linear(8), 6), solve(linear(8), 8, "chen-sqrt-n")))
    >>> [[point[0] for point in record_curves(two)[name]["points"]] for name in ("best", "every")]
    [[6], [6, 6]]
    """

    def curve(every: bool) -> dict[str, Any]:
        points = points_on_curve(frontier, every)
        light, dark = (curve_of(frontier, points, theme) for theme in THEMES)
        marks = {"light": light["marks"], "dark": dark["marks"]}
        legend = {theme: legend_html(frontier, theme, best_only=not every) for theme in THEMES}
        return {**light, **(sent or {}), "marks": marks, "legend": legend}

    best, every = curve(False), curve(True)
    others = every if len(every["points"]) > len(best["points"]) else None
    return {"best": best, "every": others, "words": ["Other methods", OTHER_METHODS]}


def to_json(entry: Any) -> Any:
    """Plotly's traces and layout as JSON has them; of the numbers in arrays, five digits are enough to draw.

    >>> to_json({"y": np.array([1, 1 / 3]), "domain": (0, 1)})
    {'y': [1, 0.33333], 'domain': [0, 1]}
    """
    if isinstance(entry, dict):
        return {key: to_json(part) for key, part in entry.items()}
    if isinstance(entry, list | tuple):
        return [to_json(part) for part in entry]
    if not isinstance(entry, np.ndarray):
        return entry.item() if isinstance(entry, np.generic) else entry
    return [int(number) if number == int(number) else float(f"{number:.5g}") for number in entry.tolist()]


class StatementPlaces(StatementNumbers):
    """Statements by their stages and how far behind the begin of the stage they are: places that the page fills.

    Written so, a value's life is the same text in most schedules of a curve; by numbers it is another one in each.

    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> StatementPlaces(plan).number(3) == place("@2.1"), StatementPlaces(plan).count(1, 3) == place("@1.0,2.1")
    (True, True)
    """

    def __init__(self, plan: Plan) -> None:
        self.total = place("total")
        self._stage = plan.timeline.stage
        self._begin = np.searchsorted(self._stage, np.arange(self._stage[-1] + 1))

    def number(self, statement: int) -> str:
        return place(f"@{self._at(statement)}")

    def count(self, first: int, last: int) -> str:
        return place(f"@{self._at(first)},{self._at(last)}")

    def _at(self, statement: int) -> str:
        stage = self._stage[statement]
        return f"{stage}.{statement - self._begin[stage]}"


def record_explanations(schedule: Schedule, plan: Plan, statements: StatementNumbers, value: int) -> list[Any]:
    """What the places of `value_template` are filled with, for a value in all stages.

    Args:
        schedule: R and S.
        plan: its plan.
        statements: how those of the plan are written.
        value: the value.

    Returns:
        Its strip and `schedule_parts`, and its `reason_parts`, each behind the first stage from which on they hold.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(2), np.eye(5), np.tril(np.ones((5, 5)), -1))
    >>> plan = Plan.of(keep)
    >>> [stage for stage, *_ in record_explanations(keep, plan, StatementPlaces(plan), 0)[1]]
    [0, 1, 2, 4]
    """
    answers: dict[int, Explanation] = {}
    events = _events(schedule, plan, value)
    while events:  # a stage that is named is "this stage" in itself
        turns = {turn for event in events for turn in (event, event + 1) if turn < schedule.stages}
        fresh = {turn: explain_value(schedule, plan, turn, value) for turn in turns - answers.keys()}
        answers |= fresh
        events = _named(fresh.values()) - answers.keys()
    reasons: list[tuple[Any, ...]] = []
    for stage in sorted(answers):
        parts = reason_parts(schedule, answers[stage])
        if not reasons or reasons[-1][1:] != parts:
            reasons.append((stage, *parts))
    strip = life_strip(lives_of(plan).of_value[value], statements)
    return [(strip, *schedule_parts(schedule, value)), reasons]


def record_sending(schedule: Schedule, plan: TransferPlan, value: int) -> list[Any]:
    """The same as `record_explanations` of a plan that sends values, without a strip."""
    ways = [journey for journey in journeys_of(plan) if journey.value == value]
    kept = schedule.stages_of(value)
    events = {0, *(np.flatnonzero(kept[1:] != kept[:-1]) + 1).tolist()}
    for way in ways:
        events |= {way.freed + 1, way.fetched + 1}
    reasons = [(stage, sending_reason(plan, schedule, value, stage), "") for stage in sorted(events)]
    return [("", *schedule_parts(schedule, value)), [one for one in reasons if one[0] < schedule.stages]]


def _events(schedule: Schedule, plan: Plan, value: int) -> set[int]:
    """Stages in which something happens to a value, so that another thing may be said of it, there or afterwards."""
    kept, runs = schedule.stages_of(value), schedule.implementations_of(int(schedule.graph.producer[value]))
    events = {0, *np.flatnonzero(runs).tolist(), *np.flatnonzero(kept[1:] != kept[:-1]).tolist()}
    for life in lives_of(plan).of_value[value]:
        events |= {life.first_stage, life.last_stage, *(plan.statements[read].stage for read in life.readers)}
    return events


def _named(answers: Iterable[Explanation]) -> set[int]:
    """The stages that explanations name."""
    words = (word for answer in answers for word in answer.words if not isinstance(word, str))
    return {word.stage for word in words if word.stage is not None}
