"""One budget's part of a sweep: what it takes, when it is done, and that its bounds hold."""

from __future__ import annotations

import pytest

from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solvers import checkpoint_all, solve
from remat_explorer.solvers.anytime.sweep_search import BudgetSearch
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.few_moments import few_moments_bound
from remat_explorer.solvers.condensed import Condensed, largest_operation


def search_in(graph, budget, seconds=60.0):
    condensed, limits = Condensed.of(graph), Limits(seconds)
    return BudgetSearch(condensed, budget, few_moments_bound(condensed, budget, limits), limits, 1.0)


def test_steps_never_lose_what_was_known_and_end_at_the_optimum_of_a_small_graph(reference):
    for entry in [entry for entry in reference("optimal_linear.json") if entry["graph"] == "linear8"]:
        search = search_in(linear(8), entry["budget"])
        while search.gap:
            before = search.best, search.bound
            search.advance()
            assert search.best is not None
            assert search.bound >= before[1]
            assert before[0] is None or search.best.cost <= before[0].cost
        assert search.best is not None
        assert search.best.cost == entry["optimum"]


def test_schedules_fit_and_bounds_are_below_them_on_random_graphs(random_graph):
    for seed in range(8):
        graph = random_graph(seed, layers=3)
        budget = (largest_operation(graph)[1] + Plan.of(checkpoint_all(graph)).peak) // 2
        search, best = search_in(graph, budget), solve(graph, budget)
        for _ in range(6):
            if search.gap:
                search.advance()
        if best.cost is None:
            assert search.best is None
            continue
        assert search.bound <= best.cost * (1 + 1e-6)
        if search.best is not None:
            assert search.best.cost >= best.cost * (1 - 1e-6)
            assert Plan.of(search.best).peak <= budget


def test_a_cheaper_schedule_is_taken_and_a_dearer_one_is_not():
    search = search_in(linear(8), 8)
    cheap, dear = solve(linear(8), 8).schedule, solve(linear(8), 4).schedule
    for offered, kept in ((None, None), (dear, dear), (cheap, cheap), (dear, cheap)):
        search.take(offered)
        assert search.best is kept


def test_the_local_search_finds_its_way_back_from_beyond_the_budget(captured):
    graph = captured("unet")
    budget = int(0.6 * Plan.of(checkpoint_all(graph)).peak)
    search = search_in(graph, budget)
    search.beyond = checkpoint_all(graph)
    for _ in range(3):  # walks, guided walks, and the first cooling
        search.advance()
    assert search.beyond is None
    assert search.best is not None
    assert Plan.of(search.best).peak <= budget


def test_what_is_proven_elsewhere_can_settle_a_budget():
    search = search_in(linear(8), 6)
    search.take(solve(linear(8), 6).schedule)
    search.bound = 21.0 * (1 - 1e-9)
    assert search.gap == 0


def test_a_budget_without_any_time_is_left_alone_at_once(captured):
    search = search_in(captured("unet"), 3 * 2**30, 0.0)
    search.advance()
    assert search.seconds < 30
    assert search.gap == pytest.approx(0.3)
