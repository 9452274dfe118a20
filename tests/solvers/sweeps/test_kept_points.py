"""Sweeps and the cache of solutions: what is taken, what is kept, and of whom."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remat_explorer.cache_folder import clear
from remat_explorer.instances import linear
from remat_explorer.solvers import Sweep, solve, sweep
from remat_explorer.solvers.base import Answer, checkpoint_all
from remat_explorer.solvers.cache import Question, load_solution, store_solution
from remat_explorer.solvers.solution import Status
from remat_explorer.solvers.solve import judge
from remat_explorer.solvers.sweeps.sweep_points import KeptPoints


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for each test."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Nobody(ThreadPoolExecutor):
    """An executor that must not be asked."""

    def submit(self, fn, /, *args, **kwargs):
        raise AssertionError("there was nothing to do")


def swept(budgets, executor=None, cache=True):
    with executor or ThreadPoolExecutor(1) as threads:
        run = Sweep(linear(8), budgets, executor=threads, cache=cache, time_limit=60.0)
        with run:
            list(run)
    return run


def kept(budget: int, time_limit: float = 60.0, strategy: str = "optimal"):
    return load_solution(Question(linear(8), budget, strategy, "highs", time_limit))


def proven(budget: int) -> bool:
    found = kept(budget)
    return found is not None and found.status == Status.OPTIMAL


def test_a_sweep_that_was_made_before_needs_no_worker():
    first = swept([2, 4, 6, 10])
    again = swept([2, 4, 6, 10], Nobody(1))
    assert (first.from_cache, again.from_cache) == (0, 4)
    assert [s.cost for s in again.frontier().solutions] == [s.cost for s in first.frontier().solutions]
    assert [str(s.status) for s in again.frontier().solutions] == ["infeasible", "optimal", "optimal", "optimal"]


def test_solve_and_sweep_know_of_each_other():
    solve(linear(8), 4, cache=True)
    assert swept([4, 6]).from_cache == 1
    heard = []
    solve(linear(8), 6, cache=True, on_progress=lambda progress: heard.append(progress.doing))
    assert heard == ["found in the cache"]


def test_without_cache_nothing_is_taken_and_nothing_kept(folder):
    assert swept([4, 6], cache=False).from_cache == 0
    assert not folder.exists()


def test_a_kept_point_that_had_less_time_is_searched_again_and_a_better_one_is_kept():
    poor = judge(linear(8), 10, "optimal", Answer(checkpoint_all(linear(8)), 15.0), 1.0)
    assert poor.status == Status.FEASIBLE
    for seconds, taken in ((1.0, 0), (60.0, 1)):
        assert not store_solution(Question(linear(8), 10, "optimal", "highs", seconds), poor)
        assert swept([10]).from_cache == taken
        if not taken:
            assert proven(10)
            clear("solution")


def test_a_point_is_kept_with_what_its_own_strategy_proved():
    """Checkpoint-all proves that nothing is cheaper; problem (9) with a schedule alone does not."""
    store = KeptPoints(linear(8), "highs", 5.0, 1)
    everything = checkpoint_all(linear(8))
    alone = judge(linear(8), 10, "checkmate-ilp", Answer(everything), 1.0)
    proof = judge(linear(8), 10, "optimal", Answer(everything, 17.0), 1.0)
    assert store.store([alone, proof], [], ended=True) == []
    assert proven(10)
    found = kept(10, 5.0, "checkmate-ilp")
    assert found is not None
    assert (found.status, found.lower_bound) == (Status.FEASIBLE, None)


def test_lost_points_are_not_kept_and_others_with_the_time_that_they_had():
    store = KeptPoints(linear(8), "highs", 5.0, 1)
    poor = judge(linear(8), 10, "optimal", Answer(checkpoint_all(linear(8)), 15.0), 1.0)
    store.store([poor], [("optimal", 10)], ended=False)
    assert kept(10, 0.5) is None
    store.store([poor], [], ended=False)
    assert kept(10, 0.5) is not None
    assert kept(10, 2.0) is None


def test_a_cache_that_cannot_be_written_is_a_warning_and_no_more(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "file"))
    with ThreadPoolExecutor(1) as threads, pytest.warns(RuntimeWarning, match="REMAT_EXPLORER_CACHE"):
        found = sweep(linear(8), [4], executor=threads, time_limit=60.0, cache=True)
    assert found.solutions[0].cost == 26
