"""Rules that join operations without losing a schedule worth having: fewer rows and columns for the solvers."""

from __future__ import annotations

import torch
from torch.fx import Node

from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages

aten = torch.ops.aten
IN_PLACE = {
    aten.relu.default: aten.relu_.default,
    aten.hardtanh.default: aten.hardtanh_.default,
    aten.gelu.default: aten.gelu_.default,
    aten.silu.default: aten.silu_.default,
    aten.sigmoid.default: aten.sigmoid_.default,
    aten.tanh.default: aten.tanh_.default,
    aten.leaky_relu.default: aten.leaky_relu_.default,
    aten.hardswish.default: aten.hardswish_.default,
    aten.neg.default: aten.neg_.default,
    aten.add.Scalar: aten.add_.Scalar,
    aten.mul.Scalar: aten.mul_.Scalar,
    aten.div.Scalar: aten.div_.Scalar,
}
SMALL_LEAF = 64 * 1024  # bytes of a bias gradient that may join the weight gradient right before it


def contract(found: Storages) -> None:
    """Apply every rule below, in place."""
    fuse_unary(found)
    merge_leaves(found)


def fuse_unary(found: Storages) -> None:
    """Run a unary operation in place inside the only producer of its input, when nobody else reads that input.

    Nothing is lost: input and output have the same bytes, and whatever keeping the input makes possible, keeping the
    output makes possible at no cost. The in-place run also saves the moment at which both would exist.
    """
    readers = found.readers()
    producer = {storage: draft for draft in found.operations for storage in draft.writes}
    for draft in list(found.operations):
        call = _unary_call(draft, found)
        if call is None:
            continue
        source, target = draft.reads[0], draft.writes[0]
        maker = producer[source]
        if source.persistent or readers[source] != [draft] or maker.backward != draft.backward:
            continue
        maker.nodes.append(call)
        maker.in_place |= {call}
        maker.writes[maker.writes.index(source)] = target
        producer[target] = maker
        found.operations.remove(draft)


def _unary_call(draft: OperationDraft, found: Storages) -> Node | None:
    """The call of an operation that consists of one call which could overwrite the whole of its input."""
    if len(draft.nodes) != 1 or len(draft.reads) != 1 or draft.nodes[0].target not in IN_PLACE:
        return None
    (call,) = draft.nodes
    before, after = found.fakes[call.all_input_nodes[0]], found.fakes[call]
    fits = (
        len(call.all_input_nodes) == 1
        and (before.dtype, before.shape, before.stride()) == (after.dtype, after.shape, after.stride())
        and draft.reads[0].bytes == draft.writes[0].bytes == before.numel() * before.element_size()
    )
    return call if fits else None


def merge_leaves(found: Storages) -> None:
    """Join an operation that only makes results to a later one that only makes results and reads at least as much.

    Nothing is lost when the later one comes last: its inputs must be there anyway, and the earlier one's output then
    exists for a shorter time. A leaf right after one that reads more (the bias gradient after the weight gradient)
    runs before it instead. There the two can meet in memory where the weight gradient's inputs could have been freed
    in between, so this is done for results of at most `SMALL_LEAF` bytes only, and can cost no more than those.
    """
    readers = found.readers()
    position = {draft: place for place, draft in enumerate(found.operations)}
    leaves = [draft for draft in found.operations if _is_leaf(draft, readers)]
    for leaf in leaves:
        for other in leaves:
            if other is leaf or other not in found.operations or not set(leaf.reads) <= set(other.reads):
                continue
            later = position[other] > position[leaf]
            next_door = position[other] == position[leaf] - 1 and sum(s.bytes for s in leaf.writes) <= SMALL_LEAF
            if later or next_door:
                other.nodes = leaf.nodes + other.nodes
                other.writes = leaf.writes + other.writes
                other.discarded = max(leaf.discarded, other.discarded)
                found.operations.remove(leaf)
                break


def _is_leaf(draft: OperationDraft, readers: dict[StorageDraft, list[OperationDraft]]) -> bool:
    """Whether every output is a result that nobody reads. Operations that read nothing run at the end, not here."""
    return bool(draft.reads) and all(s.persistent and s not in readers for s in draft.writes) and not draft.in_place
