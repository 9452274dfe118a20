"""PyTorch's activation memory budget as a strategy: its min-cut partitioner decides what is kept, on any graph.

The partitioner itself is asked, with a joint graph that has a call for each operation (`joint_graph`), its own lists of
what is cheap and what is compute intensive (`operators`), the graph's bytes, and the graph's costs as run times. Its
forward graph is the forward pass. Its backward graph has each recomputation right before the first operation that
needs it, and that is the stage in which the schedule recomputes.

The budget is a share of the bytes kept from forward to backward. It bounds no peak: what the backward pass holds while
it computes a long stretch again is not counted, so that the peak rises again when the budget is small. The schedules
are therefore placed by their peak.

What differs from `torch.compile` of the same model: no graph is decomposed or has equal calls merged, no compiler fuses
anything, so that a recomputed pointwise operation has its full cost, and resident tensors count nothing.

Source: torch/_functorch/partitioners.py, `min_cut_rematerialization_partition` and `choose_saved_values_set`; knapsacks
in torch/_functorch/_activation_checkpointing/knapsack.py.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from torch._functorch import config
from torch._inductor.custom_graph_pass import CustomRuntimeEstimator
from torch.fx import Node

from remat_explorer.errors import SolverError, UnknownNameError, shown
from remat_explorer.graph import Graph
from remat_explorer.runtime.strategies.joint_graph import OPERATION, JointGraph, joint_graph
from remat_explorer.runtime.strategies.partition import HIRSCHBERG, SOLVERS, partitioned
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.framework_rules.layers import backward_operations
from remat_explorer.solvers.method import Candidate, cheapest_within

BUDGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.0)


def budget_shares(graph: Graph) -> tuple[float, ...]:
    """What a sweep tries, closer together where little is kept: the same for each graph."""
    return BUDGETS


def solve_pytorch_budget(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
    """The cheapest of `pytorch_budget_candidates` whose peak fits into ``budget``; it proves no bound.

    >>> from remat_explorer.instances import linear
    >>> solve_pytorch_budget(linear(8), 8, Limits()).schedule.cost
    19.0
    """
    return cheapest_within(pytorch_budget_candidates(graph, **options), budget, limits)


def pytorch_budget_candidates(
    graph: Graph, activation_memory_budget: float | None = None, knapsack: str | None = None
) -> Iterator[Candidate]:
    """The different schedules of the partitioner, one knapsack solver after the other, from large to small budgets.

    Args:
        graph: of operations with a single implementation.
        activation_memory_budget: share of the kept bytes, from 0 to 1; None for all of `BUDGETS`.
        knapsack: one of `SOLVERS`; None for "dp", "greedy" and, where scipy is installed, "ilp". The fourth,
            "dp_knapsack_sliding_hirschberg", gives what "dp" gives, but for ties, in less memory.

    Raises:
        SolverError: if the budget is no such share, or scipy is missing for "ilp", or the graph has operations with
            several implementations.
        UnknownNameError: if there is no such knapsack solver.

    >>> from remat_explorer.instances import linear
    >>> [(candidate.label, candidate.schedule.cost) for candidate in pytorch_budget_candidates(linear(8), 0.5, "dp")]
    [('activation_memory_budget=0.5 (dp)', 21.0)]
    """
    budgets = BUDGETS if activation_memory_budget is None else (_share(activation_memory_budget),)
    knapsacks = _knapsacks(knapsack)
    Condensed.of(graph)  # which refuses operations with several implementations
    return _different(graph, [(budget, solver) for solver in knapsacks for budget in budgets])


def partitioned_schedule(graph: Graph, joint: JointGraph, budget: float, knapsack: str) -> Schedule:
    """The schedule that keeps what PyTorch's partitioner keeps.

    Args:
        graph: the training graph.
        joint: what `joint_graph` makes of it.
        budget: share of the kept bytes, from 0 to 1.
        knapsack: one of `SOLVERS`.
    """
    with config.patch({"cse": False}):  # operations without inputs look alike, and are not equal
        _, backward = partitioned(joint.module, joint.forward_results, budget, knapsack, _Costs(graph))
    calls = (node for node in backward.graph.nodes if node.op == "call_function")  # no inputs, which values kept are
    order = [node.meta[OPERATION] for node in calls if OPERATION in node.meta]
    in_backward = backward_operations(graph)
    computed = [(k, k, 1) for k in range(graph.n)]
    waiting: list[int] = []
    for k in order:
        if in_backward[k]:
            computed += [(k, again, 1) for again in waiting]
            waiting = []
        else:
            waiting.append(k)
    return Schedule.leanest(graph, graph.n, Computations.of(computed))


class _Costs(CustomRuntimeEstimator):
    """The graph's costs as the partitioner's run times, as shares: the knapsack adds them up in single precision."""

    def __init__(self, graph: Graph) -> None:
        self._costs = graph.costs / (graph.total_cost or 1.0)

    def __call__(self, node: Node) -> float:
        return float(self._costs[node.meta[OPERATION]])

    def uuid(self) -> None:
        """For a cache of compiled graphs, which is not used here."""


def _different(graph: Graph, settings: list[tuple[float, str]]) -> Iterator[Candidate]:
    if not any(backward_operations(graph)):  # there is nothing to part, which the partitioner does not expect
        yield Candidate(checkpoint_all(graph))
        return
    joint, seen = joint_graph(graph), set[tuple[tuple[int, int, int], ...]]()
    for budget, knapsack in settings:
        schedule = partitioned_schedule(graph, joint, budget, knapsack)
        if schedule.sequence not in seen:
            seen.add(schedule.sequence)
            yield Candidate(schedule, f"activation_memory_budget={budget:g} ({knapsack})")


def _share(budget: Any) -> float:
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 <= budget <= 1:
        raise SolverError(
            f"activation_memory_budget is {shown(budget)}; expected a share of the kept bytes, from 0 to 1"
        )
    return float(budget)


def _knapsacks(name: str | None) -> tuple[str, ...]:
    """The knapsack solvers to try; torch's integer program is solved by scipy."""
    if name is not None and name not in SOLVERS:
        raise UnknownNameError("knapsack solver of PyTorch", str(name), SOLVERS)
    has_scipy = importlib.util.find_spec("scipy") is not None
    if name == "ilp" and not has_scipy:
        raise SolverError("PyTorch solves the knapsack 'ilp' with scipy, which is not installed: pip install scipy")
    left_out = {HIRSCHBERG} if has_scipy else {HIRSCHBERG, "ilp"}
    return (name,) if name else tuple(solver for solver in SOLVERS if solver not in left_out)
