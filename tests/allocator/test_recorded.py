"""Recorded histories: entries as PyTorch writes them, replayed and compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from remat_explorer.allocator import AllocatorSettings, replay_trace
from remat_explorer.errors import RematError

MIB = 1 << 20
BASE = 0x7F00_0000_0000
EXPANDABLE = AllocatorSettings(expandable_segments=True)


def entry(action: str, address: int, size: int, stream: int = 0) -> dict[str, Any]:
    """As `torch.cuda.memory._snapshot()["device_traces"][0]` has them."""
    return {"action": action, "addr": BASE + address, "size": size, "stream": stream, "time_us": 0, "frames": []}


def freed(address: int, size: int) -> list[dict[str, Any]]:
    return [entry("free_requested", address, size), entry("free_completed", address, size)]


# a and b share a segment of 20 MiB, c has one of 12 MiB at a lower address. When a is free, d uses its block. b is
# freed, and joins the rest; the cache is emptied: the segment of c, which is free, goes back.
HISTORY = [
    entry("segment_alloc", 64 * MIB, 20 * MIB),
    entry("alloc", 64 * MIB, 5 * MIB),
    entry("alloc", 69 * MIB, 6 * MIB),
    entry("segment_alloc", 0, 12 * MIB),
    entry("alloc", 0, 12 * MIB),
    *freed(64 * MIB, 5 * MIB),
    entry("alloc", 64 * MIB, 5 * MIB - 100),
    *freed(69 * MIB, 6 * MIB),
    *freed(0, 12 * MIB),
    entry("segment_free", 0, 12 * MIB),
    entry("alloc", 69 * MIB, 15 * MIB),
    {"action": "snapshot", "addr": 0, "size": 0, "stream": 0},
]
# Granules of 20 MiB: a grows the segment to two; both go back when a is free and the cache is emptied.
GROWING = [
    entry("segment_map", 0, 20 * MIB),
    entry("alloc", 0, 3 * MIB),
    entry("segment_map", 20 * MIB, 20 * MIB),
    entry("alloc", 3 * MIB, 30 * MIB),
    *freed(3 * MIB, 30 * MIB),
    entry("segment_unmap", 20 * MIB, 20 * MIB),
    entry("alloc", 3 * MIB, 17 * MIB),
]


@pytest.mark.parametrize(
    ("history", "settings", "reserved"),
    [
        (HISTORY, AllocatorSettings(), [20, 20, 32, 32, 32, 32, 32, 20]),
        (GROWING, EXPANDABLE, [20, 40, 40, 20]),
    ],
    ids=["segments", "expandable"],
)
def test_a_history_written_by_hand_is_replayed_to_the_byte(
    history: list[dict[str, Any]], settings: AllocatorSettings, reserved: list[int]
) -> None:
    found = replay_trace(history, settings)
    assert found.recorded.tolist() == found.simulated.tolist() == [size * MIB for size in reserved]
    assert found.first_difference is None
    assert found.moved == ()


def test_the_first_entry_that_differs_is_named() -> None:
    # 11 MiB take 12 MiB; a history that says 14 is not PyTorch's.
    wrong = [entry("segment_alloc", 0, 14 * MIB), entry("alloc", 0, 11 * MIB)]
    assert replay_trace(wrong).first_difference == 1


def test_blocks_that_lie_elsewhere_are_named() -> None:
    moved = [
        entry("segment_alloc", 0, 20 * MIB),
        entry("alloc", 0, 3 * MIB),
        entry("alloc", 4 * MIB, 3 * MIB),  # behind the first one are 3 MiB
    ]
    found = replay_trace(moved)
    assert found.moved == (2,)
    assert found.first_difference is None


def test_a_history_under_other_settings_differs() -> None:
    assert replay_trace(HISTORY, EXPANDABLE).first_difference == 4


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (freed(0, 512), "entry 1 frees address .* which the history has not allocated"),
        ([*HISTORY[:2], entry("alloc", 0, 512, stream=7)], "entry 2 is of stream 7"),
        ([*HISTORY[:2], {**HISTORY[1], "pool_id": (0, 1)}], r"entry 2 is of the private pool \(0, 1\)"),
        ([entry("defragment", 0, 512)], "entry 0 has the action 'defragment', which is not known"),
    ],
    ids=["unknown-address", "two-streams", "private-pool", "unknown-action"],
)
def test_a_history_that_is_not_simulated_is_refused(history: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(RematError, match=message):
        replay_trace(history)


RECORDING = """
import json, torch
from torch import nn
torch.cuda.memory._record_memory_history(max_entries=200_000, context=None, stacks="python")
layers = nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(230400, 10)
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for batch in (8, 32, 24, 64):
    optimizer.zero_grad()
    model(torch.randn(batch, 3, 64, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    if batch == 24:
        torch.cuda.empty_cache()
torch.cuda.synchronize()
snapshot = torch.cuda.memory._snapshot()
keep = ("action", "addr", "size", "stream")
print(json.dumps({
    "trace": [{key: entry[key] for key in keep if key in entry} for entry in snapshot["device_traces"][0]],
    "reserved": sum(segment["total_size"] for segment in snapshot["segments"]),
    "peak": torch.cuda.max_memory_reserved(),
}))
"""


@pytest.mark.gpu
@pytest.mark.parametrize("expandable", [False, True], ids=["segments", "expandable"])
def test_four_training_steps_on_a_gpu_are_replayed_to_the_byte(expandable: bool) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device here")
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable}"}
    environment.pop("PYTORCH_ALLOC_CONF", None)
    done = subprocess.run(
        [sys.executable, "-c", RECORDING], capture_output=True, text=True, env=environment, check=True
    )
    recording = json.loads(done.stdout.splitlines()[-1])
    found = replay_trace(recording["trace"], AllocatorSettings(expandable_segments=expandable))
    assert found.first_difference is None, surroundings(recording["trace"], found.first_difference)
    assert found.moved == (), surroundings(recording["trace"], found.moved[0])
    assert int(found.simulated[-1]) == recording["reserved"]
    assert int(found.simulated.max()) == recording["peak"]


def surroundings(trace: list[dict[str, Any]], place: int | None) -> str:
    """The entries of a history around one, for a failure on a machine that is lent."""
    first = max(0, (place or 0) - 20)
    return "; ".join(
        f"{number}: {entry['action']} {entry['addr']:#x} {entry['size']}"
        for number, entry in enumerate(trace[first : first + 30], first)
    )
