"""Why each value is in memory in each stage of a schedule, or is not: said once for all stages where it is the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from remat_explorer.explanations import Explanation, explain_value
from remat_explorer.explanations.values import lives_of
from remat_explorer.explorer.panels.explain_panel import reason_parts, schedule_parts
from remat_explorer.explorer.panels.life_strip import StatementNumbers, life_strip
from remat_explorer.explorer.panels.markup import place
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule


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


def explanations(schedule: Schedule, plan: Plan, statements: StatementNumbers, value: int) -> list[Any]:
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
    >>> [stage for stage, *_ in explanations(keep, plan, StatementPlaces(plan), 0)[1]]
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
