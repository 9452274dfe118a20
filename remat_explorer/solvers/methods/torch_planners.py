"""The two strategies that call planners of torch: `pytorch-budget` and `sac-milp`.

What runs is `remat_explorer.runtime.min_cut_partitioner` and `remat_explorer.runtime.sac_milp`, which need torch and
lie in a layer above this one. Each is imported when it first runs, so that listing the strategies loads no torch. These
two imports are the only exceptions that the layers' contract names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support


def _partitioner() -> ModuleType:
    from remat_explorer.runtime import min_cut_partitioner

    return min_cut_partitioner


def _solve_budget(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
    return _partitioner().solve_pytorch_budget(graph, budget, limits, **options)


def _budget_candidates(graph: Graph, **options: Any) -> Iterator[Candidate]:
    return _partitioner().pytorch_budget_candidates(graph, **options)


def _budget_shares(graph: Graph) -> Sequence[float]:
    return _partitioner().budget_shares(graph)


PYTORCH_BUDGET = Method(
    _solve_budget,
    "PyTorch's min-cut partitioner under activation_memory_budget, which does not bound the peak; knapsack=dp, "
    "greedy, ilp or dp_knapsack_sliding_hirschberg",
    "torch._functorch.partitioners",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.PARTLY,
    knob=Knob(
        "activation_memory_budget", "share of the bytes kept from forward to backward, from 0 to 1", _budget_shares
    ),
    options=("knapsack",),
    candidates=_budget_candidates,
    load=_partitioner,
    background_sweep=BackgroundSweep.NEVER,  # it takes seconds to begin
    symbol="hexagram",
)


def _program() -> ModuleType:
    from remat_explorer.runtime import sac_milp

    return sac_milp


def _load_sac() -> None:
    _program().sac_ilp()


def _solve_sac(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
    return _program().solve_sac_milp(graph, budget, limits, **options)


def _sac_candidates(graph: Graph, **options: Any) -> Iterator[Candidate]:
    return _program().sac_milp_candidates(graph, **options)


def _sac_shares(graph: Graph) -> Sequence[float]:
    return _program().memory_shares(graph)


SAC_MILP = Method(
    _solve_sac,
    "torch's sac_milp: an integer program of which modules are checkpointed and how much each drops; needs pulp",
    "torch.distributed._tools.sac_ilp, torch 2.13",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.PARTLY,
    knob=Knob("memory_budget", "the budget that the program is given, as a share of keeping everything", _sac_shares),
    candidates=_sac_candidates,
    load=_load_sac,
    background_sweep=BackgroundSweep.NEVER,  # it takes seconds
    symbol="arrow-right",
)
