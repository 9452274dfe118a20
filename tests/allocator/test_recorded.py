"""Plans and recorded histories on the simulated allocator: as the plan's timeline, and as PyTorch wrote them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remat_explorer.allocator import AllocatorSettings, predict_allocator, replay_trace
from remat_explorer.errors import OutOfMemoryError, RematError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.graph.parts import Operation
from remat_explorer.plan import Plan
from remat_explorer.solvers.solver_interface import checkpoint_all

MIB = 1 << 20
PLAIN, EXPANDABLE = AllocatorSettings(), AllocatorSettings(expandable_segments=True)
CAPTURED = Path(__file__).parents[1] / "data" / "captured"


def plan_of(sizes: list[int], operations: list[Operation], resident: int = 0) -> Plan:
    """Every operation once, in order."""
    values = tuple(Value(f"v{i}", size) for i, size in enumerate(sizes))
    graph = Graph("drawn by hand", values, tuple(operations), resident_bytes=resident)
    return Plan.from_sequence(graph, [(k, k, 1) for k in range(graph.n)])


@pytest.mark.parametrize("settings", [PLAIN, EXPANDABLE], ids=["plain", "expandable"])
@pytest.mark.parametrize("name", ["mobilenet_v1", "unet"])
def test_requested_bytes_are_those_of_the_plan_and_the_others_are_above(name: str, settings: AllocatorSettings) -> None:
    plan = Plan.of(checkpoint_all(Graph.load(str(CAPTURED / f"{name}.json"))))
    found = predict_allocator(plan, settings)
    for kind in ("during", "after"):
        lines = [getattr(timeline, kind) for timeline in (found.requested, found.allocated, found.reserved)]
        assert np.array_equal(lines[0], getattr(plan.timeline, kind))
        assert (np.diff(lines, axis=0) >= 0).all()
    assert plan.peak < found.peak_allocated < found.peak_reserved
    assert 0 < found.fragmentation < 1
    assert str(found).startswith("PyTorch's allocator on a GPU")


def test_workspace_comes_before_outputs_and_goes_after() -> None:
    # 30 MiB of workspace and 30 MiB of output: 60 MiB meanwhile. The workspace's block then serves the second output.
    operations = [operation("f", "forward", [], [0], 1.0, workspace=30 * MIB), operation("g", "forward", [0], [1], 1.0)]
    found = predict_allocator(plan_of([30 * MIB, 30 * MIB], operations), PLAIN)
    assert found.requested.during.tolist() == [60 * MIB, 60 * MIB, 60 * MIB, 30 * MIB]
    assert found.requested.after.tolist() == [30 * MIB, 60 * MIB, 30 * MIB, 0]
    assert found.reserved.after.tolist() == [60 * MIB] * 4


def test_an_output_that_overwrites_takes_over_the_block() -> None:
    operations = [operation("f", "forward", [], [0], 1.0), operation("g", "forward", [0], [1], 1.0, overwrites=0)]
    found = predict_allocator(plan_of([12 * MIB, 12 * MIB], operations), PLAIN)
    assert found.reserved.during.tolist() == [12 * MIB] * 3
    assert found.allocated.after.tolist() == [12 * MIB, 12 * MIB, 0]


def test_resident_bytes_come_first_and_are_one_block_unless_their_sizes_are_given() -> None:
    # 3 MiB at once: a large segment of 20 MiB, of which 17 MiB are left for the output of 5. Three of 1 MiB: two small
    # segments, and 20 MiB for the output.
    plan = plan_of([5 * MIB], [operation("f", "forward", [], [0], 1.0)], resident=3 * MIB)
    together = predict_allocator(plan, PLAIN)
    assert (together.resident_blocks, together.peak_reserved) == (1, 20 * MIB)
    apart = predict_allocator(plan, PLAIN, resident=[MIB, MIB, MIB])
    assert (apart.resident_blocks, apart.peak_reserved) == (3, 24 * MIB)
    assert apart.peak_requested == together.peak_requested == plan.peak


def test_empty_values_take_nothing_and_where_the_driver_has_too_little_the_statement_is_named() -> None:
    operations = [operation("f", "forward", [], [0], 1.0), operation("g", "forward", [0], [1], 1.0)]
    found = predict_allocator(plan_of([0, 0], operations), PLAIN)
    assert (found.peak_reserved, found.fragmentation) == (0, 0.0)
    plan = plan_of([12 * MIB, 12 * MIB], operations)
    with pytest.raises(OutOfMemoryError, match=r"'compute g', statement 1: 12.0 MiB .* cannot be allocated") as caught:
        predict_allocator(plan, AllocatorSettings(capacity=20 * MIB))
    assert caught.value.statement == 1


BASE = 0x7F00_0000_0000


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
    [(HISTORY, AllocatorSettings(), [20, 20, 32, 32, 32, 32, 32, 20]), (GROWING, EXPANDABLE, [20, 40, 40, 20])],
    ids=["segments", "expandable"],
)
def test_a_history_written_by_hand_is_replayed_to_the_byte(
    history: list[dict[str, Any]], settings: AllocatorSettings, reserved: list[int]
) -> None:
    found = replay_trace(history, settings)
    assert found.recorded.tolist() == found.simulated.tolist() == [size * MIB for size in reserved]
    assert (found.first_difference, found.moved) == (None, ())


def test_the_first_entry_that_differs_and_blocks_that_lie_elsewhere_are_named() -> None:
    # 11 MiB take 12 MiB; a history that says 14 is not PyTorch's.
    wrong = [entry("segment_alloc", 0, 14 * MIB), entry("alloc", 0, 11 * MIB)]
    assert replay_trace(wrong).first_difference == 1
    assert replay_trace(HISTORY, EXPANDABLE).first_difference == 4
    moved = [
        entry("segment_alloc", 0, 20 * MIB),
        entry("alloc", 0, 3 * MIB),
        entry("alloc", 4 * MIB, 3 * MIB),  # behind the first one are 3 MiB
    ]
    found = replay_trace(moved)
    assert (found.first_difference, found.moved) == (None, (2,))


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (freed(0, 512), "entry 1 frees address .* which the history has not allocated"),
        ([*HISTORY[:2], entry("alloc", 0, 512, stream=7)], "entry 2 is of stream 7"),
        ([*HISTORY[:2], {**HISTORY[1], "pool_id": (0, 1)}], r"entry 2 is of the private pool \(0, 1\)"),
        ([entry("defragment", 0, 512)], "entry 0 has the action 'defragment', which is not known"),
    ],
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
    assert (found.first_difference, found.moved) == (None, ())
    assert int(found.simulated[-1]) == recording["reserved"]
    assert int(found.simulated.max()) == recording["peak"]
