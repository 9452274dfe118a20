"""The one timing loop: contenders take turns, each from the same state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

from remat_explorer.capture.stopwatch import seconds_of
from remat_explorer.runtime.starting_point import StartingPoint

Name = TypeVar("Name")


def seconds_in_turn(
    contenders: Mapping[Name, Callable[[], AbstractContextManager[Callable[[], object]]]],
    start: StartingPoint,
    repeats: int,
    advance: Callable[[], None],
) -> dict[Name, tuple[float, ...]]:
    """Seconds of each contender's runs, which take turns, every other time in the opposite order.

    So neither a drift of the machine nor what ran before favours one of them.

    Args:
        contenders: prepares a run, as a context that gives what runs it; only that is timed, until the device is done.
        start: the state that every run starts from.
        repeats: runs of each.
        advance: called after every run.

    >>> import torch
    >>> from remat_explorer.capture.model_placement import place
    >>> from remat_explorer.runtime.eager import Eager
    >>> placed = place(torch.nn.Linear(2, 1), (torch.ones(3, 2),), None, "cpu")
    >>> eager = Eager(placed, None)
    >>> found = seconds_in_turn({"eager": eager.prepared}, StartingPoint(eager, placed.device), 3, lambda: None)
    >>> list(found), len(found["eager"]), min(found["eager"]) > 0
    (['eager'], 3, True)
    """
    seconds: dict[Name, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats):
        for name, prepare in list(contenders.items())[:: -1 if turn % 2 else 1]:
            start.rewind()
            with prepare() as run:
                seconds[name].append(seconds_of(run, start.device))
            del run  # what it was prepared with would take room from the next one
            advance()
    return {name: tuple(times) for name, times in seconds.items()}
