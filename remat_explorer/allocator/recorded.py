"""Recorded histories of PyTorch's allocator, replayed on the simulated one and compared.

``torch.cuda.memory._snapshot()`` has a list of entries for each device: what was allocated and freed, and what that
took from the driver or gave back. Requests and frees drive the simulation. What the driver gave is only compared,
and where it lies taken over. What went back is taken over, too: when memory ran out, or the cache was emptied, is not
in the requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remat_explorer.allocator.blocks import Block
from remat_explorer.allocator.caching import CachingAllocator
from remat_explorer.allocator.settings import AllocatorSettings
from remat_explorer.errors import RematError, shown
from remat_explorer.quantities import MOST_BYTES

_TAKEN = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


@dataclass(frozen=True, eq=False)
class TraceReplay:
    """Reserved bytes after each allocation and each free of a recorded history, int64.

    Attributes:
        entries: where these stand in the history.
        recorded: what PyTorch had reserved.
        simulated: what the simulation has.
        moved: entries of allocations that lie elsewhere in the simulation.
    """

    entries: np.ndarray
    recorded: np.ndarray
    simulated: np.ndarray
    moved: tuple[int, ...]

    @property
    def first_difference(self) -> int | None:
        """The first entry after which reserved bytes differ; None where none is."""
        different = np.flatnonzero(self.recorded != self.simulated)
        return int(self.entries[different[0]]) if len(different) else None


class _Addresses:
    """Where the driver put its segments, and somewhere else for those that only the simulation has."""

    def __init__(self) -> None:
        self.fresh: list[int] = []
        self._elsewhere = MOST_BYTES

    def __call__(self, size: int) -> int:
        if self.fresh:
            return self.fresh.pop(0)
        self._elsewhere += size
        return self._elsewhere - size


def replay_trace(entries: Sequence[Mapping[str, Any]], settings: AllocatorSettings | None = None) -> TraceReplay:
    """Replay one device's entries of a memory snapshot, ``snapshot["device_traces"][0]``.

    The history must begin before the first allocation, and be of one stream and no private pool.

    Raises:
        RematError: if an entry is unknown, frees what the history has not allocated, or is of a second stream.

    >>> history = [{"action": "segment_alloc", "addr": 4096, "size": 2097152, "stream": 0},
    ...            {"action": "alloc", "addr": 4096, "size": 1000, "stream": 0}]
    >>> replay_trace(history).simulated.tolist(), replay_trace(history).first_difference
    ([2097152], None)
    """
    place = _Addresses()
    allocator = CachingAllocator(settings or AllocatorSettings(), place)
    blocks: dict[int, Block] = {}
    reserved, at, recorded, simulated, moved = 0, [], [], [], []
    for i, entry in enumerate(entries):
        action, address, size = entry["action"], entry.get("addr", 0), entry.get("size", 0)
        if entry.get("stream", 0) != entries[0].get("stream", 0):
            raise RematError(f"entry {i} is of stream {shown(entry['stream'])}; record a history of one stream")
        if any(entry.get("pool_id", ())):
            raise RematError(f"entry {i} is of the private pool {shown(entry['pool_id'])}, which is not simulated")
        reserved += _TAKEN.get(action, 0) * size
        if action == "segment_alloc" or (action == "segment_map" and not _inside(allocator, address)):
            place.fresh.append(address)
        elif action in ("segment_free", "segment_unmap"):
            _release(allocator, address)
        elif action == "alloc":
            block = blocks[address] = allocator.allocate(size)
            place.fresh.clear()
            if block.address != address:
                moved.append(i)
        elif action == "free_completed":
            if address not in blocks:
                raise RematError(
                    f"entry {i} frees address {shown(address)}, which the history has not allocated; record it from "
                    "before the first allocation"
                )
            allocator.free(blocks.pop(address))
        elif action not in ("free_requested", "segment_map", "snapshot", "oom"):
            raise RematError(f"entry {i} has the action {shown(action)}, which is not known")
        if action in ("alloc", "free_completed"):
            at.append(i)
            recorded.append(reserved)
            simulated.append(allocator.reserved)
    columns = np.array([at, recorded, simulated], dtype=np.int64)
    return TraceReplay(columns[0], columns[1], columns[2], tuple(moved))


def _inside(allocator: CachingAllocator, address: int) -> bool:
    return any(segment.address <= address < segment.address + segment.size for segment in allocator.segments.values())


def _release(allocator: CachingAllocator, address: int) -> None:
    """Give back what PyTorch gave back at ``address``, where the simulation has it free."""
    for segment in allocator.segments.values():
        if segment.address <= address < segment.address + segment.size:
            for block in segment.blocks():
                if block.address <= address < block.address + block.size and not block.allocated and block.mapped:
                    if segment.granule or block.whole:
                        allocator.release(block)
                    return
