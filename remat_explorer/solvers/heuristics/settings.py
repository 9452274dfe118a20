"""What the heuristics share around their schedules: strategies made of candidates, and the settings that they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits, Strategy
from remat_explorer.solvers.heuristics.segmentation import every_sqrt_n, greedy, segment_sizes
from remat_explorer.solvers.heuristics.segments import segment_candidates
from remat_explorer.solvers.heuristics.split_points import SplitPoints
from remat_explorer.solvers.method import Candidate, Knob, cheapest_within


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


def sqrt_n_candidates(graph: Graph, split_points: SplitPoints) -> Iterator[Candidate]:
    """Schedules with every floor(sqrt(n))-th of the n split points a checkpoint; nothing can be set.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.heuristics.split_points import linearized_points
    >>> [(found.label, found.schedule.cost) for found in sqrt_n_candidates(linear(8), linearized_points)]
    [('4 checkpoints', 21.0)]
    """
    checkpoints = every_sqrt_n(split_points(graph))
    return segment_candidates(graph, [(f"{len(checkpoints)} checkpoints", checkpoints)])


def greedy_candidates(graph: Graph, split_points: SplitPoints, segment_bytes: float | None) -> Iterator[Candidate]:
    """Schedules of Algorithm 3 for one segment size, or for every one that the search tries, from the largest down.

    Raises:
        SolverError: if the segment size is no integer of at least 0.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.heuristics.split_points import linearized_points
    >>> [found.schedule.cost for found in greedy_candidates(linear(8), linearized_points, 2)]
    [21.0]
    """
    points = split_points(graph)
    if segment_bytes is None:
        sizes = segment_sizes(graph, points)[::-1]
    else:
        sizes = [whole_number("segment_bytes", segment_bytes, 0, "bytes")]
    return segment_candidates(graph, ((f"segments of {size} bytes", greedy(graph, points, size)) for size in sizes))


def segment_bytes_knob(split_points: SplitPoints) -> Knob:
    """Chen's b, with the values that the search over it tries.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.heuristics.split_points import linearized_points
    >>> segment_bytes_knob(linearized_points).values(linear(4))
    [0, 1, 2, 3, 4]
    """
    meaning = "b of Algorithm 3: bytes of forward values after which a segment ends"
    return Knob("segment_bytes", meaning, lambda graph: segment_sizes(graph, split_points(graph)))


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
        raise SolverError(f"{name} is {given!r}; give a whole number of {unit}, at least {least}")
    return int(given)
