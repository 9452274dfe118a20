"""What has to run to have a value again."""

from __future__ import annotations

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.once import once
from remat_explorer.schedule import Schedule


def operations_again(schedule: Schedule, stage: int, value: int, use_computed: bool = True) -> tuple[int, ...]:
    """The operations, ascending, that ``stage`` would run to have ``value`` again, were it not kept into the stage.

    Their inputs are there where the stage retains them (S) or, with ``use_computed``, computes them anyway (R); every
    other input has to be had again as well. Persistent values are there from their first computation on.

    >>> from remat_explorer.instances import linear
    >>> graph = linear(2)
    >>> keep = Schedule(graph, np.eye(5), np.tril(np.ones((5, 5)), -1))
    >>> operations_again(keep, 3, 1)
    (1,)
    """
    available = schedule.retained_into(stage)
    if use_computed:
        available |= schedule.computed_in(stage)
    graph, needed, waiting = schedule.graph, set(), [int(schedule.graph.producer[value])]
    while waiting:
        k = waiting.pop()
        if k in needed:
            continue
        needed.add(k)
        waiting += [int(graph.producer[v]) for v in graph.inputs(k) if v == value or not available[v]]
    return tuple(sorted(needed))


def cost_of(graph: Graph, operations: tuple[int, ...]) -> float:
    """Cost of running operations once each, with their default implementations."""
    return float(graph.costs[list(operations)].sum())


def first_stages(schedule: Schedule) -> np.ndarray:
    """The stage that first computes each value, int64 of shape (values,); -1 where none does.

    >>> from remat_explorer.instances import linear
    >>> first_stages(Schedule(linear(1), np.eye(3), np.zeros((3, 3)))).tolist()
    [0, 1, 2]
    """
    first = np.full(len(schedule.graph.values), -1)
    for t, k, code in reversed(schedule.sequence):
        first[list(schedule.graph.outputs(k, code))] = t
    return first


@once
def first_runs(schedule: Schedule) -> np.ndarray:
    """The stage that first runs each operation, int64 of shape (n,); 0 where none does."""
    first, (stage, operation, _) = np.zeros(schedule.graph.n, dtype=np.int64), schedule.computations
    first[operation[::-1]] = stage[::-1]  # of several entries the last one stays: the earliest stage
    return first
