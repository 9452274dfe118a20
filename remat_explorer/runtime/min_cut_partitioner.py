"""PyTorch's min-cut partitioner under an activation memory budget, on joint graphs and, as a strategy, on any graph.

`torch._functorch.config.activation_memory_budget` is the knob of `torch.compile`: 1 keeps what a minimum cut between
forward and backward keeps, 0 keeps the inputs alone, and in between a knapsack decides what is worth keeping. It is a
share of the bytes that are kept from forward to backward, not of the peak: what the backward pass holds while it
computes a long stretch again is not counted, so that the peak rises again when the budget is small. The strategy's
schedules are therefore placed by their peak. `partition` is what the partitioner runs of a captured joint graph.

As a strategy, the partitioner itself is asked, with a joint graph that has a call for each operation (`joint_graph`),
its own lists of what is cheap and what is compute intensive (`operators_of`), the graph's bytes, and the graph's costs
as run times. Its forward graph is the forward pass. Its backward graph has each recomputation right before the first
operation that needs it, and that is the stage in which the schedule recomputes.

* The joint graph is never run. The partitioner looks at who reads what, at the bytes of each result, at the kind of
  each operator, and at what separates forward from backward: what depends on a tangent is backward, the rest is
  forward. Resident tensors are no inputs, since they are in memory in any case: the budget is about activations alone.
* Its lists say what is cheap to compute again since a compiler fuses it (pointwise operators and views), what is
  random, and what is compute intensive (matrix products, convolutions, attention). A graph has names only, the
  operator's own ("convolution_3") or the one for people ("features.3 conv2d + relu (2)"), and those are looked up.

What differs from `torch.compile` of the same model: no graph is decomposed or has equal calls merged, no compiler fuses
anything, so that a recomputed pointwise operation has its full cost, and resident tensors count nothing.

Source: torch/_functorch/partitioners.py, `min_cut_rematerialization_partition` and `choose_saved_values_set`; knapsacks
in torch/_functorch/_activation_checkpointing/knapsack.py.
"""

from __future__ import annotations

import copy
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import getitem
from typing import Any

import torch
from torch._functorch import config
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput, PlainAOTOutput
from torch._functorch.partitioners import get_default_op_list, min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomRuntimeEstimator
from torch._ops import OpOverloadPacket
from torch.fx import Graph as CallGraph
from torch.fx import GraphModule, Node

from remat_explorer.capture.generated_sources import drop_new_sources, drop_source_with
from remat_explorer.capture.graph_assembly import operator_name
from remat_explorer.capture.graph_rewrites import graph_results
from remat_explorer.errors import ExecutionError, SolverError, UnknownNameError, shown
from remat_explorer.graph import Graph, words
from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import Candidate, cheapest_within
from remat_explorer.solvers.methods.regions import backward_operations
from remat_explorer.solvers.solver_interface import Answer, Limits, checkpoint_all

BUDGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.0)
HIRSCHBERG = "dp_knapsack_sliding_hirschberg"  # as "dp", in less memory
SOLVERS = ("dp", "greedy", "ilp", HIRSCHBERG)  # of the knapsack, in the words of torch's settings
OPERATION = "remat_explorer.operation"  # the key in a call's meta of the operation that it is

Operator = Callable[..., Any]

aten = torch.ops.aten
COMPUTE_INTENSIVE = aten.mm  # stands for an operation that only its cost tells something about
UNLISTED = aten.embedding  # in none of the lists: kept unless the budget is below 1, and then free to run again
CHEAP_COPY = aten.clone  # for views, which are operations of our graph only where they write a storage of their own


def budget_shares(graph: Graph) -> tuple[float, ...]:
    """What a sweep tries, closer together where little is kept: the same for each graph."""
    return BUDGETS


def solve_pytorch_budget(graph: Graph, budget: int, limits: Limits, **options: Any) -> Answer:
    """The cheapest of `pytorch_budget_candidates` whose peak fits into ``budget``; it proves no bound."""
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
    CondensedGraph.of(graph)  # which refuses operations with several implementations
    return _different(graph, [(budget, solver) for solver in knapsacks for budget in budgets])


def _partitioned_schedule(graph: Graph, joint: _JointGraph, budget: float, knapsack: str) -> Schedule:
    """The schedule that keeps what PyTorch's partitioner keeps."""
    with config.patch({"cse": False}):  # operations without inputs look alike, and are not equal
        _, backward = _partitioned(joint.module, joint.forward_results, budget, knapsack, _Costs(graph))
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
        schedule = _partitioned_schedule(graph, joint, budget, knapsack)
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


def partition(module: GraphModule, budget: float, solver: str = "dp") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the calls of the forward and of the backward graph, each in the order in which it would run.

    The joint graph is not changed; ``budget`` is a share of the kept bytes, from 0 to 1, ``solver`` one of `SOLVERS`.
    """
    require_share(budget)
    meanings = [meaning for _, meaning in graph_results(module)]
    forward_results = sum(isinstance(meaning, PlainAOTOutput | InputMutationAOTOutput) for meaning in meanings)
    parts = _partitioned(module, forward_results, budget, solver)
    forward, backward = (tuple(n.name for n in part.graph.nodes if n.op == "call_function") for part in parts)
    return forward, backward


@drop_new_sources()
def _partitioned(
    module: GraphModule,
    forward_results: int,
    budget: float,
    solver: str = "dp",
    estimator: str | CustomRuntimeEstimator = "flops",
) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward graph of a joint graph whose first ``forward_results`` results are forward ones."""
    if solver not in SOLVERS:
        raise UnknownNameError("knapsack solver of PyTorch", solver, SOLVERS)
    inputs = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    settings = {
        "activation_memory_budget": float(budget),  # the partitioner tells the ends by equality
        "activation_memory_budget_solver": solver,
        "activation_memory_budget_runtime_estimator": estimator,
    }
    with config.patch(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's, about its own code
        joint = copy.deepcopy(module)
        forward, backward = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=forward_results)
    return drop_source_with(forward), drop_source_with(backward)


def require_share(budget: float) -> None:
    """Refuse a budget that is no share from 0 to 1."""
    if not 0 <= budget <= 1:
        raise ExecutionError(f"PyTorch's activation memory budget is a share from 0 to 1, not {budget:g}")


@dataclass(frozen=True, eq=False)
class _JointGraph:
    """What the partitioner takes: forward results come first.

    Calls that have a tangent as their only input get a forward input, too, which nobody reads: the partitioner wants
    one.
    """

    module: GraphModule
    forward_results: int


def joint_graph(graph: Graph) -> _JointGraph:
    """The joint graph with a call for each operation, and one for each of several outputs.

    Operations of the backward pass, and those that read what these write, depend on the tangent. Persistent values are
    results, and so is what nobody reads in the operation's own pass: a partitioner drops what leads nowhere, while
    every operation of a schedule runs at least once.
    """
    calls, operators = CallGraph(), operators_of(graph)
    primal, tangent = calls.placeholder("primals_1"), calls.placeholder("tangents_1")
    primal.meta["val"], tangent.meta["val"] = _tensor(0), _tensor(1)
    written: dict[int, Node] = {}
    results: tuple[list[Node], list[Node]] = ([], [])
    backward = backward_operations(graph)
    for k in range(graph.n):
        read = [written[v] for v in graph.inputs(k)]
        call = calls.create_node(
            "call_function", operators[k], (*read, *[tangent] * backward[k]), name=f"operation_{k}"
        )
        call.meta[OPERATION] = k
        outputs = graph.outputs(k)
        tensors = [_tensor(max(1, graph.values[v].bytes)) for v in outputs]  # the greedy knapsack divides by them
        call.meta["val"] = tensors[0] if len(tensors) == 1 else tuple(tensors)
        for place, v in enumerate(outputs):
            written[v] = call
            if len(tensors) > 1:
                written[v] = calls.create_node("call_function", getitem, (call, place), name=f"value_{v}")
                written[v].meta["val"] = tensors[place]
        ends = [v for v in outputs if _is_result(graph, v, backward)]
        results[backward[k]].extend([written[v] for v in ends] if outputs else [call])
    calls.output(tuple(results[0] + results[1]))
    return _JointGraph(drop_source_with(GraphModule({}, calls)), len(results[0]))


def _is_result(graph: Graph, v: int, backward: list[bool]) -> bool:
    here = backward[graph.producer[v]]
    return bool(graph.persistent[v]) or not any(backward[reader] == here for reader in graph.readers[v])


def _tensor(size: int) -> torch.Tensor:
    """A tensor of so many bytes that takes no memory."""
    return torch.empty(size, dtype=torch.uint8, device="meta")


def operators_of(graph: Graph) -> list[Operator]:
    """The operator that stands for each operation before the partitioner.

    Of joined operations the dearest counts: compute intensive before unlisted, random and cheap ones. Where no name of
    the forward pass is that of a compute-intensive operator, as in graphs of layers, each operation counts as one, so
    that its cost and its size decide; else the budget, which is spent on these alone, would decide nothing.
    """
    dear = get_default_op_list().compute_intensive_ops
    operators = [_dearest([_listed().get(word) for word in words(node.name)]) for node in graph.operations]
    forward = (operator for operator, backward in zip(operators, graph.is_backward, strict=True) if not backward)
    return operators if any(operator in dear for operator in forward) else [COMPUTE_INTENSIVE] * graph.n


def _dearest(operators: Sequence[Operator | None]) -> Operator:
    lists = get_default_op_list()
    for dear in (lists.compute_intensive_ops, (None,), lists.random_ops):
        for operator in operators:
            if operator in dear:
                return operator or UNLISTED
    return next(operator or UNLISTED for operator in operators)


@cache
def _listed() -> dict[str, Operator]:
    """The operators in PyTorch's lists by their names, its own and those that people see."""
    lists = get_default_op_list()
    operators: dict[str, Operator] = {"convolution": aten.convolution}
    calls = CallGraph()
    for group in (lists.recomputable_ops, lists.random_ops, lists.compute_intensive_ops):
        for operator in group:
            if isinstance(operator, OpOverloadPacket):
                stands = CHEAP_COPY if operator in lists.view_ops else operator
                own = str(operator).removeprefix("aten.")
                shown = own if own.startswith("convolution") else operator_name(calls.call_function(operator))
                operators |= {own: stands, shown: stands}
    return operators
