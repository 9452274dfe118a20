"""From the joint graph of AOTAutograd to our graph and what its operations call, without a second capture.

Operations that a compiler runs in one kernel become one operation: what passes between them takes no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, cast

import torch
from torch._functorch._aot_autograd.utils import _is_primal, _is_tangent
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from remat_explorer.capture import (
    Body,
    OperationDraft,
    OutputStructure,
    Program,
    StorageDraft,
    Storages,
    assemble,
    body_of,
    contract_operations,
    fake_mode,
    find_device,
    find_storages,
    fits,
    graph_results,
    in_place_bodies,
    is_random,
    number_storages,
    output_node,
    propagate,
    rewrite_graph,
    view_of,
    weight_gradients_first,
)
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import ExecutionError
from remat_explorer.graph import Graph

aten = torch.ops.aten
_BATCH_NORM = (  # whose results do not depend on the running statistics that they also read
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update_functional.default,
)


def joint_program(module: GraphModule, forward_results: int, in_place: bool = True) -> JointProgram:
    """Our graph of a joint graph, which is changed, with costs predicted for the device on which its tensors lie.

    Resident bytes are those of all inputs: parameters, buffers, the batch and the gradients of the outputs; and of a
    generator state for each random operation, which is kept if the operation is repeated. The first ``forward_results``
    of its results are of the forward pass. Unless ``in_place``, the graph is for a compiler of functional graphs, which
    writes over what dies and makes kernels of calls: operations are what it is expected to run in one kernel. An
    ExecutionError if sizes are symbolic.
    """
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    _require_plannable(module, placeholders)
    for node in placeholders:
        if _is_tangent(node):
            node.meta["partitioner_tag"] = "is_backward"
    written = _without_writes(module)
    options = CaptureOptions(contract=in_place)
    rewrite_graph(module, options)
    _mark_backward(module, forward_results)
    storages = find_storages(module, propagate(module))
    weight_gradients_first(storages)
    if in_place:
        contract_operations(storages)
    else:
        fuse_pointwise(storages)
    _keep_seeds(storages)
    _require_unwritten(storages, [node for node, _ in written])
    random = [draft for draft in storages.operations if is_random(draft.nodes)]
    state, size = None, torch.get_rng_state().nbytes
    if random:
        with fake_mode(module):
            state = torch.empty(size, dtype=torch.uint8)
        storages.resident_bytes += len(random) * size
    endings = [
        GraphResult(node, Body(()) if node is None else view_of(node, storages), descriptor)
        for node, descriptor in graph_results(module)
    ]
    kept = len(endings) - len(written)
    number = number_storages(storages)
    device = next((n.meta["val"].device for n in placeholders if n.meta["val"].numel()), torch.device("cpu"))
    graph = assemble("compiled", storages, number, (), find_device("cpu" if device.type == "cpu" else "A100"), options)
    if not in_place:
        graph = as_kernels(graph, storages, number)
    program = Program(
        graph,
        tuple(body_of(draft, storages, number) for draft in storages.operations),
        tuple(storage.carrier for storage in number),
        (),
        (),
        OutputStructure(None, False),
        (),
        (),
        module,
        storages.fakes,
        in_place_bodies(storages, number) if in_place else {},
    )
    return JointProgram(
        program,
        tuple(node for node in placeholders if _is_primal(node)),
        tuple(node for node in placeholders if _is_tangent(node)),
        tuple(endings[:forward_results]),
        tuple(endings[forward_results:kept]),
        tuple((node, ending) for (node, _), ending in zip(written, endings[kept:], strict=True)),
        state,
    )


@dataclass(frozen=True, eq=False)
class JointProgram:
    """A joint graph as a program, which has no results of its own."""

    program: Program
    primals: tuple[Node, ...]  # placeholders in order, as the tangents
    tangents: tuple[Node, ...]
    forward: tuple[GraphResult, ...]  # results in order, as those of backward
    backward: tuple[GraphResult, ...]
    writes: tuple[tuple[Node, GraphResult], ...]  # new contents of inputs, written at the end of the forward pass
    random_state: torch.Tensor | None  # a FakeTensor; None where nothing is random


@dataclass(frozen=True, eq=False)
class GraphResult:
    """A result of the joint graph: a node read through views of what is in memory, or None; and its descriptor."""

    node: Node | None
    views: Body
    descriptor: Any


def _require_plannable(module: GraphModule, placeholders: Sequence[Node]) -> None:
    for node in placeholders:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or any(not isinstance(size, int) for size in value.shape):
            raise ExecutionError(
                f"the input {node.name!r} of the compiled graph is {value!r}: a plan is for fixed sizes; compile with "
                "dynamic=False, which plans for each size that comes"
            )
        if not (_is_primal(node) or _is_tangent(node)):
            raise ExecutionError(
                f"the compiled graph has the input {node.name!r}, which is neither a tensor of the model nor a "
                "gradient; switch torch._functorch.config.functionalize_rng_ops off"
            )
    for node in module.graph.nodes:
        if node.op == "get_attr" and not isinstance(getattr(module, str(node.target), None), torch.Tensor):
            raise ExecutionError(
                f"the compiled graph has a graph in itself, {node.name!r}, as control flow and flex_attention make "
                "one; a plan takes models without"
            )


def _mark_backward(module: GraphModule, forward_results: int) -> None:
    """Mark constants that a decomposed backward operation makes: they depend on no gradient, but stand behind one."""
    results = cast(Any, output_node(module).args[0])
    forward, waiting = set(), [node for node in results[:forward_results] if node is not None]
    while waiting:
        node = waiting.pop()
        if node not in forward:
            forward.add(node)
            waiting += node.all_input_nodes
    begun, gradients = False, {node for node in module.graph.nodes if node.op == "placeholder" and _is_tangent(node)}
    for node in module.graph.nodes:
        if node.op == "call_function" and node not in forward:
            begun = begun or not gradients.isdisjoint(node.all_input_nodes)
            if begun:
                node.meta["partitioner_tag"] = "is_backward"


def _without_writes(module: GraphModule) -> list[tuple[Node, Node]]:
    """Take the writes to inputs out of the graph, and make what they write results, after all others."""
    writes = [node for node in module.graph.nodes if node.target is aten.copy_.default]
    output = output_node(module)
    given = list(cast(Any, output.args[0]))
    pairs = [cast(tuple[Node, Node], (node.args[0], node.args[1])) for node in writes]
    for node in writes:
        given = [node.args[1] if entry is node else entry for entry in given]
        node.replace_all_uses_with(cast(Node, node.args[1]))
        module.graph.erase_node(node)
    results = (*given, *(source for _, source in pairs))
    output.args = (results,)
    descriptors = list(output.meta.get("desc", ()))
    output.meta["desc"] = [*descriptors, *[None] * (len(results) - len(descriptors))]
    return pairs


def _keep_seeds(storages: Storages) -> None:
    """Inductor draws with seeds, which are drawn once: what they make may be made again."""
    for draft in storages.operations:
        if any("inductor_seed" in str(node.target) for node in draft.nodes):
            for storage in draft.writes:
                storage.persistent = True


def _require_unwritten(storages: Storages, written: Sequence[Node]) -> None:
    """Refuse to repeat what reads an input that the forward pass writes to: keep it instead."""
    changed = {storages.of_node[node] for node in written}
    for draft in storages.operations:
        reads = {storages.of_node[source] for node in draft.calls for source in node.all_input_nodes}
        if reads & changed and not all(node.target in _BATCH_NORM for node in draft.calls[:1]):
            for storage in draft.writes:
                storage.persistent = True


REDUCTIONS = (torch.ops.aten.sum.dim_IntList, torch.ops.aten.mean.dim, torch.ops.aten.amax.default)
MAX_READS = 8  # of one operation: Inductor makes a result what a kernel with more reads would take further


def fuse_pointwise(storages: Storages) -> None:
    """Join an operation that goes entry by entry to the only one that reads its result.

    That is what Inductor does, which then has no such result in memory. The inputs of the first must be there while the
    second runs; so it is done only where they take no more than the result that is gone, or nothing but operations
    that go entry by entry lies between the two.
    """
    place = {draft: k for k, draft in enumerate(storages.operations)}
    apart = [0, *accumulate(not _is_pointwise(draft, REDUCTIONS) for draft in storages.operations)]  # before each place
    while _join_some(storages, lambda first, last: apart[place[first]] == apart[place[last]]):
        pass


def _join_some(storages: Storages, is_next: Callable[[OperationDraft, OperationDraft], bool]) -> bool:
    """Join what can be joined; a later pass finds more, where all that read a result are now one operation."""
    readers, joined = storages.readers(), set()
    for draft in storages.operations:
        reader = _only_reader(draft, readers)
        if reader is None or not (_takes_no_more(draft, reader) or is_next(draft, reader)):
            continue
        reads = list(dict.fromkeys([*draft.reads, *(s for s in reader.reads if s is not draft.writes[0])]))
        if len(reads) > MAX_READS:
            continue
        reader.nodes = draft.nodes + reader.nodes
        reader.reads = reads
        reader.discarded = max(draft.discarded, reader.discarded)
        joined.add(draft)
        for storage in draft.reads:
            readers[storage] = list(dict.fromkeys(reader if other is draft else other for other in readers[storage]))
    storages.operations = [draft for draft in storages.operations if draft not in joined]
    return bool(joined)


def _only_reader(draft: OperationDraft, readers: dict[StorageDraft, list[OperationDraft]]) -> OperationDraft | None:
    """The operation that an operation may be joined to."""
    if len(draft.writes) != 1 or draft.writes[0].persistent or not _is_pointwise(draft):
        return None
    found = readers.get(draft.writes[0], [])
    if len(found) != 1 or found[0].backward != draft.backward:
        return None
    return found[0] if _is_pointwise(found[0], REDUCTIONS) else None


def _takes_no_more(draft: OperationDraft, reader: OperationDraft) -> bool:
    """Whether what the first operation alone reads is no larger than its result."""
    alone = [storage for storage in draft.reads if not storage.resident and storage not in reader.reads]
    return sum(storage.bytes for storage in alone) <= draft.writes[0].bytes


def _is_pointwise(draft: OperationDraft, others: tuple[OpOverload, ...] = ()) -> bool:
    calls = draft.calls
    return (
        not is_random(draft.nodes)
        and all(_goes_entry_by_entry(call) for call in calls[:-1])
        and (_goes_entry_by_entry(calls[-1]) or calls[-1].target in others)
    )


def _goes_entry_by_entry(call: Node) -> bool:
    return isinstance(call.target, OpOverload) and torch.Tag.pointwise in call.target.tags


def as_kernels(graph: Graph, storages: Storages, number: Mapping[StorageDraft, int]) -> Graph:
    """The graph in which operations, of one implementation and after `fuse_pointwise`, are kernels of a compiler.

    A kernel's result takes the place of an input that dies. What passes between its calls is not moved, and so takes no
    time: costs are those of the calls, by the share of bytes that are still moved.
    """
    last_read = {storage: k for k, draft in enumerate(storages.operations) for storage in draft.reads}
    operations = []
    for operation, draft in zip(graph.operations, storages.operations, strict=True):
        (way,) = operation.implementations
        taken = min(_overwritable(draft, storages), key=last_read.__getitem__, default=None)
        way = replace(way, overwrites=None if taken is None else number[taken])
        if len(draft.calls) > 1 and _is_pointwise(draft, REDUCTIONS):
            way = replace(way, cost=way.cost * _share_moved(draft, storages))
        operations.append(replace(operation, implementations=(way,)))
    return replace(graph, operations=tuple(operations))


def _overwritable(draft: OperationDraft, storages: Storages) -> list[StorageDraft]:
    """The inputs that a kernel reads entry by entry, in the place of its result."""
    if len(draft.writes) != 1 or not _is_pointwise(draft):
        return []
    of_node, carrier = storages.of_node, draft.writes[0].carrier
    sources = [source for call in draft.calls for source in call.all_input_nodes if of_node.get(source) in draft.reads]
    return [
        storage
        for source in dict.fromkeys(sources)
        if not (storage := of_node[source]).persistent
        and not storage.resident
        and fits(source, carrier, storages)
        and all(other is source for other in sources if of_node[other] is storage)
    ]


def _share_moved(draft: OperationDraft, storages: Storages) -> float:
    """Bytes that a kernel reads and writes, over those of its calls one by one."""

    def size(nodes: Iterable[Node]) -> int:
        return sum(storages.fakes[node].nbytes for node in nodes if isinstance(storages.fakes[node], torch.Tensor))

    apart = sum(size({call, *call.all_input_nodes}) for call in draft.calls)
    sources = {source for call in draft.calls for source in call.all_input_nodes}
    outside = {
        s for s in sources if (found := storages.of_node.get(s)) is None or found.resident or found in draft.reads
    }
    together = size(outside) + sum(storage.bytes for storage in draft.writes)
    return min(1.0, together / apart) if apart else 1.0
