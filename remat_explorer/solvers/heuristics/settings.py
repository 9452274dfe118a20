"""What the heuristics share around their schedules: strategies made of candidates, and the settings that they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits, Strategy
from remat_explorer.solvers.method import Candidate, cheapest_within


def within_budget(candidates: Callable[..., Iterator[Candidate]]) -> Strategy:
    """The strategy that takes the cheapest candidate that fits into the budget; its options are the candidates' own.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.checkpoint_all import checkpoint_all
    >>> everything = within_budget(lambda graph: iter([Candidate(checkpoint_all(graph))]))
    >>> everything(linear(4), 100, Limits()).schedule.cost
    9.0
    """

    def strategy(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
        return cheapest_within(candidates(graph, **options), budget, limits)

    return strategy


def whole_number(name: str, given: float, least: int, unit: str) -> int:
    """An option that counts something.

    Raises:
        SolverError: quoting it, if it is no integer of at least ``least``.

    >>> whole_number("slots", 0, 1, "states")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.SolverError: slots is 0; give a whole number of states, at least 1
    """
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or given != given // 1 or given < least:
        raise SolverError(f"{name} is {shown(given)}; give a whole number of {unit}, at least {least}")
    return int(given)
