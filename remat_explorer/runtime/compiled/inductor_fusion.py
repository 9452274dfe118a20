"""Inductor's fusion under a budget: kernels in the order of a plan, joined where memory allows.

`KernelOrder` says which operations may share a kernel, so that the order of the plan and its memory stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch._inductor.choices import InductorChoices
from torch._inductor.memory import compute_size_for_scheduler_buffer
from torch._inductor.scheduler import ExternKernelSchedulerNode
from torch._inductor.virtualized import V

from remat_explorer.runtime.compiled.partitioner import OPERATION, Partitioner

Nodes = list[Any]  # of Inductor's scheduler
RESIDENT = ("primals", "tangents", "random_state")  # inputs that are in memory all the time


class FusionWithinBudget(InductorChoices):
    """Inductor's own choices, but for fusions that would exceed a budget or break the order of the plan.

    Inductor asks before each fusion. It is refused where buffers would then take more than there is room for, and more
    than they take already. At the end kernels are sorted as the plan has their operations. ``unforeseen`` is by how
    many bytes a trial step took more than the buffers that were counted here. ``peak`` includes resident bytes; it is
    None before that, and where the plan's order could not be kept.
    """

    def __init__(self, parts: Partitioner, budget: int | None = None, unforeseen: int = 0) -> None:
        super().__init__()
        self.peak: int | None = None
        self.called: set[int] = set()
        self._parts, self._budget, self._unforeseen = parts, budget, unforeseen
        self._order: KernelOrder | None = None
        self._joined: tuple[str, str, KernelOrder] | None = (
            None  # what was last allowed; Inductor may still decide otherwise
        )

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
        joined = self._order.fuse(self._number[one], self._number[other])
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
            called = {
                k: operation for k, node in enumerate(nodes) if (operation := _library_operation(node)) is not None
            }
            self.called.update(called.values())
            ways = [planned.solution.graph.operations[number].implementations[0] for number in called.values()]
            during = [Buffer(way.workspace, k, ()) for k, way in zip(called, ways, strict=True)]
            self._order = KernelOrder(len(nodes), [*buffers_of(nodes, self._number, held), *during])
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
        order: KernelOrder | None = self._order
        for node in nodes:
            first, *others = (self._number[member.get_name()] for member in node.get_nodes())
            for other in others:
                order = order and order.fuse(first, other)
        if order is None:
            return nodes
        self.peak = max(self.peak or 0, self._beside + order.peak)
        return sorted(nodes, key=lambda node: order.place_of(self._number[node.get_first_name()]))


def _library_operation(node: Any) -> int | None:
    """The operation for which a node calls a library; None for kernels that Inductor makes."""
    if not isinstance(node, ExternKernelSchedulerNode) or node.node is None:
        return None
    numbers = {origin.meta[OPERATION] for origin in node.node.get_origins() if origin.meta.get(OPERATION) is not None}
    return max(numbers, default=None)


def buffers_of(nodes: Nodes, number: dict[str, int], held: frozenset[str]) -> list[Buffer]:
    """What the nodes of a scheduler write and read, before fusion; the ``held`` inputs stay to the end."""
    scheduler, stay = nodes[0].scheduler, {*V.graph.get_output_names(), *held}
    sizes = compute_size_for_scheduler_buffer(scheduler.name_to_buf)
    maker = {buffer.get_name(): k for k, node in enumerate(nodes) for buffer in node.get_outputs()}
    buffers = _input_buffers(nodes, scheduler, number, stay)
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


def _input_buffers(nodes: Nodes, scheduler: Any, number: dict[str, int], stay: set[str]) -> list[Buffer]:
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


Array = NDArray[np.int64]


@dataclass(frozen=True)
class Buffer:
    """Memory that operations write and read."""

    size: int  # bytes
    maker: int | None  # None for what is there before the first one
    readers: tuple[int, ...]
    followers: tuple[int, ...] = ()  # operations that have to come after its maker, readers included
    held: bool = False  # whether it stays to the end
    over: frozenset[int] = frozenset()  # readers that may put a result of theirs in its place


class KernelOrder:
    """Operations in the order of a plan, some of them joined to kernels, and the memory that this takes.

    A kernel needs all that it reads and all that it writes at one time; what only its own operations read is never in
    memory. A result takes the place of an input of the same size that the same operation reads last.
    """

    def __init__(self, operations: int, buffers: Sequence[Buffer]) -> None:
        self._links = _BufferLinks(operations, buffers)
        self._state = _KernelState(np.arange(operations), np.arange(operations), *np.zeros((3, len(buffers)), np.int64))
        self._measure(range(len(buffers)))

    @property
    def peak(self) -> int:
        """The most bytes of buffers at a time."""
        return int(self._live.max(initial=0))

    def place_of(self, operation: int) -> int:
        """Where the kernel of an operation runs; kernels run in the order of their places."""
        return int(self._state.place[self._state.kernel[operation]])

    def fuse(self, one: int, other: int) -> KernelOrder | None:
        """The order in which two operations, and what is joined to them, run in one kernel where that takes least.

        The kernel runs where the later one of the two ran, or where the earlier one did. None if something in between
        stands against both, since it reads what the first makes, or makes what the second reads.
        """
        early, late = sorted((int(self._state.kernel[k]) for k in (one, other)), key=lambda k: self._state.place[k])
        if early == late:
            return self
        places = []
        if not self._between(early, late, self._links.after, early):
            places.append(int(self._state.place[late]))
        if not self._between(early, late, self._links.before, late):
            places.append(int(self._state.place[early]))
        return min((self._with(early, late, place) for place in places), key=lambda order: order.peak, default=None)

    def _between(self, early: int, late: int, related: Sequence[set[int]], moved: int) -> bool:
        """Whether a kernel between the two is related to the one that would move past it."""
        state = self._state
        found = {int(state.kernel[k]) for member in state.members(moved) for k in related[member]}
        return any(state.place[early] < state.place[kernel] < state.place[late] for kernel in found)

    def _with(self, early: int, late: int, place: int) -> KernelOrder:
        state = self._state.copy()
        members = [*state.members(early), *state.members(late)]
        state.kernel[members] = early
        state.place[early] = place
        order = copy(self)
        order._state = state
        order._measure(sorted({k for member in members for k in self._links.near[member]}))
        return order

    def _measure(self, changed: Sequence[int]) -> None:
        """Give these buffers their first and last place and their bytes, and sum up all."""
        state = self._state
        for k in changed:
            state.first[k], state.last[k], state.bytes[k] = self._lifetime(k)
        steps = np.zeros(len(state.kernel) + 1, np.int64)
        np.add.at(steps, state.first, state.bytes)
        np.subtract.at(steps, state.last + 1, state.bytes)
        self._live = np.cumsum(steps[:-1])

    def _lifetime(self, k: int) -> tuple[int, int, int]:
        buffer = self._links.buffers[k]
        if self._is_inside(k):
            return 0, 0, 0
        first = 0 if buffer.maker is None else self.place_of(buffer.maker)
        if buffer.held:
            return first, len(self._state.kernel) - 1, buffer.size
        last = max((self.place_of(reader) for reader in buffer.readers), default=first)
        return first, last - self._is_taken(k), buffer.size

    def _is_inside(self, k: int) -> bool:
        """Whether a buffer is read by the operations of its own kernel alone."""
        buffer = self._links.buffers[k]
        if buffer.maker is None or buffer.held or not buffer.readers:
            return False
        return len({int(self._state.kernel[x]) for x in (buffer.maker, *buffer.readers)}) == 1

    def _is_taken(self, k: int) -> bool:
        """Whether a result takes the place of a buffer; of several inputs that could go, the first does."""
        links, reader = self._links, self._last_alone(k)
        if reader is None:
            return False
        size = links.buffers[k].size
        if not any(links.buffers[made].size == size and not self._is_inside(made) for made in links.made[reader]):
            return False
        others = (j for j in links.read[reader] if j < k and links.buffers[j].size == size)
        return all(self._last_alone(j) != reader for j in others)

    def _last_alone(self, k: int) -> int | None:
        """The one operation that reads a buffer in the last kernel that does, if it may write over it."""
        buffer = self._links.buffers[k]
        if buffer.held or not buffer.over or self._is_inside(k):
            return None
        last = max(self.place_of(reader) for reader in buffer.readers)
        readers = [reader for reader in buffer.readers if self.place_of(reader) == last]
        made_there = buffer.maker is not None and self.place_of(buffer.maker) == last
        return readers[0] if len(readers) == 1 and readers[0] in buffer.over and not made_there else None


@dataclass(frozen=True)
class _KernelState:
    """Kernels and lifetimes."""

    kernel: Array  # of each operation, called by one of its operations
    place: Array  # of each kernel
    first: Array  # of each buffer, as last: the places between which it is in memory
    last: Array
    bytes: Array  # of each buffer in that time

    def copy(self) -> _KernelState:
        return replace(self, **{name: array.copy() for name, array in vars(self).items()})

    def members(self, kernel: int) -> list[int]:
        return np.flatnonzero(self.kernel == kernel).tolist()


class _BufferLinks:
    """How operations and buffers are connected, which fusion does not change."""

    def __init__(self, operations: int, buffers: Sequence[Buffer]) -> None:
        self.buffers = tuple(buffers)
        self.made: list[list[int]] = [[] for _ in range(operations)]
        self.read: list[list[int]] = [[] for _ in range(operations)]
        self.after: list[set[int]] = [set() for _ in range(operations)]
        self.before: list[set[int]] = [set() for _ in range(operations)]
        for k, buffer in enumerate(self.buffers):
            for reader in buffer.readers:
                self.read[reader].append(k)
            if buffer.maker is not None:
                self.made[buffer.maker].append(k)
                for follower in {*buffer.followers, *buffer.readers} - {buffer.maker}:
                    self.after[buffer.maker].add(follower)
                    self.before[follower].add(buffer.maker)

    @cached_property
    def near(self) -> list[set[int]]:
        """The buffers whose lifetime may change with the kernel of an operation."""
        touched = [{*made, *read} for made, read in zip(self.made, self.read, strict=True)]
        return [{j for k in ks for x in self.buffers[k].readers for j in touched[x]} | ks for ks in touched]
