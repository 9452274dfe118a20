"""Offsets of rectangles and of plans: least where that is said, aligned, and in time."""

import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from remat_explorer.allocator import AllocatorSettings, predict_allocator
from remat_explorer.errors import RematError
from remat_explorer.explanations import lives_of
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.offsets import Rectangles, place, place_at_once, place_rectangles, predict_pool
from remat_explorer.plan import Plan
from remat_explorer.solvers import solve
from remat_explorer.solvers.solver_interface import checkpoint_all
from tests.thorough import thorough_but

CAPTURED = Path(__file__).parents[1] / "data" / "captured"
# At no time are there more than 16, and 17 are needed.
ABOVE_THE_MOST = [
    (1, 4, 4), (3, 5, 2), (2, 5, 3), (5, 9, 5), (0, 3, 5), (0, 2, 4), (4, 7, 5), (4, 7, 5), (2, 4, 3), (1, 4, 1),
]  # fmt: skip


Row = tuple[int, int, int]  # begin, end, bytes


def least_height(rows: Sequence[Row]) -> int:
    """The least height at which rectangles with small whole sizes fit."""
    rows = sorted(rows, key=lambda row: row[2] * (row[1] - row[0]), reverse=True)
    last = max(end for _, end, _ in rows)
    height = max(sum(size for begin, end, size in rows if begin <= time < end) for time in range(last))
    while not _fit(rows, 0, [0] * last, height):
        height += 1
    return height


def _fit(rows: Sequence[Row], i: int, taken: list[int], height: int) -> bool:
    """Whether rectangles from the i-th on fit beside what is taken at each time, a bit for each byte."""
    if i == len(rows):
        return True
    begin, end, size = rows[i]
    for offset in range(height - size + 1):
        bits = ((1 << size) - 1) << offset
        if all(not taken[time] & bits for time in range(begin, end)):
            inside = [bits * (begin <= time < end) for time in range(len(taken))]
            if _fit(rows, i + 1, [old | new for old, new in zip(taken, inside, strict=True)], height):
                return True
    return False


def drawn(seed: int, count: int, times: int, largest: int) -> list[Row]:
    draw = np.random.default_rng(seed)
    begin = draw.integers(0, times, size=count)
    length, size = draw.integers(1, times // 2 + 2, size=count), draw.integers(1, largest + 1, size=count)
    return [(int(b), int(b + n), int(s)) for b, n, s in zip(begin, length, size, strict=True)]


def test_the_order_of_time_wastes_what_the_search_does_not() -> None:
    # In the order of time the first 4 lies at 0, then 2 above it; when the 4 goes, 6 does not fit below: 12. With the 2
    # at the ground, the 4 and then the 6 lie above it: 8, the most bytes at a time.
    rectangles = Rectangles.from_rows([(0, 2, 4), (1, 4, 2), (2, 4, 6)])
    assert place_rectangles(rectangles, time_limit=0.0).size == 12
    arena = place_rectangles(rectangles)
    assert (arena.size, arena.bound, arena.gap) == (8, 8, 0.0)


def test_what_is_proven_may_be_more_than_the_most_bytes_at_a_time() -> None:
    rectangles = Rectangles.from_rows(ABOVE_THE_MOST)
    arena = place_rectangles(rectangles)
    assert (arena.size, arena.bound, arena.peak) == (17, 17, 16)
    assert least_height(ABOVE_THE_MOST) == 17
    assert arena.optimal
    assert arena.excess == pytest.approx(1 / 16)


def test_neither_order_nor_direction_of_time_nor_the_unit_changes_what_is_least() -> None:
    shuffled = [ABOVE_THE_MOST[i] for i in np.random.default_rng(0).permutation(len(ABOVE_THE_MOST))]
    mirrored = [(20 - end, 20 - begin, size) for begin, end, size in shuffled]
    tripled = [(2 * begin + 1, 2 * end + 1, 3 * size) for begin, end, size in shuffled]
    for rows, least in ((shuffled, 17), (mirrored, 17), (tripled, 51)):
        arena = place_rectangles(Rectangles.from_rows(rows), seed=1)
        assert (arena.size, arena.bound) == (least, least)


def test_neighbours_of_that_instance_are_solved_as_by_trying_every_offset() -> None:
    above = 0
    for i, (begin, end, size) in list(enumerate(ABOVE_THE_MOST))[::2]:
        for changed in ((begin, end, size + 1), (begin, end + 1, size), (begin + 1, end, size)):
            rows = [*ABOVE_THE_MOST[:i], changed, *ABOVE_THE_MOST[i + 1 :]]
            arena = place_rectangles(Rectangles.from_rows(rows), time_limit=600)
            assert arena.optimal, rows
            assert arena.size == least_height(rows), rows
            above += arena.size > arena.peak
    assert above > 0  # else no proof would have been needed


def test_small_instances_are_solved_as_by_trying_every_offset() -> None:
    for seed in range(150):
        rows = drawn(seed, count=4 + seed % 5, times=4 + seed % 4, largest=4)
        arena = place_rectangles(Rectangles.from_rows(rows), time_limit=600)
        assert arena.optimal
        assert arena.size == arena.bound == least_height(rows)


@pytest.mark.parametrize(("count", "alignment"), [(1, 512), (40, 3), (400, 1), (4000, 512)])
def test_offsets_are_aligned_and_apart_and_the_bound_is_below(count: int, alignment: int) -> None:
    rectangles = Rectangles.from_rows(drawn(count, count, times=count + 2, largest=5000))
    arena = place_rectangles(rectangles, alignment, time_limit=0.2)  # made, so checked
    assert not (arena.offsets % alignment).any()
    assert arena.size % alignment == 0
    rounded = -(-rectangles.size // alignment) * alignment
    assert rectangles.peak <= rectangles.peak_of(rounded) <= arena.bound <= arena.size <= rounded.sum()
    assert arena.size >= int((arena.offsets + rectangles.size).max())


def test_without_time_every_rectangle_is_still_placed() -> None:
    rectangles = Rectangles.from_rows(drawn(5, 3000, times=500, largest=900))
    hurried = place_rectangles(rectangles, time_limit=0.0)
    assert hurried.size >= hurried.bound == rectangles.peak
    assert hurried.size < rectangles.size.sum() / 2
    assert place_rectangles(rectangles, time_limit=60.0, over=lambda: True).size == hurried.size


def test_the_search_ends_where_somebody_says_so_interrupts_or_has_enough() -> None:
    asked = []

    def over() -> bool:
        asked.append(True)
        return len(asked) > 20

    rectangles = Rectangles.from_rows(drawn(7, 300, times=60, largest=90000))
    arena = place_rectangles(rectangles, time_limit=600.0, over=over)
    assert len(asked) < 200
    assert arena.size >= arena.bound

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place_rectangles(Rectangles.from_rows(ABOVE_THE_MOST), over=interrupt)
    first = place_rectangles(rectangles, time_limit=0.0)
    assert first.bound < first.size - 1
    found = place_rectangles(rectangles, time_limit=600.0, enough=first.size - 1)
    assert found.bound <= found.size < first.size


@pytest.mark.parametrize(("alignment", "time_limit"), [(0, 1.0), (-512, 1.0), (1.5, 1.0), (512, -1.0)])
def test_an_alignment_or_a_time_that_cannot_be_is_refused(alignment: int, time_limit: float) -> None:
    with pytest.raises(RematError, match=f"{alignment if time_limit > 0 else time_limit}"):
        place_rectangles(Rectangles.from_rows(ABOVE_THE_MOST), alignment, time_limit)


@pytest.mark.parametrize(
    "name", thorough_but(["mobilenet_v1", "resnet50", "unet", "vgg16", "densenet161"], "mobilenet_v1", "unet")
)
def test_arenas_of_networks_are_at_most_a_hundredth_above_the_peak(name: str) -> None:
    graph = Graph.load(str(CAPTURED / f"{name}.json"))
    plan = Plan.of(checkpoint_all(graph))
    arena = place(plan, time_limit=30.0)
    assert plan.peak <= arena.bound <= arena.size <= 1.01 * plan.peak
    resident = int(np.flatnonzero([not values for values in arena.rectangles.values])[0])
    assert arena.offsets[resident] == 0  # what lasts for the whole plan lies at the bottom


@pytest.mark.parametrize("settings", [AllocatorSettings(), AllocatorSettings(expandable_segments=True)])
@pytest.mark.parametrize("budget", [4, 6, 10])
def test_what_the_allocator_reserves_is_never_below_the_bound(budget: int, settings: AllocatorSettings) -> None:
    plan = solve(linear(8), budget).plan
    assert plan is not None
    assert place(plan).bound <= predict_allocator(plan, settings).peak_reserved


@pytest.mark.parametrize("make", [predict_pool, predict_allocator, lives_of])
def test_what_is_made_of_a_plan_is_remembered_with_it_and_not_longer(make: Callable[[Plan], object]) -> None:
    plan = Plan.of(checkpoint_all(linear(3)))
    assert make(plan) is make(plan)
    fresh = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    gone = weakref.ref(fresh), weakref.ref(make(fresh))
    del fresh
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def lowest_free(rectangles: Rectangles, offsets: np.ndarray, r: int, before: list[int]) -> int:
    """The lowest offset at which ``r`` meets none of those before it that live when it begins."""
    living = [o for o in before if rectangles.end[o] > rectangles.begin[r]]
    candidates = [0, *(int(offsets[o] + rectangles.size[o]) for o in living)]
    fits = [
        low
        for low in candidates
        if all(low + rectangles.size[r] <= offsets[o] or offsets[o] + rectangles.size[o] <= low for o in living)
    ]
    return min(fits)


def test_each_lies_at_the_lowest_offset_that_is_free_when_it_begins_rounded_up_to_the_alignment() -> None:
    arena = place_at_once(Rectangles.from_rows([(0, 2, 5), (1, 3, 513), (2, 4, 1)]), alignment=512)
    assert (arena.offsets.tolist(), arena.size, arena.bound) == ([0, 512, 0], 1536, 1536)
    rectangles = Rectangles.from_rows(drawn(0, 60, times=40, largest=8))
    offsets = place_at_once(rectangles).offsets
    order = sorted(range(len(rectangles)), key=rectangles.begin.tolist().__getitem__)
    for place_in_order, r in enumerate(order):
        assert offsets[r] == lowest_free(rectangles, offsets, r, order[:place_in_order])
