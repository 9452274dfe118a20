"""The largest image side: each side with a schedule, a proof, or neither."""

from __future__ import annotations

import time

import pytest

from remat_explorer.checker import check
from remat_explorer.errors import QuantityError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import max_image, scale_batch
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.batches.max_image import decide_fit
from tests.solvers.orders_of_computations import least_cost


def of_side(side: int) -> Graph:
    """A chain whose values have the pixels of a square image."""
    return scale_batch(linear(8), side * side)


def test_the_side_found_has_a_schedule_and_those_above_the_bound_a_proof():
    found = max_image(of_side, memory=2000, sides=range(1, 40))
    assert found.schedule is not None
    assert found.upper_bound is not None
    checked = check(of_side(found.side), found.schedule.R, found.schedule.S, 2000)
    assert found.cost_limit == 25 * found.side**2 >= checked.cost
    assert found.side == 20  # 5 values at cost 22 * 400; side 21 leaves room for 4 values, at cost 26 a value
    assert found.answers[found.upper_bound + 1] == "infeasible"
    assert max(side for side, answer in found.answers.items() if answer == "feasible") == found.side


def test_only_the_sides_given_are_looked_at():
    asked = []

    def capture(side: int) -> Graph:
        asked.append(side)
        return of_side(side)

    found = max_image(capture, memory=2000, sides=[2, 3, 5, 7, 11], overhead_limit="10%")
    assert (found.side, found.upper_bound) == (11, None)
    assert "side 11, larger ones may fit" in str(found)
    assert set(asked) <= {2, 3, 5, 7, 11}
    assert len(asked) == len(set(asked))


def test_no_side_that_fits_is_said_so():
    found = max_image(of_side, memory=2, sides=range(1, 9))
    assert (found.side, found.upper_bound, found.schedule) == (0, 0, None)
    assert str(found) == "not even side 1 fits into 2 B"


def test_no_sides_are_refused():
    with pytest.raises(QuantityError, match=r"range\(0, 0\) names no image side"):
        max_image(of_side, memory=100, sides=range(0))


def test_once_cancelled_no_further_side_is_captured():
    found = max_image(of_side, memory=2000, sides=range(1, 40), cancelled=lambda: True)
    assert (found.side, found.upper_bound, found.answers) == (0, None, {})


def test_answers_agree_with_exhaustive_search_on_random_training_graphs(random_graph):
    told = 0
    for seed in range(8):
        graph = random_graph(seed, layers=3)
        for memory in range(graph.resident_bytes + 8, graph.resident_bytes + 30, 4):
            found = decide_fit(graph, memory, 1.2, Limits(3))
            fits = least_cost(graph, memory) <= 1.2 * graph.total_cost + 1e-9
            assert found.answer in ("unknown", "feasible" if fits else "infeasible")
            told += found.answer != "unknown"
    assert told >= 36


def test_a_capture_that_would_end_after_the_limit_is_not_begun(monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr("remat_explorer.solvers.base.time.monotonic", lambda: now[0])
    asked = []

    def capture(side: int) -> Graph:
        asked.append(side)
        now[0] += 40.0 if asked == [side] else 30.0
        return of_side(side)

    found = max_image(capture, memory=2000, sides=range(1, 40), time_limit=120)
    assert asked == [1, 2, 4]  # 20 seconds are left, and none took less than 30
    assert found.side == 4
