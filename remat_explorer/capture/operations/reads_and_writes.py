"""What another implementation of an operation calls, reads and writes, and what it may overwrite."""

from __future__ import annotations

import operator
from typing import Any

from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.operations.implementation import CapturedImplementation
from remat_explorer.capture.operations.in_place import IN_PLACE, covers
from remat_explorer.capture.operations.kernels import kernel_of
from remat_explorer.capture.operations.program import Call
from remat_explorer.capture.operations.storages import OperationDraft, StorageDraft, Storages


def calls_of(draft: OperationDraft, way: CapturedImplementation, over: bool = False) -> list[Call]:
    """Everything that an implementation of ``draft`` calls, views aside, in order.

    Args:
        draft: the operation.
        way: the implementation.
        over: whether it overwrites `CapturedImplementation.over`.
    """
    calls: list[Call] = []
    replaced: dict[Any, CapturedImplementation] = {part.main: part for part in way.each}
    for node in draft.nodes:
        if node in replaced:
            calls += way.steps_over if over and node is way.main else replaced[node].steps
        elif node.target is not operator.getitem or node.args[0] not in replaced:
            calls.append(Call(node, IN_PLACE[node.target] if node in draft.in_place else kernel_of(node)))  # type: ignore[index]
    return calls


def writes_of(draft: OperationDraft, way: CapturedImplementation, storages: Storages) -> list[StorageDraft]:
    """The storages that an implementation writes: those of the operation that it makes, and new ones."""
    made = [call.node for call in calls_of(draft, way)]
    overwritten = _overwritten(draft, calls_of(draft, way), storages)
    results = dict.fromkeys(storages.of_node[node] for node in made if node in storages.of_node)
    return [storage for storage in results if storage.carrier in made and storage not in overwritten]


def reads_of(draft: OperationDraft, way: CapturedImplementation, storages: Storages) -> list[StorageDraft]:
    """The storages that an implementation reads, without those that are there all the time."""
    calls = calls_of(draft, way)
    made = {call.node for call in calls}
    passed_on = _overwritten(draft, calls, storages).intersection(map(storages.of_node.get, made))
    sources = [storages.of_node[node] for call in calls for node in call.sources if node not in made]
    return [storage for storage in dict.fromkeys(sources) if not storage.resident and storage not in passed_on]


def _overwritten(draft: OperationDraft, calls: list[Call], storages: Storages) -> set[StorageDraft]:
    """What calls of an operation overwrite that make their result in place: an earlier one's result, or an input."""
    return {storages.of_node[call.args[0]] for call in calls if call.node in draft.in_place}


def overwritten_by(draft: OperationDraft, way: CapturedImplementation, storages: Storages) -> StorageDraft | None:
    """The storage that an implementation may overwrite where it dies, or None.

    As for `remat_explorer.capture.operations.in_place.takeover_of`: it is read once, and an output fits in its place,
    or what the operation's next call overwrites does.
    """
    if way.over is None:
        return None
    storage = storages.of_node[way.over]
    operands: list[Node] = []
    for call in calls_of(draft, way):
        map_arg((call.args, call.kwargs), operands.append)
    reads = sum(storages.of_node.get(node) is storage for node in operands)
    if storage.resident or storage.persistent or reads != 1:
        return None
    made = {*writes_of(draft, way, storages), *_overwritten(draft, calls_of(draft, way, over=True), storages)}
    heirs = [call.node for call in way.steps_over if storages.of_node.get(call.node) in made]
    return storage if heirs and covers(way.over, heirs[0], storages) else None
