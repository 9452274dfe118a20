"""A graph of ours in the form in which PyTorch's partitioner takes a joint graph: one call for each operation.

Nothing of it is ever run. The partitioner looks at who reads what, at the bytes of each result, at the kind of each
operator, and at what separates forward from backward: what depends on a tangent is backward, the rest is forward.
Resident tensors are no inputs here, since they are in memory in any case: the budget is about activations alone.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch.fx import Graph as CallGraph
from torch.fx import GraphModule, Node

from remat_explorer.capture.generated_sources import drop_source_with
from remat_explorer.graph import Graph
from remat_explorer.runtime.strategies.operators import operators_of
from remat_explorer.solvers.framework_rules.layers import backward_operations

OPERATION = "remat_explorer.operation"  # the key in a call's meta of the operation that it is


@dataclass(frozen=True, eq=False)
class JointGraph:
    """What the partitioner takes.

    Attributes:
        module: calls that have a tangent as their only input; the partitioner wants a forward input, too, which nobody
            reads.
        forward_results: how many of the module's results are of the forward pass; they come first.
    """

    module: GraphModule
    forward_results: int


def joint_graph(graph: Graph) -> JointGraph:
    """The joint graph with a call for each operation, and one for each of several outputs.

    Operations of the backward pass, and those that read what these write, depend on the tangent. Persistent values
    are results, and so is what nobody reads in the operation's own pass: a partitioner drops what leads nowhere,
    while every operation of a schedule runs at least once.

    Args:
        graph: of operations with a single implementation, at least one of them in the backward pass.

    >>> from remat_explorer.instances import linear
    >>> joint = joint_graph(linear(2))
    >>> print(*joint.module.graph.nodes)
    primals_1 tangents_1 operation_0 operation_1 operation_2 operation_3 operation_4 output
    >>> joint.forward_results
    1
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
                written[v] = calls.create_node("call_function", operator.getitem, (call, place), name=f"value_{v}")
                written[v].meta["val"] = tensors[place]
        ends = [v for v in outputs if _is_result(graph, v, backward)]
        results[backward[k]].extend([written[v] for v in ends] if outputs else [call])
    calls.output(tuple(results[0] + results[1]))
    return JointGraph(drop_source_with(GraphModule({}, calls)), len(results[0]))


def _is_result(graph: Graph, v: int, backward: list[bool]) -> bool:
    here = backward[graph.producer[v]]
    return bool(graph.persistent[v]) or not any(backward[reader] == here for reader in graph.readers[v])


def _tensor(size: int) -> torch.Tensor:
    """A tensor of so many bytes that takes no memory."""
    return torch.empty(size, dtype=torch.uint8, device="meta")
