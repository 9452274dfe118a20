"""How a solve went is kept, moment by moment, and not without end."""

from __future__ import annotations

from pathlib import Path

import remat_explorer as rx
from remat_explorer.explorer.state.state import HistoryPoint
from remat_explorer.explorer.work.solving import MAX_HISTORY, extend_history
from remat_explorer.solvers import Progress
from tests.explorer.driven import driver_of, settled


def test_a_solve_leaves_its_moments_and_the_next_one_begins_anew(data: Path) -> None:
    driver = driver_of(rx.Graph.load(str(data / "captured" / "vgg16.json")), strategy="checkmate-approx-search")
    driver.solve()
    settled(driver)
    history = driver.state.history
    assert history
    assert [m.seconds for m in history] == sorted(m.seconds for m in history)
    costs = [m.cost for m in history if m.cost is not None]
    assert costs == sorted(costs, reverse=True)
    driver.state.strategy = "checkpoint-last"
    driver.solve()
    settled(driver)
    assert driver.state.history != history
    assert len(driver.state.history) <= 2


def test_long_histories_are_thinned_and_keep_their_ends() -> None:
    history: tuple[HistoryPoint, ...] = ()
    for second in range(5 * MAX_HISTORY):
        history = extend_history(history, Progress(float(second), "searching", lower_bound=float(second)))
    assert len(history) <= MAX_HISTORY + 1
    seconds = [moment.seconds for moment in history]
    assert (min(seconds), max(seconds)) == (0, 5 * MAX_HISTORY - 1)
