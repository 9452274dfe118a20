"""Dynamic Tensor Rematerialization: evict the value that is cheap to compute again, large and long unused.

Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021. The method works while the program runs and does not
know what comes; here its run on the whole graph is turned into a schedule:

* Where each stage of the run computes operations in ascending order, each once, the schedule is that run: R is what
  it computes, S what it holds between stages.
* Otherwise no rows of R say it. The schedule is then the one that holds the same values between stages and computes
  as little as that allows: never more than the run does, but in ascending order, which may need more memory. Where it
  needs more than the budget, the strategy has no schedule, although the run itself fitted.

A schedule frees a value after its last use, which the run could not know, so its peak is at most the run's.
"""

from __future__ import annotations

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.dynamic.simulation import HEURISTICS, Trace, simulate
from remat_explorer.solvers.method import BackgroundSweep, Method, Support
from remat_explorer.solvers.rounding.two_phase import schedule_of, values_of


def solve_dtr(graph: Graph, budget: int, limits: Limits, heuristic: str = "eq") -> Answer:
    """Simulate Dynamic Tensor Rematerialization within the budget.

    Args:
        graph: the training graph, one implementation per operation.
        budget: bytes, resident bytes included.
        limits: time, and whom to tell.
        heuristic: "eq" (classes of evicted values, the paper's own choice for its runtime), "full" (the exact evicted
            neighbourhood) or "local" (the operation alone).

    Returns:
        The schedule, or none where the run ends without memory, thrashes, or no schedule says it within the budget.

    Raises:
        SolverError: if there is no such heuristic, or an operation has several implementations.

    >>> from remat_explorer.instances import linear
    >>> solve_dtr(linear(8), 5, Limits()).schedule.is_frontier_advancing
    True
    """
    if not isinstance(heuristic, str) or heuristic not in HEURISTICS:
        names = ", ".join(map(repr, HEURISTICS))
        raise SolverError(f"heuristic is {shown(heuristic)}; 'dtr' knows {names}")
    condensed = Condensed.of(graph)
    trace = simulate(condensed, budget, heuristic, lambda: limits.over)
    if trace.status != "done":
        limits.tell(f"simulated Dynamic Tensor Rematerialization: {trace.status}", lower_bound=graph.total_cost)
        limit = limits.reached if trace.status == "stopped" else f"the simulated run: {trace.status}"
        return Answer(None, graph.total_cost, limit=limit)
    schedule = schedule_of_trace(condensed, trace)
    if Plan.of(schedule).peak > budget:
        limits.tell("the run repeats operations within stages; no schedule that holds the same values fits")
        return Answer(None, graph.total_cost)
    limits.tell("done", schedule, graph.total_cost)
    return Answer(schedule, graph.total_cost)


def schedule_of_trace(condensed: Condensed, trace: Trace) -> Schedule:
    """The schedule of a complete run: the run itself where rows of R can say it, else what it holds between stages.

    Args:
        condensed: n operations and g groups of values.
        trace: of all n stages.
    """
    if not trace.is_ascending:
        return schedule_of(condensed, trace.held)
    R = np.zeros((condensed.n, condensed.n), dtype=bool)
    for t, row in enumerate(trace.runs):
        R[t, list(row)] = True
    return Schedule(condensed.graph, R, values_of(condensed, trace.held))


METHOD = Method(
    solve_dtr,
    "a simulated run that evicts by cost, size and staleness, without knowing what comes next",
    "Kirisame et al. 2021, sections 2 and 4",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("heuristic",),
    background_sweep=BackgroundSweep.SMALL_GRAPHS,
    symbol="octagon",
)
