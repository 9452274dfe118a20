"""What PyTorch's caching allocator on a GPU would take for a plan, beside the requested bytes of its timeline.

The plan is replayed on a simulated allocator that has nothing to begin with. Resident bytes come first; a graph has
their sum only, so they are one block unless their sizes are given. A statement's workspace comes before its outputs,
and goes after it; an output that overwrites takes the block of what it overwrites. What runs inside of an operation is
known by its sum only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from remat_explorer.allocator.blocks import Block
from remat_explorer.allocator.caching import CachingAllocator
from remat_explorer.allocator.settings import AllocatorSettings
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plan import Compute, Free, Plan, Timeline
from remat_explorer.quantities import format_bytes, format_share
from remat_explorer.schedule import Schedule


class AnyPlan(Protocol):
    """A plan, or one that sends values: what is fetched is allocated, by a statement with ``allocates``."""

    @property
    def graph(self) -> Graph: ...
    @property
    def statements(self) -> tuple[Any, ...]: ...
    def text(self, statement: Any) -> str: ...


@dataclass(frozen=True, eq=False)
class AllocatorPrediction:
    """Bytes that PyTorch's caching allocator would count while a plan runs on a GPU, resident bytes included.

    Attributes:
        requested: what was asked for; that of the plan's own timeline.
        allocated: what was handed out, rounded up to blocks.
        reserved: what was taken from the driver, in use or not; other tools show this.
        settings: how the allocator was set.
        resident_blocks: how many blocks the resident bytes are: one where only their sum is known.
    """

    requested: Timeline
    allocated: Timeline
    reserved: Timeline
    settings: AllocatorSettings
    resident_blocks: int

    @property
    def peak_requested(self) -> int:
        """Most requested bytes at a time."""
        return self.requested.peak

    @property
    def peak_allocated(self) -> int:
        """Most allocated bytes at a time."""
        return self.allocated.peak

    @property
    def peak_reserved(self) -> int:
        """Most reserved bytes at a time: what a GPU must have for the plan."""
        return self.reserved.peak

    @property
    def fragmentation(self) -> float:
        """The share of the reserved bytes that is not allocated even where most is: 1 - allocated / reserved peak."""
        return 1 - self.peak_allocated / self.peak_reserved if self.peak_reserved else 0.0

    def __str__(self) -> str:
        expandable = " with expandable segments" if self.settings.expandable_segments else ""
        return (
            f"PyTorch's allocator on a GPU{expandable}: {format_bytes(self.peak_reserved)} reserved, "
            f"{format_bytes(self.peak_allocated)} allocated, fragmentation {format_share(self.fragmentation)}"
        )


def predict_allocator(
    plan: AnyPlan, settings: AllocatorSettings | None = None, resident: Iterable[int] | None = None
) -> AllocatorPrediction:
    """Replay a plan on the simulated allocator.

    Args:
        plan: of any graph, wherever it was captured; or one that sends values, whose memory is in the same order.
        settings: of the allocator; those of this process unless given.
        resident: bytes of each resident tensor, in the order in which they were made; one block unless given.

    Raises:
        OutOfMemoryError: if the settings have a capacity, and the plan needs more; with the statement.

    The default prediction of a plan is remembered for as long as the plan lives.

    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> found = predict_allocator(plan, AllocatorSettings())
    >>> found.peak_requested, found.peak_allocated, found.peak_reserved
    (3, 1536, 2097152)
    """
    if settings is None and resident is None:
        return _predicted(plan)
    return _replay(plan, settings or AllocatorSettings.of_process(), resident)


def reserved_of(schedule: Schedule) -> int:
    """Predicted reserved bytes of the schedule's plan, remembered for as long as the schedule lives.

    >>> from remat_explorer.instances import linear
    >>> reserved_of(Schedule(linear(1), np.eye(3), [[0, 0, 0], [1, 0, 0], [1, 1, 0]]))
    2097152
    """
    return _reserved_of(schedule)


@memoize_by_identity
def _predicted(plan: AnyPlan) -> AllocatorPrediction:
    return _replay(plan, AllocatorSettings.of_process(), None)


@memoize_by_identity
def _reserved_of(schedule: Schedule) -> int:
    return predict_allocator(Plan.of(schedule)).peak_reserved


def _replay(plan: AnyPlan, settings: AllocatorSettings, resident: Iterable[int] | None) -> AllocatorPrediction:
    graph, bytes_of = plan.graph, plan.graph.value_bytes.tolist()
    allocator = CachingAllocator(settings)
    allocate, free = allocator.allocate, allocator.free
    sizes = [size for size in ([graph.resident_bytes] if resident is None else resident) if size]
    for size in sizes:
        allocate(size)
    held: dict[int, Block] = {}
    during, after = [], []
    allocator.highest_reserved()
    for i, statement in enumerate(plan.statements):
        if isinstance(statement, Free):
            highest = allocator.requested, allocator.allocated, allocator.reserved
            if statement.value in held:  # empty ones have no block
                free(held.pop(statement.value))
        else:
            try:
                if isinstance(statement, Compute):
                    highest = _compute(allocator, plan, statement, bytes_of, held)
                else:
                    if getattr(statement, "allocates", False) and bytes_of[statement.value]:
                        held[statement.value] = allocate(bytes_of[statement.value])
                    highest = allocator.requested, allocator.allocated, allocator.highest_reserved()
            except OutOfMemoryError as error:
                raise OutOfMemoryError(f"{plan.text(statement)!r}, statement {i}: {error}", i) from None
        during.append(highest)
        after.append((allocator.requested, allocator.allocated, allocator.reserved))
    stages = np.array([statement.stage for statement in plan.statements])
    columns = np.array([during, after], dtype=np.int64).reshape(2, -1, 3)
    requested, allocated, reserved = (
        Timeline(columns[0, :, kind].copy(), columns[1, :, kind].copy(), stages) for kind in range(3)
    )
    return AllocatorPrediction(requested, allocated, reserved, settings, len(sizes))


def _compute(
    allocator: CachingAllocator, plan: AnyPlan, statement: Compute, bytes_of: list[int], held: dict[int, Block]
) -> tuple[int, int, int]:
    """Run one operation; the most bytes that are requested, allocated and reserved meanwhile."""
    way = plan.graph.operations[statement.operation].implementations[statement.implementation - 1]
    workspace = allocator.allocate(way.workspace) if way.workspace else None
    heir = None
    if statement.overwrites is not None:
        heir = plan.graph.heir(statement.operation, statement.implementation)
        if heir is not None and statement.overwrites in held:
            held[heir] = held.pop(statement.overwrites)
    dropped = []
    for v in way.outputs:
        if v != heir and bytes_of[v]:
            block = allocator.allocate(bytes_of[v])
            if v in statement.drops:
                dropped.append(block)
            else:
                held[v] = block
    highest = allocator.requested, allocator.allocated, allocator.highest_reserved()
    if workspace is not None:
        allocator.free(workspace)
    for block in dropped:
        allocator.free(block)
    return highest
