"""The strategy `optimal`: the cheapest schedule within the budget, by an anytime search that proves how good it is.

Its schedules are those of Checkmate's problem (9); how it searches is in `remat_explorer.solvers.anytime`.
"""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.solvers.anytime.plain_search import PlainSearch
from remat_explorer.solvers.anytime.sweep_search import plan_each, solve_together
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.method import BackgroundSweep, Method, Support, Together


def solve_optimal(graph: Graph, budget: int, limits: Limits) -> Answer:
    """The cheapest schedule within the budget, or the best known with a bound when the time is up.

    Args:
        graph: the training graph, one implementation per operation.
        budget: bytes, resident bytes included.
        limits: time, back end, threads (a second one runs the local search beside the bounds), and whom to tell.

    Raises:
        SolverError: if an operation has several implementations, or the back end fails.
    """
    return improve_optimal(graph, budget, Answer(None), limits)


def improve_optimal(graph: Graph, budget: int, start: Answer, limits: Limits) -> Answer:
    """The same search from what is known, never worse than that.

    Args:
        graph, budget, limits: as for `solve_optimal`.
        start: a schedule within the budget, and a lower bound on the cost of such schedules; None for either.

    Raises:
        SolverError: as `solve_optimal`.

    >>> from remat_explorer.instances import linear
    >>> improve_optimal(linear(8), 4, Answer(None, 20.0), Limits()).schedule.cost
    26.0
    """
    return PlainSearch(Condensed.of(graph), budget, limits, start.schedule, start.lower_bound or 0.0).run()


METHOD = Method(
    solve_optimal,
    "an anytime search: a schedule at once, better ones, and a proof for the problem of checkmate-ilp",
    "Jain et al. 2020, section 4, for the problem",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    compiled_search=True,
    threads=2,  # the second one runs the local search beside the bounds
    improve=improve_optimal,
    together=Together(plan_each, solve_together),
    complete=True,
    background_sweep=BackgroundSweep.ALWAYS,
    symbol="circle",
)
