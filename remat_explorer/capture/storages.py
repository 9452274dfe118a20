"""Which nodes of the joint graph share a storage, and so what its operations and values are.

Aliasing is observed, not looked up: tensors with the same storage are one value. Operator schemas are no substitute,
since they miss `_unsafe_view`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, TangentAOTInput
from torch.fx import GraphModule, Node

from remat_explorer.capture.captured_program import CapturedImplementation
from remat_explorer.capture.graph_rewrites import graph_results, output_node
from remat_explorer.capture.propagation import Fakes, storage_key, tensors_of
from remat_explorer.errors import CaptureError


@dataclass(eq=False)
class StorageDraft:
    """A storage, while contraction may still change who carries it.

    Attributes:
        carrier: the node whose tensor is kept in memory; every other node of the storage is a view of it.
        resident: whether it belongs to a parameter, buffer, input or constant.
        persistent: whether it is a result of the training step.
    """

    carrier: Node
    bytes: int
    resident: bool = False
    persistent: bool = False


@dataclass(eq=False)
class OperationDraft:
    """An operation, while contraction may still join it to another.

    Attributes:
        nodes: the calls that make storages, in graph order, with the getitems that pick their outputs.
        discarded: bytes of outputs that nobody reads; they exist only while the operation runs.
        in_place: calls that overwrite their first argument.
        ways: other implementations.
        optional: whether it only makes what some other implementation reads.
    """

    nodes: list[Node]
    backward: bool
    reads: list[StorageDraft] = field(default_factory=list)
    writes: list[StorageDraft] = field(default_factory=list)
    discarded: int = 0
    in_place: set[Node] = field(default_factory=set)
    ways: list[CapturedImplementation] = field(default_factory=list)
    optional: bool = False

    @property
    def calls(self) -> list[Node]:
        """The nodes without the getitems."""
        return [node for node in self.nodes if node.target is not operator.getitem]


Readers = dict[StorageDraft, list[OperationDraft]]


@dataclass(eq=False)
class Storages:
    """Operations and storages of a joint graph; ``fakes`` maps each node to its FakeTensors."""

    module: GraphModule
    fakes: Fakes
    operations: list[OperationDraft]
    of_node: dict[Node, StorageDraft]
    resident_bytes: int

    @cached_property
    def order(self) -> dict[Node, int]:
        """Place of each node in the graph."""
        return {node: place for place, node in enumerate(self.module.graph.nodes)}

    @cached_property
    def trained(self) -> frozenset[Any]:
        """Descriptions of the parameters and inputs that get a gradient."""
        meanings = (meaning for node, meaning in graph_results(self.module) if node is not None)
        return frozenset(meaning.grad_of for meaning in meanings if isinstance(meaning, GradAOTOutput))

    def add(self, node: Node, fake: Any) -> None:
        """A node that was inserted into the graph, what it gives, and a storage of its own."""
        self.fakes[node] = fake
        self.of_node[node] = StorageDraft(node, fake.untyped_storage().nbytes())
        vars(self).pop("order", None)  # counted anew, with this node

    def readers(self) -> Readers:
        """Who reads each storage, in order, as things stand."""
        readers: Readers = {}
        for draft in self.operations:
            for storage in draft.reads:
                readers.setdefault(storage, []).append(draft)
        return readers


def find_storages(module: GraphModule, fakes: Fakes) -> Storages:
    """The operations and storages of a cleaned joint graph.

    Args:
        module: the joint graph.
        fakes: its values, from `propagate`.

    Raises:
        CaptureError: if an operator gives a mixture of new and old storages.
    """
    by_key: dict[int, StorageDraft] = {}
    storages = Storages(module, fakes, [], {}, 0)
    backward = _backward_nodes(module)
    operation_of: dict[Node, OperationDraft] = {}
    for node in module.graph.nodes:
        if node.op == "output" or not (tensors := tensors_of(fakes[node])):
            continue
        keys = [storage_key(tensor) for tensor in tensors]
        if node.op in ("placeholder", "get_attr"):
            if keys[0] not in by_key:
                by_key[keys[0]] = StorageDraft(node, tensors[0].untyped_storage().nbytes(), resident=True)
            storages.of_node[node] = by_key[keys[0]]
        elif node.target is operator.getitem and node.args[0] in operation_of:
            _add_output(operation_of[node.args[0]], node, tensors[0], by_key)
            storages.of_node[node] = by_key[keys[0]]
        elif all(key in by_key for key in keys):
            storages.of_node[node] = by_key[keys[0]]
        elif any(key in by_key for key in keys):
            raise CaptureError(f"{node.target} returns both new tensors and views of its inputs, which has no plan")
        else:
            draft = OperationDraft([node], node in backward)
            operation_of[node] = draft
            storages.operations.append(draft)
            if isinstance(fakes[node], torch.Tensor):
                _add_output(draft, node, tensors[0], by_key, listed=True)
                storages.of_node[node] = by_key[keys[0]]
            else:
                draft.discarded = sum({storage_key(t): t.untyped_storage().nbytes() for t in tensors}.values())
    storages.resident_bytes = sum(storage.bytes for storage in by_key.values() if storage.resident)
    for draft in storages.operations:
        sources = [storages.of_node[a] for node in draft.calls for a in node.all_input_nodes]
        draft.reads = [storage for storage in dict.fromkeys(sources) if not storage.resident]
    for result in output_node(module).all_input_nodes:
        storages.of_node[result].persistent = not storages.of_node[result].resident
    return storages


def _add_output(
    draft: OperationDraft, node: Node, tensor: torch.Tensor, by_key: dict[int, StorageDraft], listed: bool = False
) -> None:
    if not listed:
        draft.nodes.append(node)
    key = storage_key(tensor)
    if key in by_key:  # a second output in the same storage: the storage is counted once
        return
    by_key[key] = StorageDraft(node, tensor.untyped_storage().nbytes())
    draft.writes.append(by_key[key])
    if not listed:
        draft.discarded -= by_key[key].bytes


def _backward_nodes(module: GraphModule) -> set[Node]:
    """Nodes that depend on the tangent, or that the export marks as backward."""
    backward: set[Node] = set()
    for node in module.graph.nodes:
        if (
            isinstance(node.meta.get("desc"), TangentAOTInput)
            or node.meta.get("partitioner_tag") == "is_backward"
            or any(source in backward for source in node.all_input_nodes)
        ):
            backward.add(node)
    return backward
