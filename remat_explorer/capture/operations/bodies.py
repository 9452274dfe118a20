"""The calls of an operation: its own, the views through which it reads, and when each intermediate goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from torch.fx import Node

from remat_explorer.capture.graph_rewrites import is_random
from remat_explorer.capture.operations.in_place import IN_PLACE, takeover_of
from remat_explorer.capture.operations.kernels import kernel_of
from remat_explorer.capture.operations.program import Body, Call
from remat_explorer.capture.operations.reads_and_writes import calls_of, overwritten_by, writes_of
from remat_explorer.capture.operations.storages import OperationDraft, StorageDraft, Storages


def body_of(draft: OperationDraft, storages: Storages, number: Mapping[StorageDraft, int]) -> Body:
    """The body of an operation.

    Args:
        draft: the operation after contraction.
        storages: the graph it belongs to.
        number: value id of each storage.
    """
    targets = [IN_PLACE[node.target] if node in draft.in_place else kernel_of(node) for node in draft.nodes]  # type: ignore[index]
    calls = [Call(node, target) for node, target in zip(draft.nodes, targets, strict=True)]
    return _body(calls, draft.writes, is_random(draft.nodes), storages, number)


def _body(
    calls: list[Call],
    writes: Iterable[StorageDraft],
    random: bool,
    storages: Storages,
    number: Mapping[StorageDraft, int],
) -> Body:
    outputs = {number[storage]: storage.carrier for storage in writes}
    calls = _with_views(calls, storages)
    last_read = {call.node: i for i, call in enumerate(calls)}  # at first: the call itself, for results nobody reads
    made = set(last_read)
    last_read |= {source: i for i, call in enumerate(calls) for source in call.sources}
    frees: list[list[Node]] = [[] for _ in calls]
    for node in made.difference(outputs.values()):
        frees[last_read[node]].append(node)
    pairs = zip(calls, frees, strict=True)
    ordered = tuple(
        dataclasses.replace(call, frees=tuple(sorted(f, key=storages.order.__getitem__))) for call, f in pairs
    )
    return Body(ordered, outputs, random)


def in_place_bodies(storages: Storages, number: Mapping[StorageDraft, int]) -> dict[int, Body]:
    """For every operation that may overwrite an input, by its place, the body that does."""
    bodies: dict[int, Body] = {}
    readers = storages.readers()
    for k, draft in enumerate(storages.operations):
        takeover = takeover_of(draft, storages, readers)
        if takeover is None:
            continue
        plain, first = body_of(draft, storages, number), draft.nodes[0]
        calls = tuple(
            dataclasses.replace(call, target=takeover.call) if call.node is first else call for call in plain.calls
        )
        bodies[k] = dataclasses.replace(plain, calls=calls, overwrites=takeover.storage.carrier)
    return bodies


def bodies_of_choices(
    storages: Storages, number: Mapping[StorageDraft, int]
) -> dict[tuple[int, int], tuple[Body, Body | None]]:
    """The bodies of alternative implementations, by operation and number (2 is the first after the default one).

    The second body of each overwrites an input; it is None where the implementation does not.
    """
    bodies: dict[tuple[int, int], tuple[Body, Body | None]] = {}
    for k, draft in enumerate(storages.operations):
        for code, way in enumerate(draft.ways, start=2):
            writes, taken = writes_of(draft, way, storages), overwritten_by(draft, way, storages)
            beside = _body(calls_of(draft, way), writes, is_random(draft.nodes), storages, number)
            over = None
            if taken is not None:
                over = _body(calls_of(draft, way, over=True), writes, beside.random, storages, number)
                over = dataclasses.replace(over, overwrites=taken.carrier)
            bodies[k, code] = beside, over
    return bodies


def view_of(node: Node, storages: Storages) -> Body:
    """The views that lead from what is kept in memory to ``node``."""
    if _is_kept(node, storages):
        return Body(())
    return Body(tuple(_with_views([Call(node, node.target)], storages)))  # type: ignore[arg-type]


def _is_kept(node: Node, storages: Storages) -> bool:
    return node.op != "call_function" or (node in storages.of_node and storages.of_node[node].carrier is node)


def _with_views(calls: list[Call], storages: Storages) -> list[Call]:
    """``calls`` and the views through which they read what is kept in memory, in graph order."""
    needed = {call.node: call for call in calls}
    waiting = list(calls)
    while waiting:
        for source in waiting.pop().sources:
            if source not in needed and not _is_kept(source, storages):
                needed[source] = Call(source, source.target)  # type: ignore[arg-type]
                waiting.append(needed[source])
    return sorted(needed.values(), key=lambda call: storages.order[call.node])
