"""A CUDA device that only counts: its caching allocator, in the place of the functions of torch that ask for it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo.device_interface  # keeps functions of torch.cuda when it is imported: not those of a stand-in

from remat_explorer.capture import memory_meter

ROUND, SEGMENT = 512, 2 * 2**20
COUNTS = ("requested_bytes", "allocated_bytes", "reserved_bytes")
GPU = torch.device("cuda", 0)


class StandIn:
    """An allocator that hands out multiples of 512 bytes, from segments of 2 MiB in which any block fits.

    Attributes:
        total: bytes of the device.
        fraction: the share of it that this process may reserve.
        current, peak: bytes, by the names of torch's statistics.
        resets: how often peaks were set back.
    """

    def __init__(self, total: int = 80 * 2**30) -> None:
        self.total, self.fraction, self.resets = total, 1.0, 0
        self.current, self.peak = (dict.fromkeys(COUNTS, 0) for _ in range(2))
        self._blocks: dict[int, int] = {}
        self._next = 0

    def take(self, size: int) -> int:
        rounded = -(-size // ROUND) * ROUND
        needed = -(-(self.current["allocated_bytes"] + rounded) // SEGMENT) * SEGMENT
        if needed > self.fraction * self.total:
            raise torch.OutOfMemoryError(f"{size} bytes")
        reserved = max(needed - self.current["reserved_bytes"], 0)
        self._count(size, rounded, reserved)
        self._next += 1
        self._blocks[self._next] = size
        return self._next

    def free(self, block: int) -> None:
        size = self._blocks.pop(block)
        self._count(-size, -(-(-size // ROUND) * ROUND), 0)

    def _count(self, *sizes: int) -> None:
        for name, size in zip(COUNTS, sizes, strict=True):
            self.current[name] += size
            self.peak[name] = max(self.peak[name], self.current[name])

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        both = {"current": self.current, "peak": self.peak}
        return {f"{name}.all.{which}": size for which, sizes in both.items() for name, size in sizes.items()}

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self.peak, self.resets = dict(self.current), self.resets + 1

    def empty_cache(self) -> None:
        self.current["reserved_bytes"] = -(-self.current["allocated_bytes"] // SEGMENT) * SEGMENT

    def memory_reserved(self, device: Any = None) -> int:
        return self.current["reserved_bytes"]

    def get_device_properties(self, device: Any = None) -> Any:
        return SimpleNamespace(total_memory=self.total)

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        assert 0 <= fraction <= 1
        self.fraction = fraction

    def get_per_process_memory_fraction(self, device: Any = None) -> float:
        return self.fraction

    def synchronize(self, device: Any = None) -> None:
        pass


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr(memory_meter, "_EARLIER", {})
    for name in vars(StandIn):
        if hasattr(torch.cuda, name) and not name.startswith("_"):
            monkeypatch.setattr(torch.cuda, name, getattr(stand_in, name))
    return stand_in
