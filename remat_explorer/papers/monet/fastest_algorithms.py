"""A schedule afterwards given the fastest algorithm of each convolution for which there is room, run by run.

MONeT's paper compares schedules that do not choose algorithms in this way ("greedily post-optimized"): what is kept and
recomputed stays, and only workspace that is free during a convolution is used.

Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), section 5 and appendix D.
"""

from __future__ import annotations

from remat_explorer.errors import GraphError
from remat_explorer.graph import Graph, Implementation
from remat_explorer.plan import Compute, Plan
from remat_explorer.schedule import Schedule

CONVOLUTION = "convolution"  # in the names of the published operations


def with_fastest_algorithms(schedule: Schedule, algorithms: Graph, budget: int) -> float:
    """Cost of the schedule where each convolution takes the fastest algorithm that fits at that moment, in seconds.

    Args:
        schedule: for a graph whose convolutions have one implementation each.
        algorithms: the same network with all algorithms of them, whose times count: modes were measured apart.
        budget: bytes.

    Raises:
        GraphError: if the two graphs have not as many convolutions.
    """
    graph = schedule.graph
    choices = _choices(graph, algorithms)
    plan = Plan.of(schedule)
    total = 0.0
    for statement, during in zip(plan.statements, plan.timeline.during, strict=True):
        if isinstance(statement, Compute):
            own = graph.operations[statement.operation].implementations[statement.implementation - 1]
            room = budget - int(during) + own.workspace
            fitting = (one.cost for one in choices.get(statement.operation, ()) if one.workspace <= room)
            total += min(fitting, default=own.cost)
    return total


def _choices(graph: Graph, algorithms: Graph) -> dict[int, tuple[Implementation, ...]]:
    """All implementations of each convolution, found by their order: both graphs run them in the same one."""
    mine, theirs = (
        [k for k, one in enumerate(each.operations) if CONVOLUTION in one.name] for each in (graph, algorithms)
    )
    if len(mine) != len(theirs):
        raise GraphError(
            f"{graph.name!r} has {len(mine)} convolutions, {algorithms.name!r} {len(theirs)}; give one network"
        )
    return {k: algorithms.operations[other].implementations for k, other in zip(mine, theirs, strict=True)}
