"""Inductor's fusion under a budget: kernels in the order of a plan, joined where memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._inductor.choices import InductorChoices
from torch._inductor.memory import compute_size_for_scheduler_buffer
from torch._inductor.scheduler import ExternKernelSchedulerNode
from torch._inductor.virtualized import V

from remat_explorer.runtime.compiled.halves import OPERATION
from remat_explorer.runtime.compiled.kernel_order import Buffer, Order
from remat_explorer.runtime.compiled.partitioner import Partitioner

Nodes = list[Any]  # of Inductor's scheduler
RESIDENT = ("primals", "tangents", "random_state")  # inputs that are in memory all the time


class FusionWithinBudget(InductorChoices):
    """Inductor's own choices, but for fusions that would exceed a budget or break the order of the plan.

    Inductor asks before each fusion. It is refused where buffers would then take more than there is room for, and more
    than they take already. At the end kernels are sorted as the plan has their operations.

    Args:
        parts: the partitioner that makes the graphs.
        budget: bytes of the step; None for those that the partitioner was asked for.
        unforeseen: bytes by which a trial step took more than the buffers that were counted here.

    Attributes:
        peak: the most bytes of a step by the buffers after fusion, resident bytes included; None before that, and where
            the plan's order could not be kept.
        called: numbers of the operations for which a library is called, and no kernel made.
    """

    def __init__(self, parts: Partitioner, budget: int | None = None, unforeseen: int = 0) -> None:
        super().__init__()
        self.peak: int | None = None
        self.called: set[int] = set()
        self._parts, self._budget, self._unforeseen = parts, budget, unforeseen
        self._order: Order | None = None
        self._joined: tuple[str, str, Order] | None = None  # what was last allowed; Inductor may still decide otherwise

    def uuid(self) -> None:
        """None: what is compiled by these choices is not kept."""

    def settings(self) -> dict[str, Any]:
        """Inductor's settings: passes that call this object, and none that reorders or keeps memory for reuse.

        Results that several operations read are made, as they are in a plan, instead of being computed by each reader.
        """
        return {
            "custom_partitioner_fn": self._parts,
            "fx_graph_cache": False,
            "_pre_fusion_custom_pass": lambda nodes: self._begin(nodes),  # a function, since settings are copied
            "_post_fusion_custom_pass": lambda nodes: self._sorted(nodes),
            "reorder_for_peak_memory": False,
            "reorder_for_locality": False,
            "allow_buffer_reuse": False,
            "realize_reads_threshold": 0,
            "layout_optimization": False,
        }

    def can_fuse(self, scheduler: Any, node1: Any, node2: Any, shared_data_score: int) -> bool:  # type: ignore[override]
        """Whether Inductor may join two nodes of its scheduler."""
        if not InductorChoices.can_fuse(scheduler, node1, node2, shared_data_score):
            return False
        if self._order is None:
            return True
        self._take_over(scheduler)
        one, other = node1.get_first_name(), node2.get_first_name()
        joined = self._order.joined(self._number[one], self._number[other])
        if joined is None or joined.peak > max(self._room, self._order.peak):
            return False
        self._joined = one, other, joined
        return True

    def _begin(self, nodes: Nodes) -> Nodes:
        self._order = self._joined = None
        if self._parts.planned and nodes:
            planned = self._parts.planned[-1]
            backward = bool(V.graph.is_backward)
            self._beside = planned.solution.graph.resident_bytes + (self._parts.beside if backward else 0)
            self._room = (self._budget or planned.budget) - self._unforeseen - self._beside
            self._number = {member.get_name(): k for k, node in enumerate(nodes) for member in node.get_nodes()}
            held = self._parts.held if backward else frozenset()
            called = {k: operation for k, node in enumerate(nodes) if (operation := _called(node)) is not None}
            self.called.update(called.values())
            ways = [planned.solution.graph.operations[number].implementations[0] for number in called.values()]
            during = [Buffer(way.workspace, k, ()) for k, way in zip(called, ways, strict=True)]
            self._order = Order(len(nodes), [*buffers_of(nodes, self._number, held), *during])
        return nodes

    def _take_over(self, scheduler: Any) -> None:
        """The fusion that was allowed last, if it was made."""
        if self._joined is not None:
            one, other, order = self._joined
            if scheduler.name_to_fused_node[one] is scheduler.name_to_fused_node[other]:
                self._order = order
            self._joined = None

    def _sorted(self, nodes: Nodes) -> Nodes:
        """The kernels in the plan's order, or in Inductor's where it joined unasked what stands against the plan's."""
        if self._order is None:
            return nodes
        self._take_over(nodes[0].scheduler)
        order: Order | None = self._order
        for node in nodes:
            first, *others = (self._number[member.get_name()] for member in node.get_nodes())
            for other in others:
                order = order and order.joined(first, other)
        if order is None:
            return nodes
        self.peak = max(self.peak or 0, self._beside + order.peak)
        return sorted(nodes, key=lambda node: order.place_of(self._number[node.get_first_name()]))


def _called(node: Any) -> int | None:
    """The operation for which a node calls a library; None for kernels that Inductor makes."""
    if not isinstance(node, ExternKernelSchedulerNode) or node.node is None:
        return None
    numbers = {origin.meta[OPERATION] for origin in node.node.get_origins() if origin.meta.get(OPERATION) is not None}
    return max(numbers, default=None)


def buffers_of(nodes: Nodes, number: dict[str, int], held: frozenset[str]) -> list[Buffer]:
    """What the nodes of a scheduler write and read, before fusion.

    Args:
        nodes: in the order of the graph.
        number: of each node, and of the nodes in it, by name.
        held: inputs that stay to the end.
    """
    scheduler, stay = nodes[0].scheduler, {*V.graph.get_output_names(), *held}
    sizes = compute_size_for_scheduler_buffer(scheduler.name_to_buf)
    maker = {buffer.get_name(): k for k, node in enumerate(nodes) for buffer in node.get_outputs()}
    buffers = _inputs(nodes, scheduler, number, stay)
    for k, node in enumerate(nodes):
        for made in node.get_outputs():
            name, users = made.get_name(), _Users(made.users, number)
            allocated, freed = sizes[name]
            if allocated == freed:
                buffers.append(Buffer(freed, k, users.readers, users.followers, name in stay, users.over))
                continue
            buffers.append(Buffer(0, k, users.readers, users.followers))
            if freed:  # one of several results: its memory is there as soon as the call before it runs
                call = min(maker[read.name] for read in node.read_writes.reads if read.name in maker)
                buffers.append(Buffer(freed, call, (k, *users.readers), (), name in stay))
    return buffers


class _Users:
    """Who uses a buffer, by number: who reads it, who comes after its maker, and who may write over it."""

    def __init__(self, users: Sequence[Any], number: dict[str, int]) -> None:
        inside = [(number[user.get_name()], user) for user in users if user.get_name() in number]
        self.followers = tuple(dict.fromkeys(k for k, _ in inside))
        self.readers = tuple(dict.fromkeys(k for k, user in inside if not user.is_weak))
        self.over = frozenset(k for k, user in inside if user.can_inplace)


def _inputs(nodes: Nodes, scheduler: Any, number: dict[str, int], stay: set[str]) -> list[Buffer]:
    """Activations that a backward graph is given: memory that is free after the last use."""
    readers: dict[str, list[int]] = {}
    for k, node in enumerate(nodes):
        for name in dict.fromkeys(read.name for read in node.read_writes.reads):
            if name in V.graph.graph_inputs and not name.startswith(RESIDENT):
                readers.setdefault(name, []).append(k)
    buffers = []
    for name, found in readers.items():
        tensor: Any = V.graph.graph_inputs[name]
        donated = scheduler.name_to_donated_buffer.get(name)
        over = frozenset() if donated is None else _Users(donated.users, number).over
        size = int(tensor.get_numel()) * tensor.get_dtype().itemsize
        buffers.append(Buffer(size, None, tuple(found), (), name in stay, over))
    return buffers
