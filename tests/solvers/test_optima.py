"""The exact strategies against reference optima, bounds and an exhaustive search."""

from __future__ import annotations

import math
from typing import Any

import pytest

from remat_explorer.checker import check
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak, minimum_budget, relax, solve
from remat_explorer.solvers.solution import Status
from tests.solvers.exhaustive import frontier_optimum
from tests.solvers.random_graphs import repeated_blocks
from tests.thorough import thorough_but

EIGHT_LAYERS = {3: 45, 4: 26, 5: 22, 6: 21, 7: 20, 8: 19, 9: 18, 10: 17}


@pytest.mark.parametrize("strategy", ["optimal", "checkmate-ilp"])
@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_optima_of_the_eight_layer_chain_are_proven_by_both_formulations_and_both_solvers(strategy, solver):
    budgets = EIGHT_LAYERS if solver == "highs" else (3, 6)
    for budget in budgets:
        solution = solve(linear(8), budget, strategy, solver=solver)
        assert (solution.status, solution.cost) == (Status.OPTIMAL, EIGHT_LAYERS[budget])
        assert solution.lower_bound == solution.cost
        assert solution.peak is not None
        assert solution.peak <= budget


def test_every_reference_chain_is_solved_to_its_optimum(reference):
    for entry in reference("optimal_linear.json"):
        chain = linear(int(entry["graph"].removeprefix("linear")))
        solution = solve(chain, entry["budget"])
        assert (solution.cost, solution.lower_bound) == (entry["optimum"], entry["optimum"]), entry["graph"]
        assert solution.schedule is not None
        assert check(chain, solution.schedule.R, solution.schedule.S).U_peak <= entry["budget"]


def test_problem_9_solves_the_reference_chains_of_up_to_six_layers(reference):
    # longer chains at small budgets take problem (9) minutes; the test above covers them with `optimal`
    for entry in reference("optimal_linear.json"):
        if entry["n"] <= 13:
            solution = solve(linear((entry["n"] - 1) // 2), entry["budget"], "checkmate-ilp")
            assert (solution.cost, solution.lower_bound) == (entry["optimum"], entry["optimum"]), entry


def test_the_relaxation_of_problem_9_gives_the_reference_bounds(reference, small_graph):
    for entry in reference("optimal_linear.json"):
        bound = relax(linear((entry["n"] - 1) // 2), entry["budget"])
        assert bound == pytest.approx(entry["lp_bound"], rel=1e-6), (entry["graph"], entry["budget"])
    for entry in reference("exact_small_graphs.json"):
        assert relax(small_graph(entry), entry["budget"]) == pytest.approx(entry["lp_bound"], rel=1e-6), entry


REFERENCES = [("optimal", 1), ("checkmate-ilp", 3), ("checkmate-ilp", 1)]  # all of them, or every third one


@pytest.mark.parametrize(("strategy", "step"), thorough_but(REFERENCES, *REFERENCES[:2]))
def test_global_optima_without_any_stages_are_reached_on_small_graphs(strategy, step, reference, small_graph):
    for entry in reference("exact_small_graphs.json")[::step]:
        solution = solve(small_graph(entry), entry["budget"], strategy)
        optimum = entry["exact_global"]
        assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, optimum, optimum), entry


@pytest.mark.parametrize("step", thorough_but([3, 1], 3))
def test_the_other_strategies_agree_with_the_reference_optima_where_they_are_quick(step, reference, small_graph):
    """Split stages and no stages at all on the smallest graphs; checkpoint-all wherever it is the optimum.

    Of every third reference, or of all.
    """
    ran: set[str] = set()
    for entry in reference("exact_small_graphs.json")[::step]:
        graph, budget, optimum = small_graph(entry), entry["budget"], entry["exact_global"]
        runs: list[tuple[str, dict[str, Any]]] = [("checkmate-ilp", {"splits": 2})] if graph.n <= 9 else []
        runs += [("checkmate-unpartitioned", {})] if graph.n <= 7 else []
        runs += [("checkpoint-all", {})] if checkpoint_all_peak(graph) <= budget else []
        for strategy, options in runs:
            solution = solve(graph, budget, strategy, **options)
            assert (solution.status, solution.cost) == (Status.OPTIMAL, optimum), (entry["graph"], budget, strategy)
            ran.add(strategy)
    assert ran == {"checkmate-ilp", "checkmate-unpartitioned", "checkpoint-all"}


def test_integrality_gaps_with_and_without_stages_are_those_of_the_paper(reference):
    chain = linear(8)
    assert 26 / relax(chain, 4) == pytest.approx(1.1818, abs=1e-4)
    assert 26 / relax(chain, 4, "checkmate-unpartitioned") == pytest.approx(21.557, abs=1e-3)
    for entry in reference("integrality_gap_linear8.json"):
        assert relax(chain, entry["budget"]) == pytest.approx(entry["lp_frontier"])
        unpartitioned = relax(chain, entry["budget"], "checkmate-unpartitioned")
        assert unpartitioned == pytest.approx(entry["lp_unpartitioned"])


def test_the_liveness_relaxation_is_a_bound_at_least_as_good_as_that_of_problem_9():
    for budget, optimum in EIGHT_LAYERS.items():
        assert relax(linear(8), budget) - 1e-6 <= relax(linear(8), budget, "optimal") <= optimum + 1e-6


def test_relaxations_agree_between_solvers():
    for formulation in ("checkmate-ilp", "checkmate-unpartitioned", "optimal"):
        assert relax(linear(6), 4, formulation, "cbc") == pytest.approx(relax(linear(6), 4, formulation, "highs"))


@pytest.mark.parametrize(("blocks", "layers"), [(3, 2), (2, 3), (6, 1)])
def test_repeated_blocks_of_up_to_14_operations_agree_with_exhaustive_search(blocks, layers):
    bound_above_once = 0
    for seed in range(6):
        graph = repeated_blocks(seed, blocks, layers)
        low, high = minimum_budget(graph).lower_bound, checkpoint_all_peak(graph)
        for budget in (low, low + (high - low) // 3):
            optimum = frontier_optimum(graph, budget)
            solution = solve(graph, budget)
            assert relax(graph, budget, "optimal") <= optimum + 1e-6
            if math.isinf(optimum):
                assert solution.status == Status.INFEASIBLE
            else:
                assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, optimum, optimum)
                bound_above_once += optimum > graph.total_cost
    assert bound_above_once > 6, "most of these budgets ask for recomputation"


@pytest.mark.parametrize("seed", range(60))
def test_exact_strategies_agree_with_exhaustive_search_on_random_training_graphs(seed, random_graph):
    graph = random_graph(seed, layers=3 + seed % 2)
    low, high = minimum_budget(graph).lower_bound, int(checkpoint_all(graph).U.max())
    budget = low + (high - low) * (seed % 5) // 6
    optimum = frontier_optimum(graph, budget)
    strategies = ("optimal", "checkmate-ilp") if seed % 3 == 0 else ("optimal",)
    for strategy in strategies:
        solution = solve(graph, budget, strategy)
        if math.isinf(optimum):
            assert solution.status == Status.INFEASIBLE
        else:
            assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, optimum, optimum)
    if math.isfinite(optimum):
        assert relax(graph, budget) <= optimum + 1e-6
        assert relax(graph, budget, "optimal") <= optimum + 1e-6
