"""Which split points become checkpoints: about every sqrt(n)-th, or greedily by bytes.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174), section 4 and Algorithm 3.

Operations at which a forward pass may be cut into segments: the candidates C of Chen's Algorithm 3.

Sources: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174), section 4 and Algorithm 3;
Jain et al., Checkmate (MLSys 2020), section 6.1 and appendices B.1 and B.2.

Schedules from checkpoints: what lies between them is dropped after the forward pass and recomputed by segments.

The last segment, after the last checkpoint, is kept: its backward pass follows at once. When the backward pass reaches
another segment, what it needs of it is recomputed from the checkpoint before it and stays for the segment's backward
operations, so that on a chain every operation runs at most twice (Chen et al., arXiv 1604.06174, section 4).

In other graphs a segment may read from an earlier one past its checkpoint. What is then recomputed of the earlier
segment either stays until its last use, which never costs more than one more forward pass, or is dropped after the
stage unless that stage's operation reads from the earlier segment itself, which needs less memory but may recompute
often. Both are tried; on a chain they are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits, Strategy
from remat_explorer.solvers.heuristics.chain import forward_operations, forward_positions, require_chain
from remat_explorer.solvers.heuristics.static_policy import schedule_of
from remat_explorer.solvers.method import Candidate, cheapest_within

SplitPoints = Callable[[Graph], list[int]]
"""From a graph to the forward operations, ascending, whose outputs may be checkpoints."""


def chain_points(graph: Graph) -> list[int]:
    """Every forward operation of a chain (Chen et al., section 4).

    Raises:
        SolverError: if the graph is no chain; see `remat_explorer.solvers.heuristics.chain`.

    >>> from remat_explorer.instances import linear
    >>> chain_points(linear(4))
    [0, 1, 2, 3]
    """
    return _that_can_be_kept(graph, require_chain(graph, "ap-sqrt-n, ap-greedy or the linearized strategies instead"))


def articulation_split_points(graph: Graph) -> list[int]:
    """Articulation points of the undirected forward graph, and its two ends (Checkmate, appendix B.1).

    All that is computed after an articulation point follows from it alone, where it separates before from after. The
    first and the last forward operation have nothing beyond them to separate, but are split points of a chain, so they
    are split points here: on a chain the result is `chain_points`.

    >>> from remat_explorer.instances import linear
    >>> articulation_split_points(linear(4))
    [0, 1, 2, 3]
    """
    forward = forward_operations(graph)
    return _that_can_be_kept(graph, sorted({*graph.articulation_points(), *forward[:1], *forward[-1:]}))


def linearized_points(graph: Graph) -> list[int]:
    """Every forward operation, as if each read from the one before it in topological order (Checkmate, appendix B.2).

    >>> from remat_explorer.instances import linear
    >>> linearized_points(linear(4))
    [0, 1, 2, 3]
    """
    return _that_can_be_kept(graph, forward_operations(graph))


def kept_values(graph: Graph, k: int) -> list[int]:
    """Values of operation ``k`` that a checkpoint keeps: read by somebody, and not in memory to the end anyway.

    >>> from remat_explorer.instances import linear
    >>> kept_values(linear(4), 2)
    [2]
    """
    return [v for v in graph.outputs(k) if graph.readers[v] and not graph.persistent[v]]


def _that_can_be_kept(graph: Graph, operations: list[int]) -> list[int]:
    """Those with an output to keep, less the loss: after it nothing is left to cut off.

    The loss is what writes a persistent value and is read by no forward operation.
    """

    def ends_the_forward_pass(k: int) -> bool:
        persistent = any(graph.persistent[v] for v in graph.outputs(k))
        read_on = any(not graph.is_backward[reader] for v in graph.outputs(k) for reader in graph.readers[v])
        return persistent and not read_on

    return [k for k in operations if kept_values(graph, k) and not ends_the_forward_pass(k)]


def segment_candidates(graph: Graph, settings: Iterable[tuple[str, list[int]]]) -> Iterator[Candidate]:
    """The schedules of several choices of checkpoints, without repetitions.

    Args:
        graph: the training graph.
        settings: for each choice its label, and the forward operations that are checkpoints, ascending.

    >>> from remat_explorer.instances import linear
    >>> [candidate.schedule.cost for candidate in segment_candidates(linear(8), [("two", [3, 7]), ("again", [3, 7])])]
    [23.0]
    """
    seen: set[tuple[tuple[int, int, int], ...]] = set()
    for label, checkpoints in settings:
        stay, leave = (segment_schedule(graph, checkpoints, once) for once in (True, False))
        alike = stay.sequence == leave.sequence
        ways = [("", stay)] if alike else [(", recomputed once", stay), (", recomputed where missing", leave)]
        for way, schedule in ways:
            if schedule.sequence not in seen:
                seen.add(schedule.sequence)
                yield Candidate(schedule, label + way)


def segment_schedule(graph: Graph, checkpoints: list[int], once: bool = True) -> Schedule:
    """The schedule that keeps the checkpoints and recomputes what is between them.

    Args:
        graph: the training graph.
        checkpoints: forward operations whose outputs are kept, ascending.
        once: whether every recomputed value stays until its last use, not only those of the segments that the stage
            reads from.

    >>> from remat_explorer.instances import linear
    >>> segment_schedule(linear(8), [1, 3, 5, 7]).cost
    21.0
    """
    kept = np.zeros(len(graph.values), dtype=bool)
    for k in checkpoints:
        kept[kept_values(graph, k)] = True
    # a checkpoint is the last operation of its segment
    segment = np.searchsorted(checkpoints, graph.producer, side="left")
    kept |= segment == len(checkpoints)

    def keep(t: int, retained: np.ndarray) -> np.ndarray:
        if not graph.is_backward[t]:
            return kept
        if once:
            return np.ones_like(kept)
        read = [int(np.searchsorted(checkpoints, k, side="left")) for k in forward_positions(graph, t)]
        return kept | retained | np.isin(segment, read)

    return schedule_of(graph, keep)


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


MOST_SETTINGS = 40  # segmentations that a search tries
DENSITY = 5  # values of b, for each of those, that are looked at where there are too many


def every_sqrt_n(points: list[int]) -> list[int]:
    """Checkpoints at the end of every run of floor(sqrt(n)) of the n split points.

    >>> every_sqrt_n([0, 1, 2, 3, 4, 5, 6, 7])
    [1, 3, 5, 7]
    """
    length = max(1, math.isqrt(len(points)))
    return points[length - 1 :: length]


def greedy(graph: Graph, points: list[int], segment_bytes: int) -> list[int]:
    """Chen's Algorithm 3: a checkpoint at the first split point at which a segment exceeds b = ``segment_bytes``.

    Args:
        graph: the training graph.
        points: the candidates C, ascending.
        segment_bytes: b; 0 makes every split point with bytes a checkpoint, and b >= all bytes none.

    >>> from remat_explorer.instances import linear
    >>> greedy(linear(8), list(range(8)), 2), greedy(linear(8), list(range(8)), 8)
    ([2, 5], [])
    """
    return _cut(_bytes_up_to(graph, points), points, segment_bytes)[0]


def segment_sizes(graph: Graph, points: list[int], most: int = MOST_SETTINGS) -> list[int]:
    """Values of b for Algorithm 3, ascending: one for each segmentation that it can give, or ``most`` of them.

    Chen et al. search a few values around sqrt(xy), with x the bytes of all checkpoints and y those of the largest
    segment (section 4). Here the search covers every b: as long as b stays below the bytes of the smallest segment
    that a checkpoint closes, nothing changes, so that number is the next b. Where there are more than ``most`` such
    values, b goes from the smallest to all bytes in equal ratios, and ``most`` of the segmentations that this gives are
    taken, spread evenly.

    >>> from remat_explorer.instances import linear
    >>> segment_sizes(linear(8), list(range(8)))
    [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    upto = _bytes_up_to(graph, points)
    sizes = [0]
    while closed := _cut(upto, points, sizes[-1])[1]:
        sizes.append(min(closed))
        if len(sizes) > most:
            break
    else:
        return sizes
    ratios = np.geomspace(sizes[1], int(upto[-1]), DENSITY * most).round()
    distinct = {tuple(_cut(upto, points, int(size))[0]): int(size) for size in (0, *ratios[::-1])}
    ascending = sorted(distinct.values())
    return [ascending[i] for i in np.unique(np.linspace(0, len(ascending) - 1, most).round().astype(int))]


def _bytes_up_to(graph: Graph, points: list[int]) -> np.ndarray:
    """Bytes that the forward pass writes up to and with each split point, int64 of shape (points,)."""
    sizes = np.zeros(graph.n, dtype=np.int64)
    for k in forward_operations(graph):
        sizes[k] = graph.value_bytes[kept_values(graph, k)].sum()
    return np.cumsum(sizes)[points]


def _cut(upto: np.ndarray, points: list[int], segment_bytes: int) -> tuple[list[int], list[int]]:
    """Checkpoints of Algorithm 3, and the bytes of the segment that each one closes (its temp)."""
    checkpoints: list[int] = []
    closed: list[int] = []
    before = 0
    while True:
        i = int(np.searchsorted(upto, before + segment_bytes, side="right"))
        if i == len(points):
            return checkpoints, closed
        checkpoints.append(points[i])
        closed.append(int(upto[i]) - before)
        before = int(upto[i])
