"""Two schedules compared: every cell belongs to neither, both, or one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remat_explorer.errors import ScheduleError
from remat_explorer.figures import compare, difference
from remat_explorer.figures.schedule_heatmap import BOTH, FIRST, NEITHER, SECOND
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import solve


@pytest.fixture(scope="module")
def loose() -> Any:
    return solve(linear(8), budget=8)


def test_every_cell_is_told_apart(tight: Any, loose: Any) -> None:
    cells = difference(tight.schedule, loose.schedule)
    for found, first, second in (
        (cells.R, tight.schedule.R > 0, loose.schedule.R > 0),
        (cells.S, tight.schedule.S, loose.schedule.S),
    ):
        assert found.dtype == np.uint8
        assert ((found == BOTH) == (first & second)).all()
        assert ((found == FIRST) == (first & ~second)).all()
        assert ((found == SECOND) == (second & ~first)).all()
        assert ((found == NEITHER) == ~(first | second)).all()
    assert (cells.R == FIRST).any()
    assert (cells.S == SECOND).any()


def test_a_schedule_does_not_differ_from_itself(tight: Any) -> None:
    cells = difference(tight.schedule, tight.schedule)
    assert set(np.unique(cells.R)) == set(np.unique(cells.S)) == {NEITHER, BOTH}


def test_turning_the_comparison_round_turns_its_cells_round(tight: Any, loose: Any) -> None:
    one, two = difference(tight.schedule, loose.schedule), difference(loose.schedule, tight.schedule)
    turned = np.array([NEITHER, BOTH, SECOND, FIRST])
    assert (turned[one.R] == two.R).all()
    assert (turned[one.S] == two.S).all()


def test_a_schedule_with_fewer_stages_has_nothing_in_the_others(tight: Any) -> None:
    whole = tight.schedule
    part = Schedule(whole.graph, whole.R[:10], whole.S[:10])
    for cells in (difference(part, whole), difference(whole, part)):
        assert cells.R.shape == whole.R.shape
        assert (cells.R[:10] != FIRST).all()
        assert (cells.R[:10] != SECOND).all()
    assert ((difference(part, whole).R[10:] == SECOND) == (whole.R[10:] > 0)).all()


def test_schedules_of_different_graphs_are_refused(tight: Any) -> None:
    with pytest.raises(ScheduleError, match=r"'linear8' \(17 operations\) and 'linear2' \(5 operations\) cannot be"):
        difference(tight.schedule, Schedule(linear(2), np.eye(5), np.tril(np.ones((5, 5)), -1)))


def test_the_figure_shows_cells_both_lines_and_the_numbers(tight: Any, loose: Any) -> None:
    figure: Any = compare(tight, loose)
    traces = {trace.name: trace for trace in figure.data}
    cells = difference(tight.schedule, loose.schedule)
    assert (np.asarray(traces["R"].z) == cells.R).all()
    assert (np.asarray(traces["S"].z) == cells.S).all()
    assert traces["R"].text[5][5] == "both"
    assert (max(traces["memory of A"].y), max(traces["memory of B"].y)) == (4, 8)
    names, first, second = traces["in numbers"].cells.values
    assert dict(zip(names, first, strict=True))["recomputations"] == "9"
    assert dict(zip(names, second, strict=True))["predicted peak"] == "8 B"


def test_a_solution_without_a_schedule_is_refused(tight: Any) -> None:
    with pytest.raises(ScheduleError, match="'optimal' has no schedule within 2 B; compare solutions that have"):
        compare(tight, solve(linear(8), budget=2))
