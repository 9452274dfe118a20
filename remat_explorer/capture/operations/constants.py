"""Tensors that depend on nothing: positions, masks and numbers that a model makes anew in every forward pass."""

from __future__ import annotations

from remat_explorer.capture.graph_rewrites import is_random
from remat_explorer.capture.operations.storages import OperationDraft, StorageDraft, Storages

LARGEST_SHARE = 0.02  # of the graph's largest value, that a constant may take from every moment


def hoist_constants(
    storages: Storages, chosen: tuple[bool, ...] | None = None
) -> tuple[list[OperationDraft], tuple[bool, ...]]:
    """Compute small constants once before everything else and keep them, instead of planning for them.

    This loses at most their bytes. `LARGEST_SHARE` limits those, so that a mask stays with the solver where it is not
    small beside what it masks.

    Args:
        storages: changed in place: the constants become resident, and operations that nobody needs any more go.
        chosen: which constants to keep, whatever they take, as another call has returned it for the same step with
            inputs of another size; it is not heeded where there are not as many.

    Returns:
        One operation that makes them all, or none, and for each constant whether it is kept.
    """
    constant = _constant_operations(storages)
    readers = storages.readers()
    largest = max((storage.bytes for draft in storages.operations for storage in draft.writes), default=0)
    constants = [
        storage
        for draft in constant
        for storage in draft.writes
        if not storage.persistent and any(reader not in constant for reader in readers.get(storage, ()))
    ]
    if chosen is None or len(chosen) != len(constants):
        chosen = tuple(storage.bytes <= LARGEST_SHARE * largest for storage in constants)
    hoisted = [storage for storage, kept in zip(constants, chosen, strict=True) if kept]
    if not hoisted:
        return [], chosen
    nodes = [node for draft in _makers(hoisted, constant) for node in draft.nodes]
    for storage in hoisted:
        storage.resident = True
        storages.resident_bytes += storage.bytes
    for draft in storages.operations:
        draft.reads = [storage for storage in draft.reads if not storage.resident]
    _drop_unread(storages, constant)
    return [OperationDraft(nodes, backward=False, writes=hoisted)], chosen


def _constant_operations(storages: Storages) -> list[OperationDraft]:
    """Operations that neither read anything but each other, nor draw random numbers, nor see a parameter or input."""
    made: set[StorageDraft] = set()
    constant = []
    for draft in storages.operations:
        sources = {storages.of_node[node] for call in draft.calls for node in call.all_input_nodes}
        varying = any(s not in made and (not s.resident or s.carrier.op == "placeholder") for s in sources)
        if not varying and not is_random(draft.nodes):
            constant.append(draft)
            made |= set(draft.writes)
    return constant


def _makers(wanted: list[StorageDraft], constant: list[OperationDraft]) -> list[OperationDraft]:
    """The operations that the wanted storages take, in order."""
    needed = set(wanted)
    makers = []
    for draft in reversed(constant):
        if needed & set(draft.writes):
            makers.append(draft)
            needed |= set(draft.reads)
    return makers[::-1]


def _drop_unread(storages: Storages, constant: list[OperationDraft]) -> None:
    """Remove constant operations whose outputs are resident by now, or read by nobody."""
    for draft in reversed(constant):
        readers = storages.readers()
        if all(storage.resident or not (storage.persistent or readers.get(storage)) for storage in draft.writes):
            storages.operations.remove(draft)
