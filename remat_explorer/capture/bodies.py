"""The calls of an operation: its own, the views through which it reads, and when each intermediate goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch.fx import Node

from remat_explorer.capture.in_place import IN_PLACE, takeover_of
from remat_explorer.capture.program import Body, Call
from remat_explorer.capture.randomness import is_random
from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages


def body_of(draft: OperationDraft, found: Storages, number: Mapping[StorageDraft, int]) -> Body:
    """The body of an operation.

    Args:
        draft: the operation after contraction.
        found: the graph it belongs to.
        number: value id of each storage.
    """
    outputs = {number[storage]: storage.carrier for storage in draft.writes}
    nodes = _with_views(draft.nodes, found)
    last_read = {node: i for i, node in enumerate(nodes)}  # at first: the call itself, for results nobody reads
    last_read |= {source: i for i, node in enumerate(nodes) for source in node.all_input_nodes}
    frees: list[list[Node]] = [[] for _ in nodes]
    kept = set(outputs.values())
    for node in nodes:
        if node not in kept:
            frees[last_read[node]].append(node)
    targets = [IN_PLACE[node.target] if node in draft.in_place else node.target for node in nodes]  # type: ignore[index]
    calls = zip(nodes, targets, frees, strict=True)
    return Body(tuple(Call(n, t, tuple(f)) for n, t, f in calls), outputs, is_random(draft.nodes))  # type: ignore[arg-type]


def in_place_bodies(found: Storages, number: Mapping[StorageDraft, int]) -> dict[int, Body]:
    """For every operation that may overwrite an input, by its place, the body that does."""
    bodies: dict[int, Body] = {}
    for k, draft in enumerate(found.operations):
        takeover = takeover_of(draft, found)
        if takeover is None:
            continue
        plain, first = body_of(draft, found, number), draft.nodes[0]
        calls = tuple(
            dataclasses.replace(call, target=takeover.call) if call.node is first else call for call in plain.calls
        )
        bodies[k] = dataclasses.replace(plain, calls=calls, overwrites=takeover.storage.carrier)
    return bodies


def view_of(node: Node, found: Storages) -> Body:
    """The views that lead from what is kept in memory to ``node``."""
    if _is_kept(node, found):
        return Body(())
    return Body(tuple(Call(n, n.target) for n in _with_views([node], found)))  # type: ignore[arg-type]


def _is_kept(node: Node, found: Storages) -> bool:
    return node.op != "call_function" or (node in found.of_node and found.of_node[node].carrier is node)


def _with_views(nodes: list[Node], found: Storages) -> list[Node]:
    """``nodes`` and the views through which they read what is kept in memory, in graph order."""
    needed: dict[Node, None] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed[node] = None
            waiting += [source for source in node.all_input_nodes if not _is_kept(source, found)]
    return sorted(needed, key=found.order.__getitem__)
