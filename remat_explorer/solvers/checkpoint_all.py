"""Checkpoint-all: compute everything once and keep each value until its last use, as plain execution does."""

from __future__ import annotations

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations


def checkpoint_all(graph: Graph) -> Schedule:
    """The schedule without any recomputation: default implementations, and no optional operation.

    >>> from remat_explorer.instances import linear
    >>> checkpoint_all(linear(8)).cost
    17.0
    """
    once = Computations(np.arange(graph.stages), graph.mandatory, np.ones(graph.stages, dtype=np.uint8))
    return Schedule.leanest(graph, graph.stages, once)


def least_cost(graph: Graph) -> float:
    """Cost of running every mandatory operation once, each in its cheapest implementation; no schedule costs less.

    >>> from remat_explorer.instances import linear
    >>> least_cost(linear(8))
    17.0
    """
    return float(sum(min(way.cost for way in graph.operations[k].implementations) for k in graph.mandatory))


def checkpoint_all_peak(graph: Graph) -> int:
    """Bytes that keeping everything takes: the 100% of a budget.

    >>> from remat_explorer.instances import linear
    >>> checkpoint_all_peak(linear(8))
    10
    """
    return Plan.from_sequence(graph, ((t, k, 1) for t, k in enumerate(graph.mandatory.tolist()))).peak
