"""Operations that a compiler runs in one kernel, as one operation: what passes between them takes no memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch._ops import OpOverload
from torch.fx import Node

from remat_explorer.capture.joint.randomness import is_random
from remat_explorer.capture.operations.storages import OperationDraft, StorageDraft, Storages
from remat_explorer.graph import Graph

aten = torch.ops.aten
REDUCTIONS = (aten.sum.dim_IntList, aten.mean.dim, aten.amax.default)
MOST_READS = 8  # of one operation: Inductor makes a result what a kernel with more reads would take further


def join_fused(storages: Storages) -> None:
    """Join an operation that goes entry by entry to the only one that reads its result.

    That is what Inductor does, which then has no such result in memory. The inputs of the first must be there while the
    second runs; so it is done only where they take no more than the result that is gone, or nothing but operations
    that go entry by entry lies between the two.
    """
    while _join_some(storages):
        pass


def _join_some(storages: Storages) -> bool:
    readers, before = storages.readers(), len(storages.operations)
    for draft in list(storages.operations):
        reader = _only_reader(draft, readers)
        if reader is None or not _is_near(draft, reader, storages):
            continue
        reads = list(dict.fromkeys([*draft.reads, *(s for s in reader.reads if s is not draft.writes[0])]))
        if len(reads) > MOST_READS:
            continue
        reader.nodes = draft.nodes + reader.nodes
        reader.reads = reads
        reader.discarded = max(draft.discarded, reader.discarded)
        storages.operations.remove(draft)
        for storage in draft.reads:
            readers[storage] = [reader if other is draft else other for other in readers[storage]]
            readers[storage] = list(dict.fromkeys(readers[storage]))
    return len(storages.operations) < before


def overwritten(draft: OperationDraft, storages: Storages) -> StorageDraft | None:
    """What a kernel may overwrite: an input that it reads entry by entry, in the place of its result.

    Of several inputs that would do, the one that fewest operations read later is the most likely to die.
    """
    if len(draft.writes) != 1 or not _is_pointwise(draft):
        return None
    (result,), of_node, made = draft.writes, storages.of_node, set(draft.nodes)
    sources = [source for call in draft.calls for source in call.all_input_nodes if source not in made]
    fitting = []
    for source in sources:
        storage = of_node.get(source)
        if storage not in draft.reads or storage.resident or storage.persistent or storage.bytes != result.bytes:
            continue
        before, after = storages.fakes[source], storages.fakes[result.carrier]
        alike = (before.dtype, before.shape, before.stride()) == (after.dtype, after.shape, after.stride())
        if alike and all(other is source for other in sources if of_node.get(other) is storage):
            fitting.append(storage)
    later = storages.operations[storages.operations.index(draft) + 1 :]
    return min(fitting, key=lambda storage: sum(storage in other.reads for other in later), default=None)


def _only_reader(draft: OperationDraft, readers: dict[StorageDraft, list[OperationDraft]]) -> OperationDraft | None:
    """The operation that an operation may be joined to."""
    if len(draft.writes) != 1 or draft.writes[0].persistent or not _is_pointwise(draft):
        return None
    found = readers.get(draft.writes[0], [])
    if len(found) != 1 or found[0].backward != draft.backward:
        return None
    return found[0] if _is_pointwise(found[0], REDUCTIONS) else None


def _is_near(draft: OperationDraft, reader: OperationDraft, storages: Storages) -> bool:
    alone = [s for s in draft.reads if not s.resident and s not in reader.reads]
    if sum(storage.bytes for storage in alone) <= draft.writes[0].bytes:
        return True
    first, last = (storages.operations.index(entry) for entry in (draft, reader))
    return all(_is_pointwise(other, REDUCTIONS) for other in storages.operations[first + 1 : last])


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
    """The graph in which operations are kernels of a compiler.

    A kernel's result takes the place of an input that dies. What passes between its calls is not moved, and so takes no
    time: costs are those of the calls, by the share of bytes that are still moved.

    Args:
        graph: of these storages, with one implementation of each operation.
        storages: after `join_fused`.
        number: value id of each storage.
    """
    operations = []
    for operation, draft in zip(graph.operations, storages.operations, strict=True):
        (way,), taken = operation.implementations, overwritten(draft, storages)
        way = replace(way, overwrites=None if taken is None else number[taken])
        if len(draft.calls) > 1 and _is_pointwise(draft, REDUCTIONS):
            way = replace(way, cost=way.cost * _share_moved(draft, storages))
        operations.append(replace(operation, implementations=(way,)))
    return replace(graph, operations=tuple(operations))


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
