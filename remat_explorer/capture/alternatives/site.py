"""A call of the captured graph as the patterns of alternatives see it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.alternatives.kernels.flat import is_dense
from remat_explorer.capture.captured_program import Call, step
from remat_explorer.capture.graph_assembly import LABEL, MODULE_PATH
from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages

Content = Callable[[Node], torch.Tensor | None]


@dataclass(eq=False)
class Surroundings:
    """A graph to which alternatives are being added.

    Attributes:
        found: operations and storages, after contraction.
        kinds: of the alternatives that are wanted.
        content: the tensor of a parameter's node, or None where that is not known before the graph runs.
        made: nodes made by one pattern for another, by a key of theirs.
        found_together: by kind, the patterns of several operations by each of their calls, once they were looked for.
        optional: operations to insert, each after another one.
    """

    found: Storages
    kinds: tuple[str, ...]
    content: Content
    made: dict[Any, Node] = field(default_factory=dict)
    found_together: dict[str, dict[Node, Any]] = field(default_factory=dict)
    optional: list[tuple[OperationDraft, OperationDraft]] = field(default_factory=list)
    producer: Mapping[StorageDraft, OperationDraft] = field(init=False)
    caller: Mapping[Node, OperationDraft] = field(init=False)

    def __post_init__(self) -> None:
        self.producer = {storage: draft for draft in self.found.operations for storage in draft.writes}
        self.caller = {node: draft for draft in self.found.operations for node in draft.nodes}

    def fake(self, node: Node) -> Any:
        """What a node gives, as FakeTensors."""
        return self.found.fakes[node]

    def is_kept(self, node: Any) -> bool:
        """Whether a node's tensor can be read: it is there all the time, or a value that an operation writes."""
        if not isinstance(node, Node) or node not in self.found.of_node:
            return False
        storage = self.found.of_node[node]
        if storage.resident or storage not in self.producer:
            return storage.resident
        maker, carrier = self.producer[storage], storage.carrier
        return node is carrier or node not in maker.nodes  # the carrier, or a view of it; else it was overwritten

    def add_value(self, after: Node, target: Callable[..., Any], arguments: tuple[Any, ...], fake: Any, label: str):
        """A node for a value that only alternatives write, right after another node."""
        graph = self.found.module.graph
        while after.next.target is operator.getitem:
            after = after.next
        with graph.inserting_after(after):
            node = graph.call_function(target, arguments)
        node.meta = {MODULE_PATH: after.meta.get(MODULE_PATH, ""), LABEL: label}
        self.found.add(node, fake)
        return node

    def before(self, node: Node, place: Node) -> Node:
        """A node, or where it comes later a copy of the views that lead to it, in front of ``place``."""
        found = self.found
        if found.order[node] < found.order[place]:
            return node
        source = self.before(node.args[0], place)  # type: ignore[arg-type]
        with found.module.graph.inserting_before(place):
            view = found.module.graph.node_copy(node, {node.args[0]: source}.__getitem__)  # type: ignore[arg-type]
        found.fakes[view], found.of_node[view] = found.fakes[node], found.of_node[node]
        vars(found).pop("order", None)
        return view

    def add_optional(self, node: Node, reads: tuple[Node, ...]) -> OperationDraft:
        """An optional operation that makes ``node`` from what it reads."""
        storages = [self.found.of_node[source] for source in reads]
        kept = [storage for storage in dict.fromkeys(storages) if not storage.resident]
        return OperationDraft([node], False, kept, [self.found.of_node[node]], optional=True)


@dataclass(frozen=True, eq=False)
class Site:
    """One call of an operation.

    Attributes:
        scene: the graph.
        draft: the operation.
        call: the call.
    """

    scene: Surroundings
    draft: OperationDraft
    call: Node

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments of the call."""
        return self.call.args

    def fake(self, node: Node) -> Any:
        """What a node gives, as FakeTensors."""
        return self.scene.fake(node)

    def outputs(self) -> dict[int, Node]:
        """The nodes that pick the outputs of the call, by number."""
        return {node.args[1]: node for node in self.call.users if node.target is operator.getitem}  # type: ignore[misc]

    def is_kept(self, *nodes: Any) -> bool:
        """Whether all of the nodes can be read."""
        return all(self.scene.is_kept(node) for node in nodes)

    def same_layout(self, first: Node, second: Node) -> bool:
        """Whether two tensors are dense, with the same shape and strides."""
        a, b = self.fake(first), self.fake(second)
        return a.shape == b.shape and a.stride() == b.stride() and is_dense(a)


def picked(call: Node, number: int) -> Any:
    """The node that picks an output of a call, or None where nobody reads it."""
    return next((n for n in call.users if n.target is operator.getitem and n.args[1] == number), None)


def picks(site: Site) -> list[Call]:
    """The calls that pick the outputs of a step that stands for the call itself."""
    return [step(node, operator.getitem, site.call, number) for number, node in sorted(site.outputs().items())]
