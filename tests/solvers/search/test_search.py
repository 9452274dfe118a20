"""Walks, the local search and the exact search: within the budget, repeatable, true, and they can be stopped."""

import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from remat_explorer.checker import check_schedule
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.condensed_graph import CondensedGraph, largest_operation
from remat_explorer.solvers.search import exact_search
from remat_explorer.solvers.search.annealing import anneal, start
from remat_explorer.solvers.search.compiled_state import BETTER, FlatGraph, FlipState
from remat_explorer.solvers.search.exact_search import ExactResult, search_exactly
from remat_explorer.solvers.search.local_search import LocalSearch, with_first_runs
from remat_explorer.solvers.search.planner import plan_schedule
from tests.solvers.drawn_graphs import drawn, loose_graphs, problems, training_graphs
from tests.solvers.exhaustive import frontier_optimum
from tests.solvers.helpers import present, until


@pytest.mark.parametrize("name", ["vgg16", "mobilenet_v1"])
def test_captured_networks_get_a_schedule_at_every_budget_above_a_twentieth_of_the_range(name, captured):
    graph = captured(name)
    condensed = CondensedGraph.of(graph)
    low, high = int(condensed.operation_bytes.max()), checkpoint_all_peak(graph)
    last = float("inf")
    for share in (0.05, 0.2, 0.5, 0.9):
        budget = int(low + share * (high - low))
        checked = check_schedule(present(plan_schedule(condensed, budget)), budget)
        assert checked.cost < 1.5 * graph.total_cost
        assert checked.cost <= last, "a larger budget gave a dearer schedule"
        last = checked.cost
    assert plan_schedule(condensed, low - 1) is None
    assert present(plan_schedule(condensed, high)).recomputations == 0


def loaded(condensed: CondensedGraph, R: np.ndarray) -> tuple[FlatGraph, FlipState]:
    flat, state = FlatGraph.of(condensed), FlipState.empty(condensed.n, condensed.groups)
    stage, operation = np.nonzero(np.tril(R, -1))
    start(flat, state, stage * condensed.n + operation)
    return flat, state


def assert_accounts_agree(condensed: CondensedGraph, state: FlipState) -> None:
    schedule = condensed.schedule(state.runs.T)
    assert np.array_equal(schedule.R, state.runs.T), "a recomputation that nobody reads was left"
    assert np.array_equal(schedule.S[:, condensed.member], state.kept[:, :-1].T)
    assert schedule.violation() is None
    assert int(state.peak.max()) == Plan.of(schedule).peak == schedule.U.max()
    assert state.cost[0] + condensed.graph.total_cost == pytest.approx(schedule.cost)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_schedule_takes_memory_by_its_ones_and_not_by_n_times_n():
    def taken() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    loaded(CondensedGraph.of(linear(2)), np.eye(5))  # what is compiled or read once
    condensed, before = CondensedGraph.of(linear(2000)), taken()
    flat, state = FlatGraph.of(condensed), FlipState.empty(condensed.n, condensed.groups)
    start(flat, state, np.zeros(0, dtype=np.int64))
    assert taken() - before < 0.25 * sum(array.nbytes for array in state)  # with pages of 2 MiB it is a third


@pytest.mark.parametrize("seed", range(6))
def test_peak_and_cost_are_those_of_the_plan_before_and_after_thousands_of_flips(seed, random_graph, overwriting_graph):
    graph = (random_graph if seed % 2 else overwriting_graph)(seed, layers=6)
    condensed = CondensedGraph.of(graph)
    R = np.tril(np.random.default_rng(seed).random((graph.n, graph.n)) < 0.3)
    assert_accounts_agree(condensed, loaded(condensed, R)[1])
    n, low = condensed.n, int(condensed.operation_bytes.max())
    flat, state = loaded(condensed, np.zeros((n, n)))
    settings = np.array([0.1, 0.05, 1.0, np.inf])
    budget = low + (checkpoint_all_peak(graph) - low) // 3
    space = (np.zeros(n, dtype=np.int64), np.zeros(32, dtype=np.int32), np.zeros(1, dtype=np.bool_))
    random = np.array([seed], dtype=np.uint64)
    anneal(flat, state, budget, np.ones(n, dtype=np.bool_), settings, 0, 5000, 5000, random, *space)
    assert_accounts_agree(condensed, state)
    if np.isfinite(settings[-1]):
        schedule = condensed.schedule(with_first_runs(n, state.best[: state.numbers[BETTER]].astype(np.int64)))
        assert check_schedule(schedule, budget).cost == pytest.approx(settings[-1] + graph.total_cost)


def test_optima_of_linear_chains_are_found_from_nothing(reference):
    attained = []
    for entry in reference("optimal_linear.json"):
        graph = linear(entry["n"] // 2)
        search = LocalSearch(CondensedGraph.of(graph), entry["budget"])
        found = present(search.run(20_000))
        assert check_schedule(found, entry["budget"]).cost >= entry["optimum"]
        attained.append(found.cost == entry["optimum"])
    assert np.mean(attained) > 0.8


def test_the_proven_optimum_of_unet_at_a_twentieth_of_the_range_is_found(captured):
    """1.26781 was proven by a bound that shares nothing with this search."""
    condensed = CondensedGraph.of(captured("unet"))
    low, high = int(condensed.operation_bytes.max()), checkpoint_all_peak(condensed.graph)
    budget = int(low + 0.05 * (high - low))
    search = LocalSearch(condensed, budget)
    search.offer(plan_schedule(condensed, budget))
    assert present(search.run(500_000)).overhead == pytest.approx(1.26781, abs=1e-5)


def test_a_run_in_pieces_gives_the_same_as_a_run_at_once(random_graph):
    condensed = CondensedGraph.of(random_graph(3, layers=10))
    budget = int(condensed.operation_bytes.max()) + 3
    whole, pieces = LocalSearch(condensed, budget, seed=5), LocalSearch(condensed, budget, seed=5)
    at_once = whole.run(30_000)
    for _ in range(30):
        last = pieces.run(1000)
    assert np.array_equal(present(at_once).R, present(last).R)
    assert whole.iterations == pieces.iterations == 30_000


def test_stop_ends_a_search_in_another_thread_and_it_can_go_on(captured):
    condensed = CondensedGraph.of(captured("unet"))
    search = LocalSearch(condensed, int(condensed.operation_bytes.max() * 1.2))
    assert search.run(1000, over=lambda: True) is None
    assert search.iterations == 0  # it is asked before any work
    search.run(1)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(search.run, 10**12)
        assert until(lambda: search.iterations >= 10_000)  # the interpreter is free meanwhile
        search.stop()
        running.result(timeout=60)
    before = search.iterations
    search.run(1000)
    assert search.iterations == before + 1000


def checked(graph: Graph, budget: int, limit: float = math.inf, work: int = 1_000_000) -> ExactResult:
    """What the exact search finds, its schedule within the budget by the checker's account."""
    found = search_exactly(CondensedGraph.of(graph), budget, limit, work)
    if found.schedule is not None:
        assert check_schedule(found.schedule, budget).cost == pytest.approx(found.schedule.cost)
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


def test_reference_optima_are_proven(reference, small_graph):
    for entry in reference("optimal_linear.json"):
        assert_optimum(linear(entry["n"] // 2), entry["budget"], entry["optimum"])
    for entry in reference("exact_small_graphs.json")[::2]:
        assert_optimum(small_graph(entry), entry["budget"], entry["exact_global"])


@pytest.mark.parametrize(("seed", "layers", "budget"), [(2, 6, 28), (10021, 4, 21), (10035, 6, 18)])
def test_an_output_of_what_runs_again_anyway_is_evicted_for_nothing(seed, layers, budget, random_graph):
    """The estimate counted it: of its operation's two outputs one had to go before, and the optimum was left out."""
    graph = random_graph(seed, layers)
    assert_optimum(graph, budget, frontier_optimum(graph, budget))


@drawn(problems(training_graphs(3) | loose_graphs()), 60, 300)
def test_drawn_graphs_are_solved_as_by_exhaustive_search(problem):
    graph, budget = problem
    assert_optimum(graph, budget, frontier_optimum(graph, budget))


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_never_above_the_optimum_however_little_work_is_allowed(seed, overwriting_graph):
    graph = overwriting_graph(seed, layers=4)
    low, high = largest_operation(graph)[1], checkpoint_all_peak(graph)
    budget = low + (high - low) * seed // 5
    condensed = CondensedGraph.of(graph)
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


def test_more_groups_than_a_word_has_bits_are_searched():
    chain = linear(40)
    peak = checkpoint_all_peak(chain)
    assert CondensedGraph.of(chain).groups > 64
    assert_optimum(chain, peak, chain.total_cost)
    found = checked(chain, peak - 1, limit=chain.total_cost + 1.5)
    assert (present(found.schedule).cost, found.proven) == (chain.total_cost + 1, True)


def test_a_search_in_slices_finds_what_it_finds_at_once_and_ends_where_the_time_is_up(monkeypatch):
    condensed, budget = CondensedGraph.of(linear(24)), 7
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


def test_a_limit_at_the_optimum_is_confirmed_and_one_above_it_undercut():
    chain = linear(8)
    assert search_exactly(CondensedGraph.of(chain), 4, limit=26) == ExactResult(None, 26, True)
    found = checked(chain, 4, limit=26.5)
    assert (present(found.schedule).cost, found.bound, found.proven) == (26, 26, True)
