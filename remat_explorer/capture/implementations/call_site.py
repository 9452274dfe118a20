"""A call of the captured graph as patterns see it: what surrounds it, through views, and tolerances of what they yield.

A tolerance says how far apart two kernels may be that compute the same, by the type of the tensors and the device. What
is called equal bit for bit is equal in tests on the CPU. On CUDA, the kernels that a library takes depend on the GPU,
and some add in an order that changes from run to run, so only what holds for any order is called exact there:
comparisons, choices, and the same kernel with the same arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.captured_program import Call, step
from remat_explorer.capture.graph_assembly import LABEL, MODULE_PATH
from remat_explorer.capture.implementations.chunks import is_dense
from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages

aten = torch.ops.aten
ROUNDING = {torch.float64: 1e-14, torch.float32: 3e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
TF32 = 2e-3  # of products whose factors cuDNN rounds to 10 bits
TURNED = aten.t.default
VIEWS = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.alias.default,
    aten.detach.default,
    TURNED,
)
Content = Callable[[Node], torch.Tensor | None]


def reordered(tensor: torch.Tensor) -> float:
    """Tolerance of results whose sums come in another order, relative to the largest entry."""
    return ROUNDING.get(tensor.dtype, ROUNDING[torch.bfloat16])


def reordered_products(tensor: torch.Tensor) -> float:
    """As `reordered`, for convolutions, whose products may be less accurate on CUDA than the type of the tensors."""
    if tensor.device.type == "cuda" and tensor.dtype == torch.float32 and torch.backends.cudnn.allow_tf32:
        return TF32
    return reordered(tensor)


def equal_on_cpu(tensor: torch.Tensor, elsewhere: Callable[[torch.Tensor], float] = reordered) -> float:
    """Tolerance of what tests on the CPU find equal bit for bit, and what need not be elsewhere."""
    return 0.0 if on_cpu(tensor) else elsewhere(tensor)


def on_cpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor, or what a FakeTensor stands for, lies on the CPU."""
    return tensor.device.type == "cpu"


def made_by(node: Any) -> Node:
    """The call that made what views of it show."""
    while isinstance(node, Node) and node.target in VIEWS:
        node = node.args[0]
    return node


def readers_of(node: Node) -> set[Node]:
    """The calls that read a tensor or views of it, but views."""
    found: set[Node] = set()
    for user in node.users:
        found |= readers_of(user) if user.target in VIEWS else {user}
    return found


def turns(node: Any) -> int:
    """How many of the views that lead to a node turn a matrix."""
    count = 0
    while isinstance(node, Node) and node.target in VIEWS:
        count += node.target is TURNED
        node = node.args[0]
    return count


@dataclass(eq=False)
class Surroundings:
    """A graph to which alternatives are being added."""

    found: Storages  # after contraction
    kinds: tuple[str, ...]  # of the alternatives that are wanted
    content: Content  # of a parameter's node; None where unknown before the graph runs
    made: dict[Any, Node] = field(default_factory=dict)  # by one pattern for another, by a key of theirs
    found_together: dict[str, dict[Node, Any]] = field(default_factory=dict)  # by kind: patterns of several operations
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
    """One call of an operation."""

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
