"""The rectangles of a plan, derived by hand and beside its timeline; and the check of their offsets."""

from pathlib import Path

import numpy as np
import pytest

from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.graph.parts import Operation
from remat_explorer.instances import linear
from remat_explorer.offsets import Arena, Rectangles
from remat_explorer.offsets.check import check_offsets
from remat_explorer.plan import Compute, Plan
from remat_explorer.solvers import solve
from remat_explorer.solvers.solver_interface import checkpoint_all

CAPTURED = Path(__file__).parents[1] / "data" / "captured"


def graph_of(sizes: list[int], operations: list[Operation], resident: int = 0, persistent: int | None = None) -> Graph:
    values = tuple(Value(f"v{i}", size, i == persistent) for i, size in enumerate(sizes))
    return Graph("drawn by hand", values, tuple(operations), resident_bytes=resident)


def rows_of(plan: Plan) -> list[tuple[int, int, int, tuple[int, ...]]]:
    found = Rectangles.of(plan)
    return list(zip(found.begin.tolist(), found.end.tolist(), found.size.tolist(), found.values, strict=True))


def test_resident_bytes_last_for_the_whole_plan_and_workspace_for_one_statement() -> None:
    steps = [operation("f", "forward", [], [0], 1.0, workspace=7), operation("g", "forward", [0], [1], 1.0)]
    plan = Plan.from_sequence(graph_of([3, 5], steps, resident=11), [(0, 0, 1), (1, 1, 1)])
    # f, g, free v0, free v1
    assert rows_of(plan) == [(0, 4, 11, ()), (0, 1, 7, ()), (0, 2, 3, (0,)), (1, 3, 5, (1,))]


def test_an_output_that_overwrites_takes_over_the_rectangle() -> None:
    steps = [operation("f", "forward", [], [0], 1.0), operation("g", "forward", [0], [1], 1.0, overwrites=0)]
    plan = Plan.from_sequence(graph_of([4, 4], steps), [(0, 0, 1), (1, 1, 1)])
    assert rows_of(plan) == [(0, 2, 4, (0, 1))]  # f, g in place of v0, free v1
    assert Rectangles.of(plan).since == ((0, 1),)


def test_a_value_that_is_computed_again_is_another_rectangle() -> None:
    steps = [operation("f", "forward", [], [0], 1.0), operation("g", "forward", [0], [1], 1.0)]
    steps += [operation("h", "backward", [0, 1], [2], 1.0)]
    plan = Plan.from_sequence(graph_of([4, 2, 1], steps), [(0, 0, 1), (1, 1, 1), (2, 0, 1), (2, 2, 1)])
    # f, g, free v0, f again, h, free v0, free v1, free v2
    assert rows_of(plan) == [(0, 2, 4, (0,)), (1, 6, 2, (1,)), (3, 5, 4, (0,)), (4, 7, 1, (2,))]


def test_a_persistent_value_stays_and_what_is_dropped_lasts_for_its_statement() -> None:
    steps = [operation("f", "forward", [], [0, 1], 1.0), operation("g", "forward", [1], [2], 1.0)]
    plan = Plan.from_sequence(graph_of([4, 2, 1], steps, persistent=0), [(0, 0, 1), (1, 0, 1), (1, 1, 1)])
    assert isinstance(plan.statements[2], Compute)
    assert plan.statements[2].drops == (0,)
    # f, free v1, f again, g, free v1, free v2: the first v0 stays
    assert rows_of(plan) == [(0, 6, 4, (0,)), (0, 1, 2, (1,)), (2, 3, 4, (0,)), (2, 4, 2, (1,)), (3, 5, 1, (2,))]


@pytest.mark.parametrize("name", ["mobilenet_v1", "unet"])
def test_what_lives_at_each_statement_is_what_the_timeline_has(name: str) -> None:
    graph = Graph.load(str(CAPTURED / f"{name}.json"))
    for plan in (Plan.of(checkpoint_all(graph)), solve(graph, "90%", strategy="ap-sqrt-n").plan):
        assert plan is not None
        found, statements = Rectangles.of(plan), np.arange(len(plan.statements))
        alive = (found.begin[:, None] <= statements) & (statements < found.end[:, None])
        computed = [i for i, statement in enumerate(plan.statements) if isinstance(statement, Compute)]
        assert np.array_equal((found.size @ alive)[computed], plan.timeline.during[computed])
        assert found.peak == plan.peak


def test_a_plan_that_computes_what_is_in_memory_and_a_rectangle_that_is_none_are_refused() -> None:
    with pytest.raises(ScheduleError, match="statement 1 computes 'v0', which is still in memory"):
        Rectangles.of(Plan(linear(1), (Compute(0, 0, 1, True), Compute(1, 0, 1, False))))
    for row in ((4, 2, 1), (0, 1, -1)):
        with pytest.raises(ScheduleError, match=f"a rectangle from {row[0]} to {row[1]} of {row[2]} bytes is none"):
            Rectangles.from_rows([(0, 1, 1), row])


# 0 lies below 1 and 2, which follow each other; 3 comes when 0 has gone.
FOUR = Rectangles.from_rows([(0, 4, 2), (0, 2, 4), (2, 4, 4), (4, 6, 6)])
GOOD = [0, 2, 2, 0]


@pytest.mark.parametrize(
    ("offsets", "alignment", "message"),
    [
        ([0, 0, 2, 0], 1, r"rectangles 0 and 1 overlap: \[0, 2\) and \[0, 4\) at time 0"),
        ([0, 2, 1, 0], 1, r"rectangles 0 and 2 overlap: \[0, 2\) and \[1, 5\) at time 2"),
        ([5, 2, 2, 0], 1, r"rectangle 0 lies at \[5, 7\), outside of an arena of 6 bytes"),
        ([0, 2, -1, 0], 1, r"rectangle 2 lies at \[-1, 3\), outside"),
        ([0, 2, 2], 1, r"3 offsets for 4 rectangles"),
        (GOOD, 4, "rectangle 1 lies at 2, which is no multiple of 4"),
    ],
)
def test_what_overlaps_lies_outside_or_is_not_aligned_is_refused(
    offsets: list[int], alignment: int, message: str
) -> None:
    assert Arena(FOUR, np.array(GOOD), 2, 6, 6).optimal  # what touches in time or in offset does not overlap
    with pytest.raises(ScheduleError, match=message):
        Arena(FOUR, np.array(offsets), alignment, 6, 6)


def test_every_overlap_of_two_random_rectangles_is_refused_and_nothing_else() -> None:
    draw = np.random.default_rng(0)
    refused = 0
    for _ in range(500):
        begin, low = draw.integers(0, 6, size=(2, 2))
        length, size = draw.integers(1, 5, size=(2, 2))
        rows = [(int(begin[i]), int(begin[i] + length[i]), int(size[i])) for i in range(2)]
        rectangles = Rectangles.from_rows(rows)
        if max(begin) < min(begin + length) and max(low) < min(low + size):
            refused += 1
            with pytest.raises(ScheduleError, match="rectangles 0 and 1 overlap"):
                check_offsets(rectangles, low, 1, 20)
        else:
            check_offsets(rectangles, low, 1, 20)
    assert 50 < refused < 450
