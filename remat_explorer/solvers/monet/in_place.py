"""Implementations that may run in place only, replaced where the input that they overwrite lives on."""

from __future__ import annotations

from remat_explorer.graph import Graph, Implementation
from remat_explorer.graph.rules import stands_in
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.monet.codes import Codes


def elsewhere(schedule: Schedule, codes: Codes | None = None) -> Schedule:
    """The schedule, with another implementation for each run that may only be in place where its input lives on.

    What stands in reads no more and writes no less, and every graph has it; it may cost more and need more memory.

    Args:
        schedule: executable but for that rule.
        codes: for each operation the numbers of the implementations that may be chosen; all if None.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.checkpoint_all import checkpoint_all
    >>> keep = checkpoint_all(linear(4))
    >>> elsewhere(keep) is keep
    True
    """
    graph = schedule.graph
    if not graph.runs_in_place:
        return schedule
    R, read_later = schedule.R.copy(), set[int]()
    for t, k, code in reversed(schedule.sequence):
        way = graph.operations[k].implementations[code - 1]
        if way.in_place and way.overwrites in read_later:
            R[t, k] = code = stand_in(graph, k, way, codes)
            way = graph.operations[k].implementations[code - 1]
        read_later.difference_update(way.outputs)
        read_later.update(way.inputs)
    return schedule if (R == schedule.R).all() else Schedule(graph, R, schedule.S)


def stand_in(graph: Graph, k: int, way: Implementation, codes: Codes | None = None) -> int:
    """The cheapest implementation, by its number from 1, that can run instead of one that may run in place only."""
    ways = graph.operations[k].implementations
    able = [code for code, other in enumerate(ways, 1) if stands_in(other, way)]
    allowed = [code for code in able if codes is None or code in codes[k]]
    return min(allowed or able, key=lambda code: (ways[code - 1].cost, ways[code - 1].workspace, code))
