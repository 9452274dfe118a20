"""Schedules from checkpoints: what lies between them is dropped after the forward pass and recomputed by segments.

The last segment, after the last checkpoint, is kept: its backward pass follows at once. When the backward pass reaches
another segment, what it needs of it is recomputed from the checkpoint before it and stays for the segment's backward
operations, so that on a chain every operation runs at most twice (Chen et al., arXiv 1604.06174, section 4).

In other graphs a segment may read from an earlier one past its checkpoint. What is then recomputed of the earlier
segment either stays until its last use, which never costs more than one more forward pass, or is dropped after the
stage unless that stage's operation reads from the earlier segment itself, which needs less memory but may recompute
often. Both are tried; on a chain they are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.heuristics.chain import forward_positions
from remat_explorer.solvers.heuristics.split_points import kept_values
from remat_explorer.solvers.heuristics.static_policy import schedule_of
from remat_explorer.solvers.method import Candidate


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
