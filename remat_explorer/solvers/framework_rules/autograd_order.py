"""The plan that PyTorch runs where parts of a model are checkpointed, in the order of its autograd engine.

Graphs have a layer's weight gradient before its input gradient, which takes less memory. PyTorch's engine computes
them the other way round, within one node of autograd: the input gradient, then the gradients of weight and bias. And
what a node reads stays until all that it makes is there, as for the gradients of both factors of a product. So what
PyTorch takes is told by a plan in that order, and not by a schedule, whose operations run in the graph's order.

Source: torch/csrc/autograd/FunctionsManual and tools/autograd/derivatives.yaml (torch 2.13), `addmm` and `mm`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

from remat_explorer.graph import Graph
from remat_explorer.once import once
from remat_explorer.plan import Free, Plan, Statement
from remat_explorer.solvers.framework_rules.regions import Region, needed_values, second_run


@once
def order_of_autograd(graph: Graph) -> tuple[int, ...]:
    """All operations in the order in which PyTorch first runs them.

    >>> from remat_explorer.instances import linear
    >>> order_of_autograd(linear(2))
    (0, 1, 2, 3, 4)
    """
    order: list[int] = []
    for k in range(graph.n):
        place = len(order)
        if graph.is_backward[k] and not _only_results(graph, k):
            while place and _of_one_node(graph, order[place - 1], k):
                place -= 1
        order.insert(place, k)
    return tuple(order)


def region_plan(graph: Graph, regions: Iterable[Region]) -> Plan:
    """What PyTorch runs with a checkpoint around each region, as a plan, for the checker's `replay`.

    Args:
        graph: of operations with a single implementation.
        regions: without operations in common; of their values that are handed on, those that the region's own backward
            pass reads are saved, or else PyTorch has them twice for a while.

    >>> from remat_explorer.checker import replay
    >>> from remat_explorer.instances import linear
    >>> replay(region_plan(linear(4), [Region((0, 1, 2))]))
    (11.0, 4)
    """
    order, nodes = order_of_autograd(graph), _nodes(graph)
    place = {k: i for i, k in enumerate(order)}
    before: dict[int, tuple[int, ...]] = {}
    for region in regions:
        if again := second_run(graph, region):
            readers = {k for v in needed_values(graph, region) for k in graph.readers[v] if graph.is_backward[k]}
            first = min((nodes.get(k, k) for k in readers), key=place.__getitem__)  # which reads before it computes
            before[first] = before.get(first, ()) + again[1]
    stages = list(accumulate(reversed(order), min))[::-1]  # stages never go back
    sequence = [(t, j, 1) for t, k in zip(stages, order, strict=True) for j in (*before.get(k, ()), k)]
    return _as_nodes(Plan.from_sequence(graph, sequence), nodes)


@once
def _nodes(graph: Graph) -> dict[int, int]:
    """For each backward operation the first one of its node of autograd, by what a graph knows of it.

    Operations of one node follow each other, are of one module, and read the same gradient, but not each other.
    """
    nodes: dict[int, int] = {}
    members: list[int] = []
    for k in order_of_autograd(graph):
        if not graph.is_backward[k]:
            continue
        gradients = {v for v in graph.inputs(k) if graph.is_backward[graph.producer[v]]}
        made = {v for member in members for v in graph.outputs(member)}
        joins = members and _module(graph, members[0]) == _module(graph, k) != ""
        if not (joins and gradients & set(graph.inputs(members[0])) and not made & set(graph.inputs(k))):
            members = []
        members.append(k)
        nodes[k] = members[0]
    return nodes


def _as_nodes(plan: Plan, nodes: dict[int, int]) -> Plan:
    """The same with a tensor of its own for each result, and what a node of autograd reads held until it is done."""
    graph, statements = plan.graph, list[Statement]()
    node, waiting = -1, list[Free]()
    direct = True  # whether what is freed is no input of a node
    for statement in plan.statements:
        if isinstance(statement, Free):
            (statements if direct else waiting).append(statement)
            continue
        direct = not (statement.first and statement.operation in nodes)
        own = -1 if direct else nodes[statement.operation]
        if own != node:
            statements += waiting
            node, waiting = own, []
        statements.append(replace(statement, overwrites=None))
        if statement.overwrites is not None:
            (statements if direct else waiting).append(Free(statement.stage, statement.overwrites))
    return Plan(graph, (*statements, *waiting))


def _module(graph: Graph, k: int) -> str:
    details = graph.operations[k].details
    return details.module if details else ""


def _only_results(graph: Graph, k: int) -> bool:
    """Whether an operation makes nothing but gradients of parameters, or other results."""
    return all(graph.persistent[v] for v in graph.outputs(k))


def _of_one_node(graph: Graph, gradient: int, k: int) -> bool:
    """Whether PyTorch's node of autograd that makes the result of ``gradient`` makes that of ``k`` before it."""
    if not graph.is_backward[gradient] or not _only_results(graph, gradient):
        return False
    return _module(graph, k) == _module(graph, gradient) != "" and bool(
        set(graph.inputs(gradient)) & set(graph.inputs(k))
    )
