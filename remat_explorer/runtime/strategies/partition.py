"""What PyTorch's own partitioner runs in the forward and in the backward graph, under an activation memory budget.

`torch._functorch.config.activation_memory_budget` is the knob of `torch.compile`: 1 keeps what a minimum cut between
forward and backward keeps, 0 keeps the inputs alone, and in between a knapsack decides what is worth keeping. It is a
share of the bytes that are kept from forward to backward, not of the peak: what the backward pass holds while it
computes a long stretch again is not counted, so that the peak rises again when the budget is small.

Source: torch/_functorch/partitioners.py, `min_cut_rematerialization_partition`.
"""

from __future__ import annotations

import copy
import warnings

from torch._functorch import config
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput, PlainAOTOutput
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomRuntimeEstimator
from torch.fx import GraphModule

from remat_explorer.capture.generated_sources import drop_new_sources, drop_source_with
from remat_explorer.capture.graph_rewrites import graph_results
from remat_explorer.errors import ExecutionError, UnknownNameError

HIRSCHBERG = "dp_knapsack_sliding_hirschberg"  # as "dp", in less memory
SOLVERS = ("dp", "greedy", "ilp", HIRSCHBERG)  # of the knapsack, in the words of torch's settings


def partition(module: GraphModule, budget: float, solver: str = "dp") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the calls of the forward and of the backward graph, each in the order in which it would run.

    Args:
        module: a joint graph as `trace` gives it; it is not changed.
        budget: share of the kept bytes, from 0 to 1.
        solver: of the knapsack, one of `SOLVERS`.

    Raises:
        ExecutionError: if the budget is out of range.
        UnknownNameError: if there is no such solver.

    >>> partition(GraphModule({}, __import__("torch").fx.Graph()), 2)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ExecutionError: PyTorch's activation memory budget is a share from 0 to 1, not 2
    """
    require_share(budget)
    meanings = [meaning for _, meaning in graph_results(module)]
    forward_results = sum(isinstance(meaning, PlainAOTOutput | InputMutationAOTOutput) for meaning in meanings)
    parts = partitioned(module, forward_results, budget, solver)
    forward, backward = (tuple(n.name for n in part.graph.nodes if n.op == "call_function") for part in parts)
    return forward, backward


@drop_new_sources()
def partitioned(
    module: GraphModule,
    forward_results: int,
    budget: float,
    solver: str = "dp",
    estimator: str | CustomRuntimeEstimator = "flops",
) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward graph that PyTorch's partitioner makes of a joint graph.

    Args:
        module: a joint graph; it is not changed.
        forward_results: how many of its results, from the first on, are of the forward pass.
        budget: share of the kept bytes, from 0 to 1.
        solver: of the knapsack, one of `SOLVERS`.
        estimator: what running a call again costs, in the words of torch's settings, or a function of its node.

    Raises:
        UnknownNameError: if there is no such solver.
    """
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
    """Refuse a budget that is out of range.

    Raises:
        ExecutionError: if it is no share from 0 to 1.
    """
    if not 0 <= budget <= 1:
        raise ExecutionError(f"PyTorch's activation memory budget is a share from 0 to 1, not {budget:g}")
