"""The plan that PyTorch runs where parts of a model are checkpointed, in the order of its autograd engine.

Graphs have a layer's weight gradient before its input gradient, which takes less memory. PyTorch's engine runs whole
nodes of autograd, which it computes in the order in which they were traced. What a node reads stays until all that it
makes is there, as for the gradients of both factors of a product, and each result is a tensor of its own; only a sum
of gradients takes the place of the first. So what PyTorch takes is told by a plan in that order, and not by a schedule,
whose operations run in the graph's order.

A region runs again when the first of its nodes asks for anything that was saved, be it a parameter or what a selective
policy keeps. It stops where everything that its nodes save is there again: before the last operation that saves
something, or behind it, if its own result is what it saves. Until then, all runs again but what a selective policy
keeps, whether anybody reads it or not. What it keeps stays until the region runs again, and the region's inputs until
the last of these nodes is done.

Source: torch/csrc/autograd/engine.cpp and input_buffer.cpp, torch/utils/checkpoint.py (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.operation_details import AutogradNode
from remat_explorer.plan import Compute, Free, Plan, Statement
from remat_explorer.solvers.methods.regions import Region

_UNKNOWN = AutogradNode(-1, -1)


@dataclass(frozen=True)
class AutogradOrder:
    """A step as PyTorch's engine runs it.

    What has no node, before the first node of a module, is taken for a part of the module before.
    """

    order: tuple[int, ...]  # all operations, as they first run
    nodes: dict[int, tuple[int, ...]]  # for each backward operation all that are of its node, in that order
    maker: dict[int, int]  # for each backward operation the forward one whose gradient its node is, where known
    unpacks: dict[int, tuple[int, ...]]  # for each forward operation with saved tensors the backward ones of its node
    differentiable: frozenset[int]  # forward operations that have a node
    constant: frozenset[int]  # without a node and inputs, surely of their module, such as a causal mask


@memoize_by_identity
def autograd_order(graph: Graph) -> AutogradOrder:
    """That of a graph; of one that was not captured in this process, each operation is a node."""
    facts = [_fact(graph, k) for k in range(graph.n)]
    order = tuple(sorted(range(graph.n), key=lambda k: facts[k].place))
    makers: dict[int, int] = {}
    differentiable, constant, newest = set[int](), set[int](), -1
    alone, waiting = set[int](), list[int]()  # what depends on nothing, and that since the newest node
    nodes: dict[int, tuple[int, ...]] = {}
    for k in order:
        number = facts[k].number
        reads = {int(graph.producer[v]) for v in graph.inputs(k)}
        if not graph.is_backward[k]:  # what has no node has the number of the newest one
            makers.setdefault(number, k)
            if number > newest and (facts[k].resident or reads & differentiable):
                differentiable.add(k)
                constant.update(j for j in waiting if _module(graph, j) == _module(graph, k))
                waiting.clear()
            elif not facts[k].resident and reads <= alone:
                alone.add(k)
                waiting.append(k)
            newest = max(newest, number)
        elif nodes and number >= 0 and facts[(last := next(reversed(nodes)))].number == number:
            nodes |= dict.fromkeys((*nodes[last], k), (*nodes[last], k))
        else:
            nodes[k] = (k,)
    makers.pop(-1, None)
    maker = {k: makers[facts[k].number] for k in nodes if facts[k].number in makers}
    unpacks: dict[int, tuple[int, ...]] = {}
    for k, made_by in maker.items():
        reads = {int(graph.producer[v]) for member in nodes[k] for v in graph.inputs(member)}
        values = any(not graph.is_backward[j] for j in reads)
        if values or facts[made_by].scalar or any(facts[member].resident for member in nodes[k]):
            unpacks[made_by] = (*unpacks.get(made_by, ()), k)
    return AutogradOrder(order, nodes, maker, unpacks, frozenset(differentiable), frozenset(constant))


@dataclass(frozen=True)
class SecondRun:
    """How a checkpoint's region runs again."""

    before: int  # the backward operation before which it does
    operations: tuple[int, ...]  # ascending
    saved: tuple[int, ...]  # values that a selective policy has kept until then
    until: int  # the backward operation that is the last to read what it saved


def second_run_of(graph: Graph, region: Region) -> SecondRun | None:
    """How PyTorch runs a region again; None where its nodes save nothing."""
    unpacks = autograd_order(graph).unpacks
    own = [k for k in region.operations if k in unpacks]
    if not own:
        return None
    last, by_place = own[-1], sorted((j for k in own for j in unpacks[k]), key=lambda j: _fact(graph, j).place)
    made = set(graph.outputs(last))
    ends = any(made & set(graph.inputs(j)) for j in unpacks[last])
    runs = tuple(k for k in region.operations if (k <= last if ends else k < last) and k not in region.saved)
    saved = tuple(v for k in region.saved for v in graph.outputs(k))
    return SecondRun(by_place[0], runs, saved, by_place[-1])


def region_plan(graph: Graph, regions: Iterable[Region]) -> Plan:
    """What PyTorch runs with a checkpoint around each region, as a plan, for the checker's `replay`.

    Operations have a single implementation, and regions none in common. Of values that a region hands on, those that
    its own backward pass reads are saved, or else PyTorch has them twice for a while.
    """
    engine, graph = autograd_order(graph), _with_noise(graph) or graph
    again: dict[int, list[SecondRun]] = {}
    kept: dict[int, list[int]] = {}  # values that stay until an operation is done
    for k, members in engine.nodes.items():
        if k == members[-1]:
            kept[k] = [v for member in members for v in graph.inputs(member)]
    for region in regions:
        if run := second_run_of(graph, region):
            again.setdefault(run.before, []).append(run)
            made = {v for k in region.operations for v in graph.outputs(k)}
            kept[run.until] += [v for k in region.operations for v in graph.inputs(k) if v not in made]
    stages = list(accumulate(reversed(engine.order), min))[::-1]  # stages never go back
    sequence: list[tuple[int, int, int]] = []
    held: dict[int, list[int]] = {}
    for stage, k in zip(stages, engine.order, strict=True):
        for run in again.get(k, ()):
            held.setdefault(len(sequence), []).extend(run.saved)
            sequence += [(stage, j, 1) for j in run.operations]
        held.setdefault(len(sequence), []).extend(kept.get(k, ()))
        sequence.append((stage, k, 1))
    return _with_tensors_of_their_own(Plan.from_sequence(graph, sequence, held))


def _with_tensors_of_their_own(plan: Plan) -> Plan:
    """The same, where nothing but a sum of gradients takes the place of what it reads."""
    graph, statements = plan.graph, list[Statement]()
    for statement in plan.statements:
        if not isinstance(statement, Compute) or statement.overwrites is None or _is_sum(graph, statement.operation):
            statements.append(statement)
        else:
            statements += [replace(statement, overwrites=None), Free(statement.stage, statement.overwrites)]
    return Plan(graph, tuple(statements))


@memoize_by_identity
def _with_noise(graph: Graph) -> Graph | None:
    """The graph with what autograd saves of dropout in place of a mask; None where that is the same."""
    noise = {graph.outputs(k)[-1]: more for k in range(graph.n) if (more := _fact(graph, k).noise)}
    if not noise:
        return None
    return replace(
        graph, values=tuple(replace(value, bytes=value.bytes + noise.get(v, 0)) for v, value in enumerate(graph.values))
    )


def _is_sum(graph: Graph, k: int) -> bool:
    return bool(graph.is_backward[k]) and _fact(graph, k).number == -1


def _module(graph: Graph, k: int) -> str:
    details = graph.operations[k].details
    return details.module if details else ""


def _fact(graph: Graph, k: int) -> AutogradNode:
    details = graph.operations[k].details
    return _UNKNOWN if details is None or details.autograd is None else details.autograd


@dataclass
class ObservedCall:
    """A call of an operator within a module, as a policy meets it."""

    name: str  # of the operator that does the same out of place
    has_gradient: bool  # whether an argument requires one
    is_savable: bool  # whether its result is written once, and not in place


@dataclass(frozen=True)
class ObservedModule:
    """What a module did in a step of plain PyTorch: its calls in their order, and whether it changed its state."""

    calls: tuple[ObservedCall, ...]
    changes_state: bool
