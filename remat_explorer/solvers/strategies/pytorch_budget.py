"""PyTorch's min-cut partitioner over its `activation_memory_budget`, as a strategy.

What runs is `remat_explorer.runtime.strategies.pytorch_budget`, which needs torch and lies in a layer above this one.
It is imported when it first runs, so that listing the strategies loads no torch. This import is the one exception that
the layers' contract names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support


def _partitioner() -> ModuleType:
    from remat_explorer.runtime.strategies import pytorch_budget

    return pytorch_budget


def _solve(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
    return _partitioner().solve_pytorch_budget(graph, budget, limits, **options)


def _candidates(graph: Graph, **options: Any) -> Iterator[Candidate]:
    return _partitioner().pytorch_budget_candidates(graph, **options)


def _shares(graph: Graph) -> Sequence[float]:
    return _partitioner().budget_shares(graph)


METHOD = Method(
    _solve,
    "PyTorch's min-cut partitioner under activation_memory_budget, which does not bound the peak; knapsack=dp, "
    "greedy, ilp or dp_knapsack_sliding_hirschberg",
    "torch._functorch.partitioners",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.PARTLY,
    knob=Knob("activation_memory_budget", "share of the bytes kept from forward to backward, from 0 to 1", _shares),
    options=("knapsack",),
    candidates=_candidates,
    load=_partitioner,
    background_sweep=BackgroundSweep.NEVER,  # it takes seconds to begin
    symbol="hexagram",
)
