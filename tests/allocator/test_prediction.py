"""A plan on the simulated allocator: aligned with the plan's timeline, and remembered with it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from remat_explorer.allocator import AllocatorSettings, predict_allocator, reserved_of
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.graph.parts import Operation
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solvers.base import checkpoint_all

MIB = 1 << 20
PLAIN, EXPANDABLE = AllocatorSettings(), AllocatorSettings(expandable_segments=True)
CAPTURED = Path(__file__).parents[1] / "data" / "captured"


def plan_of(values: list[int], operations: list[Operation], resident: int = 0) -> Plan:
    """Every operation once, in order."""
    graph = Graph(
        "drawn by hand",
        tuple(Value(f"v{i}", size) for i, size in enumerate(values)),
        tuple(operations),
        resident_bytes=resident,
    )
    return Plan.from_sequence(graph, [(k, k, 1) for k in range(graph.n)])


@pytest.mark.parametrize("settings", [PLAIN, EXPANDABLE], ids=["plain", "expandable"])
@pytest.mark.parametrize("name", ["mobilenet_v1", "resnet50", "unet"])
def test_requested_bytes_are_those_of_the_plan_and_the_others_are_above(name: str, settings: AllocatorSettings) -> None:
    plan = Plan.of(checkpoint_all(Graph.load(str(CAPTURED / f"{name}.json"))))
    found = predict_allocator(plan, settings)
    for kind in ("during", "after"):
        requested, allocated, reserved = (
            getattr(timeline, kind) for timeline in (found.requested, found.allocated, found.reserved)
        )
        assert np.array_equal(requested, getattr(plan.timeline, kind))
        assert (requested <= allocated).all()
        assert (allocated <= reserved).all()
    assert plan.peak < found.peak_allocated < found.peak_reserved
    assert 0 < found.fragmentation < 1


def test_workspace_comes_before_outputs_and_goes_after() -> None:
    # 30 MiB of workspace and 30 MiB of output: 60 MiB meanwhile. The workspace's block then serves the second output.
    operations = [
        operation("f", "forward", [], [0], 1.0, workspace=30 * MIB),
        operation("g", "forward", [0], [1], 1.0),
    ]
    found = predict_allocator(plan_of([30 * MIB, 30 * MIB], operations), PLAIN)
    assert found.requested.during.tolist() == [60 * MIB, 60 * MIB, 60 * MIB, 30 * MIB]
    assert found.requested.after.tolist() == [30 * MIB, 60 * MIB, 30 * MIB, 0]
    assert found.reserved.after.tolist() == [60 * MIB] * 4


def test_an_output_that_overwrites_takes_over_the_block() -> None:
    operations = [
        operation("f", "forward", [], [0], 1.0),
        operation("g", "forward", [0], [1], 1.0, overwrites=0),
    ]
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


def test_empty_values_take_nothing() -> None:
    operations = [operation("f", "forward", [], [0], 1.0), operation("g", "forward", [0], [1], 1.0)]
    found = predict_allocator(plan_of([0, 0], operations), PLAIN)
    assert (found.peak_reserved, found.fragmentation) == (0, 0.0)


def test_where_the_driver_has_too_little_the_statement_is_named() -> None:
    operations = [operation("f", "forward", [], [0], 1.0), operation("g", "forward", [0], [1], 1.0)]
    plan = plan_of([12 * MIB, 12 * MIB], operations)
    with pytest.raises(OutOfMemoryError, match=r"'compute g', statement 1: 12.0 MiB .* cannot be allocated") as caught:
        predict_allocator(plan, AllocatorSettings(capacity=20 * MIB))
    assert caught.value.statement == 1


def test_parts_that_are_no_neighbours_raise_what_is_reserved_and_not_what_is_allocated() -> None:
    # Four outputs of 5 MiB fill a segment. The first and the third go; 10 MiB then need a segment, and 20 MiB are
    # allocated of 30.
    operations = [operation(f"f{k}", "forward", [], [k], 1.0) for k in range(4)]
    operations += [operation("g", "forward", [0, 2], [4], 1.0), operation("h", "forward", [1, 3], [5], 1.0)]
    operations += [operation("i", "forward", [4, 5], [6], 1.0)]
    plan = plan_of([5 * MIB] * 4 + [512, 10 * MIB, 512], operations)
    found = predict_allocator(plan, PLAIN)
    h = next(i for i, s in enumerate(plan.statements) if plan.text(s) == "compute h")
    assert int(found.allocated.during[h]) == 20 * MIB + 512
    assert int(found.reserved.during[h]) == 32 * MIB
    assert str(found).startswith("PyTorch's allocator on a GPU: 32.0 MiB reserved")


def test_a_prediction_is_remembered_with_its_plan_and_not_longer() -> None:
    plan = Plan.of(checkpoint_all(linear(3)))
    found = predict_allocator(plan)
    assert predict_allocator(plan) is found
    fresh = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    gone = weakref.ref(predict_allocator(fresh))
    del fresh
    gc.collect()
    assert gone() is None


def test_the_reserved_bytes_of_a_schedule_are_those_of_its_plan() -> None:
    schedule = checkpoint_all(linear(3))
    assert reserved_of(schedule) == predict_allocator(Plan.of(schedule)).peak_reserved == 2 * MIB
