"""torchtitan's planners of activation memory, as strategies: for the budget, and for smaller ones.

`remat_explorer.solvers.framework_rules.two_level` says what they do, from which descriptions they were written, and
what differs.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.checkpoint_all import checkpoint_all_peak
from remat_explorer.solvers.framework_rules.two_level import (
    KNAPSACK,
    Choose,
    greedy_choice,
    memory_shares,
    two_level_candidates,
)
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support, cheapest_within


def _method(choose: Choose, summary: str, source: str, symbol: str) -> Method:
    def candidates(graph: Graph, memory_budget: float | None = None) -> Iterator[Candidate]:
        return two_level_candidates(graph, choose, memory_budget)

    def solve(graph: Graph, budget: int, limits: Limits, memory_budget: float | None = None) -> Answer:
        share = budget / max(1, checkpoint_all_peak(graph))
        return cheapest_within(two_level_candidates(graph, choose, memory_budget, share), budget, limits)

    return Method(
        solve,
        summary,
        source,
        general_graphs=Support.YES,
        cost_aware=Support.YES,
        memory_aware=Support.PARTLY,
        knob=Knob("memory_budget", "the budget that it is given, as a share of keeping everything", memory_shares),
        candidates=candidates,
        symbol=symbol,
        background_sweep=BackgroundSweep.NEVER,
    )


GREEDY = _method(
    greedy_choice,
    "torchtitan's planner: a linear program gives each layer a share of the budget, a greedy rule fills it",
    "torchtitan, pull request 4636",
    "arrow",
)
TWO_LEVEL = _method(
    KNAPSACK,
    "torchtitan's first planner: a linear program gives each layer a share of the budget, a knapsack fills it",
    "torchtitan, pull request 3975",
    "square-x",
)
