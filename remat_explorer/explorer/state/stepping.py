"""Stages and the computations in them: where the step stands."""

from __future__ import annotations

import numpy as np

from remat_explorer.schedule import Schedule


def inside(schedule: Schedule, computation: int) -> int:
    """The nearest computation that there is, from 0 on."""
    return min(max(0, computation), max(0, len(schedule.sequence) - 1))


def stage_of(schedule: Schedule, computation: int) -> int:
    """The stage of a computation.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    >>> stage_of(keep, 2), last_of(keep, 1)
    (2, 1)
    """
    return schedule.sequence[inside(schedule, computation)][0] if schedule.sequence else 0


def last_of(schedule: Schedule, stage: int) -> int:
    """The last computation of a stage; where it has none, that of the stages before it."""
    runs = int(np.searchsorted(schedule.computations.stage, stage + 1))
    return max(0, runs - 1)
