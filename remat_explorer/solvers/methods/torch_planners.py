"""The two strategies that call planners of torch: `pytorch-budget` and `sac-milp`.

What runs is `remat_explorer.runtime.min_cut_partitioner` and `remat_explorer.runtime.sac_milp`, which need torch and
lie in a layer above this one. Each is imported when it first runs, so that listing the strategies loads no torch. These
two imports are the only exceptions that the layers' contract names.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from remat_explorer.graph import Graph
from remat_explorer.solvers.method import BackgroundSweep, Knob, Method, Support
from remat_explorer.solvers.solver_interface import Answer, Limits


def _partitioner() -> ModuleType:
    from remat_explorer.runtime import min_cut_partitioner

    return min_cut_partitioner


def _solve_budget(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
    return _partitioner().solve_pytorch_budget(graph, budget, limits, **options)


PYTORCH_BUDGET = Method(
    _solve_budget,
    "PyTorch's min-cut partitioner; its activation_memory_budget is a share of the kept bytes, no bound of the peak; "
    "knapsack=dp, greedy, ilp or dp_knapsack_sliding_hirschberg",
    "torch._functorch.partitioners",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.PARTLY,
    knob=Knob(
        "activation_memory_budget",
        "share of the bytes kept from forward to backward, from 0 to 1",
        lambda graph: _partitioner().budget_shares(graph),
    ),
    options=("knapsack",),
    candidates=lambda graph, **options: _partitioner().pytorch_budget_candidates(graph, **options),
    load=_partitioner,
    background_sweep=BackgroundSweep.NEVER,  # it takes seconds to begin
    symbol="hexagram",
)


def _program() -> ModuleType:
    from remat_explorer.runtime import sac_milp

    return sac_milp


def _solve_sac(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
    return _program().solve_sac_milp(graph, budget, limits, **options)


SAC_MILP = Method(
    _solve_sac,
    "torch's sac_milp: an integer program of which modules are checkpointed and how much each drops; needs pulp",
    "torch.distributed._tools.sac_ilp, torch 2.13",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.PARTLY,
    knob=Knob(
        "memory_budget",
        "the budget that the program is given, as a share of keeping everything",
        lambda graph: _program().memory_shares(graph),
    ),
    candidates=lambda graph, **options: _program().sac_milp_candidates(graph, **options),
    load=lambda: _program().sac_ilp(),
    background_sweep=BackgroundSweep.NEVER,  # it takes seconds
    symbol="arrow-right",
)
