"""Operations that a compiler runs in one kernel, as one operation: what passes between them takes no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import accumulate

import torch
from torch._ops import OpOverload
from torch.fx import Node

from remat_explorer.capture.graph_rewrites import is_random
from remat_explorer.capture.in_place import fits
from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages
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
        if len(reads) > MOST_READS:
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
    """The graph in which operations are kernels of a compiler.

    A kernel's result takes the place of an input that dies. What passes between its calls is not moved, and so takes no
    time: costs are those of the calls, by the share of bytes that are still moved.

    Args:
        graph: of these storages, with one implementation of each operation.
        storages: after `join_fused`.
        number: value id of each storage.
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
