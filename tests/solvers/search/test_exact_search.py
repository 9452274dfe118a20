"""The exact search against exhaustive search, reference optima and the checker."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings

from remat_explorer.checker import check
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.condensed import Condensed, largest_operation
from remat_explorer.solvers.search import exact_search
from remat_explorer.solvers.search.exact_search import Exact, search_exactly
from tests.solvers.drawn_graphs import loose_graphs, problems, training_graphs
from tests.solvers.exhaustive import frontier_optimum


def checked(graph: Graph, budget: int, limit: float = math.inf, work: int = 1_000_000) -> Exact:
    """What the exact search finds, its schedule within the budget by the checker's account."""
    found = search_exactly(Condensed.of(graph), budget, limit, work)
    if found.schedule is not None:
        assert check(graph, found.schedule.R, found.schedule.S, budget).cost == pytest.approx(found.schedule.cost)
        assert found.schedule.is_frontier_advancing
        assert found.bound <= found.schedule.cost + 1e-9
    return found


def assert_optimum(graph: Graph, budget: int, optimum: float) -> None:
    """The exact search proves this optimum, or that there is no schedule where it is infinite, whatever is known.

    With a limit hardly above the optimum it leaves out the most, and must still find it.
    """
    for limit in (math.inf, optimum + 0.5, optimum + 1e-3):
        found = checked(graph, budget, limit)
        assert found.proven
        assert found.bound == pytest.approx(optimum)
        if found.schedule is None:
            assert math.isinf(optimum)
        else:
            assert found.schedule.cost == pytest.approx(optimum)


def budgets(graph: Graph) -> list[int]:
    """From one byte too little for some operation to enough for keeping everything."""
    low, high = largest_operation(graph)[1], checkpoint_all_peak(graph)
    return sorted({max(0, low - 1), low, *(low + (high - low) * share // 5 for share in range(1, 5)), high})


def test_every_reference_chain_is_proven(reference):
    for entry in reference("optimal_linear.json"):
        assert_optimum(linear(int(entry["graph"].removeprefix("linear"))), entry["budget"], entry["optimum"])


def test_reference_optima_of_small_graphs_are_proven(reference, small_graph):
    for entry in reference("exact_small_graphs.json"):
        assert_optimum(small_graph(entry), entry["budget"], entry["exact_global"])


@pytest.mark.parametrize("seed", range(20))
def test_random_training_graphs_are_solved_as_by_exhaustive_search(seed, random_graph):
    graph = random_graph(seed, layers=3)
    for budget in budgets(graph):
        assert_optimum(graph, budget, frontier_optimum(graph, budget))


@pytest.mark.parametrize(("seed", "layers", "budget"), [(2, 6, 28), (10021, 4, 21), (10035, 6, 18)])
def test_an_output_of_what_runs_again_anyway_is_evicted_for_nothing(seed, layers, budget, random_graph):
    """The estimate counted it: of its operation's two outputs one had to go before, and the optimum was left out."""
    graph = random_graph(seed, layers)
    assert_optimum(graph, budget, frontier_optimum(graph, budget))


@pytest.mark.parametrize("seed", range(20))
def test_graphs_that_overwrite_are_solved_as_by_exhaustive_search(seed, overwriting_graph):
    graph = overwriting_graph(seed, layers=3)
    for budget in budgets(graph):
        assert_optimum(graph, budget, frontier_optimum(graph, budget))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(problems(training_graphs(3)))
def test_drawn_training_graphs_are_solved_as_by_exhaustive_search(problem):
    graph, budget = problem
    assert_optimum(graph, budget, frontier_optimum(graph, budget))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(problems(loose_graphs()))
def test_drawn_loose_graphs_are_solved_as_by_exhaustive_search(problem):
    graph, budget = problem
    assert_optimum(graph, budget, frontier_optimum(graph, budget))


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_never_above_the_optimum_however_little_work_is_allowed(seed, overwriting_graph):
    graph = overwriting_graph(seed, layers=4)
    budget = budgets(graph)[1:][: 1 + seed % 4][-1]
    condensed = Condensed.of(graph)
    best = search_exactly(condensed, budget)
    assert best.proven
    optimum = best.bound
    unproven = 0
    for work in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610):
        for limit in (math.inf, 1.5 * optimum, optimum):
            found = checked(graph, budget, limit, work)
            assert found.bound <= optimum * (1 + 1e-9)
            unproven += not found.proven
            if found.proven:
                assert found.bound == pytest.approx(min(optimum, limit))
    assert unproven > 0 or optimum == graph.total_cost


def test_a_limit_at_the_optimum_is_confirmed_and_one_above_it_undercut():
    chain = linear(8)
    assert search_exactly(Condensed.of(chain), 4, limit=26) == Exact(None, 26, True)
    found = checked(chain, 4, limit=26.5)
    assert found.schedule is not None
    assert (found.schedule.cost, found.bound, found.proven) == (26, 26, True)


def test_more_groups_than_a_word_has_bits_are_searched():
    chain = linear(40)
    peak = checkpoint_all_peak(chain)
    assert Condensed.of(chain).groups > 64
    assert_optimum(chain, peak, chain.total_cost)
    found = checked(chain, peak - 1, limit=chain.total_cost + 1.5)
    assert found.schedule is not None
    assert (found.schedule.cost, found.proven) == (chain.total_cost + 1, True)


def test_a_search_in_slices_finds_what_it_finds_at_once_and_ends_where_the_time_is_up(monkeypatch):
    condensed, budget = Condensed.of(linear(24)), 7
    at_once = search_exactly(condensed, budget, work=30_000)
    asked: list[int] = []

    def over(most: int) -> bool:
        asked.append(most)
        return len(asked) > most

    monkeypatch.setattr(exact_search, "SLICE", 1000)
    in_slices = search_exactly(condensed, budget, math.inf, 30_000, lambda: over(10**6))
    assert len(asked) > 20
    assert (in_slices.bound, in_slices.proven) == (at_once.bound, at_once.proven)
    assert (in_slices.schedule is None) == (at_once.schedule is None)
    for most in (0, 1, 5):
        asked.clear()
        early = search_exactly(condensed, budget, math.inf, 30_000, lambda most=most: over(most))
        assert (len(asked), early.proven) == (most + 1, False)
        assert condensed.graph.total_cost <= early.bound <= at_once.bound
