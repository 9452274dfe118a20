"""The one timing loop: contenders take turns, each from the same state."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

from remat_explorer.capture.stopwatch import seconds_of
from remat_explorer.runtime.starting_point import StartingPoint

Name = TypeVar("Name")


def median_seconds(
    contenders: Mapping[Name, Callable[[], AbstractContextManager[Callable[[], object]]]],
    start: StartingPoint,
    repeats: int,
    advance: Callable[[], None],
) -> dict[Name, float]:
    """Median seconds of each contender; they take turns, so that a drift of the machine meets all of them.

    Args:
        contenders: prepares a run, as a context that gives what runs it; only that is timed, until the device is done.
        start: the state that every run starts from.
        repeats: runs of each.
        advance: called after every run.

    >>> import torch
    >>> from remat_explorer.capture.step.placement import place
    >>> from remat_explorer.runtime.eager import Eager
    >>> placed = place(torch.nn.Linear(2, 1), (torch.ones(3, 2),), None, "cpu")
    >>> eager = Eager(placed, None)
    >>> found = median_seconds({"eager": eager.prepared}, StartingPoint(eager, placed.device), 3, lambda: None)
    >>> list(found), found["eager"] > 0
    (['eager'], True)
    """
    seconds: dict[Name, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, prepare in contenders.items():
            start.rewind()
            with prepare() as run:
                seconds[name].append(seconds_of(run, start.device))
            del run  # what it was prepared with would take room from the next one
            advance()
    return {name: statistics.median(times) for name, times in seconds.items()}
