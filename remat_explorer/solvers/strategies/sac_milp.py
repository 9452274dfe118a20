"""torch's `sac_milp` as a strategy: which modules are checkpointed, and how much each of them drops.

What runs is `remat_explorer.runtime.strategies.sac_milp`, which needs torch and lies in a layer above this one. It is
imported when it first runs, as in `remat_explorer.solvers.strategies.pytorch_budget`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support


def _program() -> ModuleType:
    from remat_explorer.runtime.strategies import sac_milp

    return sac_milp


def _load() -> None:
    _program().sac_ilp()


def _solve(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
    return _program().solve_sac_milp(graph, budget, limits, **options)


def _candidates(graph: Graph, **options: Any) -> Iterator[Candidate]:
    return _program().sac_milp_candidates(graph, **options)


def _shares(graph: Graph) -> Sequence[float]:
    return _program().memory_shares(graph)


METHOD = Method(
    _solve,
    "torch's sac_milp: an integer program of which modules are checkpointed and how much each drops; needs pulp",
    "torch.distributed._tools.sac_ilp, torch 2.13",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.PARTLY,
    knob=Knob("memory_budget", "the budget that the program is given, as a share of keeping everything", _shares),
    candidates=_candidates,
    load=_load,
    background_sweep=BackgroundSweep.NEVER,  # it takes seconds
    symbol="arrow-right",
)
