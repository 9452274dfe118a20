"""Another implementation of an operation: the calls that take the place of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.operations.in_place import IN_PLACE, covers
from remat_explorer.capture.operations.program import Call
from remat_explorer.capture.operations.storages import OperationDraft, StorageDraft, Storages


@dataclass(frozen=True, eq=False)
class Way:
    """An implementation that replaces calls of an operation, mostly one, with the getitems that pick its outputs.

    What else the operation does, such as a ReLU that overwrites the result, stays.

    Attributes:
        kind: a key of `remat_explorer.capture_options.KINDS`.
        name: as people read it.
        main: the call that is replaced.
        steps: the calls instead; what they do not make, the implementation does not write.
        tolerance: largest difference of a result from that of PyTorch's own kernel, relative to the largest entry;
            0 if they are equal bit for bit.
        over: the argument that ``steps_over`` overwrite, or None.
        steps_over: the calls that write the first output over it; that one is the first that they make.
        launches: how often a kernel starts, for predicted costs.
        gpu_launches: the same on a GPU, if there are kernels of our own for it; 0 if not.
        again: calls of other operations that run within it, for predicted costs.
        workspace: bytes beside the results, as far as shapes tell; a profile measures it.
        portion: of the batch that is computed at a time; what a kernel needs beside that grows with it.
        also: further kinds that it is of; it is for those who want all of them.
        parts: of one that replaces several calls, the ways that replace each; ``main`` and ``steps_over`` are then
            those of the part that overwrites, and ``steps`` are empty.
    """

    kind: str
    name: str
    main: Node
    steps: tuple[Call, ...]
    tolerance: float = 0.0
    over: Node | None = None
    steps_over: tuple[Call, ...] = ()
    launches: int = 1
    gpu_launches: int = 0
    again: tuple[Node, ...] = ()
    workspace: int = 0
    portion: float = 1.0
    also: tuple[str, ...] = ()
    parts: tuple[Way, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds that it is of, its own first."""
        return self.kind, *self.also

    @property
    def each(self) -> tuple[Way, ...]:
        """What replaces one call each: its parts, or itself."""
        return self.parts or (self,)


def step(node: Node, target: Callable[..., Any], *arguments: Any) -> Call:
    """A call that makes what ``node`` stands for from other arguments than the node's."""
    return Call(node, target, arguments=arguments)


def calls_of(draft: OperationDraft, way: Way, over: bool = False) -> list[Call]:
    """Everything that an implementation of ``draft`` calls, views aside, in order.

    Args:
        draft: the operation.
        way: the implementation.
        over: whether it overwrites `Way.over`.
    """
    calls: list[Call] = []
    replaced: dict[Any, Way] = {part.main: part for part in way.each}
    for node in draft.nodes:
        if node in replaced:
            calls += way.steps_over if over and node is way.main else replaced[node].steps
        elif node.target is not operator.getitem or node.args[0] not in replaced:
            calls.append(Call(node, IN_PLACE[node.target] if node in draft.in_place else node.target))  # type: ignore[index, arg-type]
    return calls


def writes_of(draft: OperationDraft, way: Way, found: Storages) -> list[StorageDraft]:
    """The storages that an implementation writes: those of the operation that it makes, and new ones."""
    made = [call.node for call in calls_of(draft, way)]
    overwritten = {call.args[0] for call in calls_of(draft, way) if call.node in draft.in_place}
    storages = [found.of_node[node] for node in made if node in found.of_node and node not in overwritten]
    return [storage for storage in dict.fromkeys(storages) if storage.carrier in made]


def reads_of(draft: OperationDraft, way: Way, found: Storages) -> list[StorageDraft]:
    """The storages that an implementation reads, without those that are there all the time."""
    calls = calls_of(draft, way)
    made = {call.node for call in calls}
    sources = [found.of_node[node] for call in calls for node in call.sources if node not in made]
    return [storage for storage in dict.fromkeys(sources) if not storage.resident]


def overwritten_by(draft: OperationDraft, way: Way, found: Storages) -> StorageDraft | None:
    """The storage that an implementation may overwrite where it dies, or None.

    As for `remat_explorer.capture.operations.in_place.takeover_of`: it is read once, and an output fits in its place,
    or what the operation's next call overwrites does.
    """
    if way.over is None:
        return None
    storage = found.of_node[way.over]
    operands: list[Node] = []
    for call in calls_of(draft, way):
        map_arg((call.args, call.kwargs), operands.append)
    reads = sum(found.of_node.get(node) is storage for node in operands)
    if storage.resident or storage.persistent or reads != 1:
        return None
    written = writes_of(draft, way, found)
    passed_on = {call.args[0] for call in calls_of(draft, way, over=True) if call.node in draft.in_place}
    heirs = [call.node for call in way.steps_over if found.of_node.get(call.node) in written or call.node in passed_on]
    return storage if heirs and covers(way.over, heirs[0], found) else None
