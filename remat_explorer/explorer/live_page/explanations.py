"""Why each value is in memory in each stage of a schedule, or is not: said once for all stages where it is the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from remat_explorer.explanations import Explanation, explain_value
from remat_explorer.explanations.lives import lives_of
from remat_explorer.explorer.panels.explain_panel import reason_parts, schedule_parts
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule


def explanations(schedule: Schedule, plan: Plan, value: int) -> list[Any]:
    """What the places of `value_template` are filled with, for a value in all stages.

    Args:
        schedule: R and S.
        plan: its plan.
        value: the value.

    Returns:
        Its `schedule_parts`, and its `reason_parts`, each behind the first stage from which on they hold.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(2), np.eye(5), np.tril(np.ones((5, 5)), -1))
    >>> [stage for stage, *_ in explanations(keep, Plan.of(keep), 0)[1]]
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
    return [schedule_parts(schedule, plan, value, lives_of(plan).of_value[value]), reasons]


def _events(schedule: Schedule, plan: Plan, value: int) -> set[int]:
    """Stages in which something happens to a value, so that another thing may be said of it, there or afterwards."""
    kept, runs = schedule.S[:, value], schedule.R[:, schedule.graph.producer[value]] > 0
    events = {0, *np.flatnonzero(runs).tolist(), *np.flatnonzero(kept[1:] != kept[:-1]).tolist()}
    for life in lives_of(plan).of_value[value]:
        events |= {life.first_stage, life.last_stage, *(plan.statements[read].stage for read in life.readers)}
    return events


def _named(answers: Iterable[Explanation]) -> set[int]:
    """The stages that explanations name."""
    words = (word for answer in answers for word in answer.words if not isinstance(word, str))
    return {word.stage for word in words if word.stage is not None}
