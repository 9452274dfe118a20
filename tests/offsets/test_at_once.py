"""First fit in plain Python: aligned, without overlap, and the same as the compiled one in the order of time."""

from __future__ import annotations

import numpy as np
import pytest

from remat_explorer.instances import linear
from remat_explorer.offsets import Rectangles, place, place_at_once
from remat_explorer.plan import Plan
from remat_explorer.solvers.base import checkpoint_all


def drawn(seed: int) -> Rectangles:
    """Random rectangles, 60 of them."""
    draw = np.random.default_rng(seed)
    begin, length, size = draw.integers(0, 40, 60), draw.integers(1, 20, 60), draw.integers(1, 9, 60)
    return Rectangles.from_rows([(int(b), int(b + n), int(s)) for b, n, s in zip(begin, length, size, strict=True)])


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


@pytest.mark.parametrize("seed", range(5))
def test_each_lies_at_the_lowest_offset_that_is_free_when_it_begins(seed: int) -> None:
    rectangles = drawn(seed)
    offsets = place_at_once(rectangles).offsets
    order = sorted(range(len(rectangles)), key=rectangles.begin.tolist().__getitem__)
    for place_in_order, r in enumerate(order):
        assert offsets[r] == lowest_free(rectangles, offsets, r, order[:place_in_order])


def test_sizes_are_rounded_up_to_the_alignment() -> None:
    arena = place_at_once(Rectangles.from_rows([(0, 2, 5), (1, 3, 513), (2, 4, 1)]), alignment=512)
    assert arena.offsets.tolist() == [0, 512, 0]
    assert (arena.size, arena.bound) == (1536, 1536)


def test_a_search_never_ends_with_a_larger_arena() -> None:
    plan = Plan.of(checkpoint_all(linear(20)))
    assert place(plan, alignment=1).size <= place_at_once(Rectangles.of(plan)).size


def test_nothing_takes_no_memory() -> None:
    assert place_at_once(Rectangles.from_rows([])).size == 0
