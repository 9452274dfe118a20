"""The check refuses every arena that breaks a rule, and none that does not."""

from __future__ import annotations

import numpy as np
import pytest

from remat_explorer.errors import ScheduleError
from remat_explorer.offsets import Arena, Rectangles
from remat_explorer.offsets.check import check_offsets

# 0 lies below 1 and 2, which follow each other; 3 comes when 0 has gone.
FOUR = Rectangles.from_rows([(0, 4, 2), (0, 2, 4), (2, 4, 4), (4, 6, 6)])
GOOD = [0, 2, 2, 0]


def test_rectangles_that_touch_in_time_or_in_offset_do_not_overlap() -> None:
    check_offsets(FOUR, np.array(GOOD), 2, 6)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 0, 2, 0], r"rectangles 0 and 1 overlap: \[0, 2\) and \[0, 4\) at time 0"),
        ([0, 2, 1, 0], r"rectangles 0 and 2 overlap: \[0, 2\) and \[1, 5\) at time 2"),
        ([5, 2, 2, 0], r"rectangle 0 lies at \[5, 7\), outside of an arena of 6 bytes"),
        ([0, 2, -1, 0], r"rectangle 2 lies at \[-1, 3\), outside"),
        ([0, 2, 2], r"3 offsets for 4 rectangles"),
    ],
)
def test_what_overlaps_or_lies_outside_is_refused(offsets: list[int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        check_offsets(FOUR, np.array(offsets), 1, 6)


def test_what_is_not_aligned_is_refused() -> None:
    with pytest.raises(ScheduleError, match="rectangle 1 lies at 2, which is no multiple of 4"):
        check_offsets(FOUR, np.array(GOOD), 4, 8)


def test_a_rectangle_within_another_is_seen() -> None:
    nested = Rectangles.from_rows([(0, 3, 9), (1, 2, 1)])
    with pytest.raises(ScheduleError, match="rectangles 0 and 1 overlap"):
        check_offsets(nested, np.array([0, 4]), 1, 9)


def test_an_arena_that_breaks_a_rule_cannot_be_made() -> None:
    assert Arena(FOUR, np.array(GOOD), 1, 6, 6).optimal
    with pytest.raises(ScheduleError, match="overlap"):
        Arena(FOUR, np.array([0, 1, 2, 0]), 1, 6, 6)


def test_every_overlap_of_two_random_rectangles_is_refused_and_nothing_else() -> None:
    draw = np.random.default_rng(0)
    refused = 0
    for _ in range(500):
        begin, low = draw.integers(0, 6, size=(2, 2))
        length, size = draw.integers(1, 5, size=(2, 2))
        rows = [(int(begin[i]), int(begin[i] + length[i]), int(size[i])) for i in range(2)]
        in_time = max(begin) < min(begin + length)
        in_offset = max(low) < min(low + size)
        rectangles = Rectangles.from_rows(rows)
        if in_time and in_offset:
            refused += 1
            with pytest.raises(ScheduleError, match="rectangles 0 and 1 overlap"):
                check_offsets(rectangles, low, 1, 20)
        else:
            check_offsets(rectangles, low, 1, 20)
    assert 50 < refused < 450
