"""Rounding and Dynamic Tensor Rematerialization: by hand, within the budget, and bounds that hold."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from remat_explorer.checker import check_schedule, replay
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import checkpoint_all_peak, relax, solve
from remat_explorer.solvers.condensed_graph import CondensedGraph, largest_operation
from remat_explorer.solvers.methods.dtr import HEURISTICS, THRASHING, Neighbours, schedule_of_trace, simulate
from remat_explorer.solvers.methods.two_phase_rounding import (
    draw_samples,
    naive_rounding,
    reduced_budget,
    round_deterministically,
    scatter,
    solve_linear_program,
)
from remat_explorer.solvers.solver_interface import Limits
from tests.solvers.drawn_graphs import DRAWN, problems, training_graphs
from tests.solvers.exhaustive import frontier_optimum
from tests.solvers.helpers import present, simple_graph

# linear(2): v1 reads v0, the loss v2 reads v1, v3 reads v1 and v2, v4 reads v0 and v3; nobody reads v4
DEGREES = np.array(
    [[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.5, 1.0, 0.0, 0.0], [0.2, 0.4, 1.0, 0.0], [0.7, 0.0, 0.0, 1.0]]
)


def test_the_paper_s_rule_on_an_example_worked_by_hand():
    """One half is not above one half, so v0 leaves after stage 1. It is to be there in stage 4, so stage 3 computes it,
    (1c). Stage 3 reads v1, which it does not have, and computes it from that v0, (1b)."""
    schedule = round_deterministically(CondensedGraph.of(linear(2)), DEGREES)
    S = [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [1, 0, 0, 1, 0]]
    R = [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert schedule.S.astype(int).tolist() == S
    assert schedule.R.astype(int).tolist() == R
    assert schedule.cost == 7


BUDGET = 6


@pytest.fixture(scope="module")
def relaxed():
    """The linear program of the chain with 8 layers, with the paper's allowance."""
    return solve_linear_program(CondensedGraph.of(linear(8)), reduced_budget(linear(8), BUDGET, 0.1), Limits())


def test_every_draw_is_a_correct_schedule_with_the_cost_and_the_peak_that_it_says(relaxed):
    for sample in draw_samples(relaxed, 50, seed=3):
        checked = check_schedule(sample.schedule)
        assert (checked.cost, checked.peak) == (sample.cost, sample.peak)


def test_the_same_seed_draws_the_same_and_another_seed_does_not(relaxed):
    one, same, other = (scatter(relaxed, 40, seed) for seed in (1, 1, 2))
    assert (one.cost == same.cost).all()
    assert (one.peak == same.peak).all()
    assert (one.cost != other.cost).any()


def test_the_answer_is_the_cheapest_draw_within_the_budget(relaxed):
    cloud = scatter(relaxed, 200, seed=5)
    assert (cloud.peak > BUDGET).any()  # the cloud shows those, too
    solution = solve(relaxed.graph, BUDGET, "checkmate-approx-random", samples=200, seed=5, epsilon=0.1)
    assert solution.cost == cloud.cost[cloud.peak <= BUDGET].min()


def test_naive_rounding_of_an_integral_point_is_that_point(relaxed):
    """What is already a schedule is drawn every time; its peak alone decides whether it is feasible."""
    best = solve(relaxed.graph, BUDGET)
    schedule, peak = present(best.schedule), present(best.peak)
    S = schedule.S[:, relaxed.condensed.member].astype(float)
    point = replace(relaxed, R=schedule.R.astype(float), S=S)
    fits, exceeds = (naive_rounding(point, budget, samples=10) for budget in (peak, peak - 1))
    assert (fits.correct, fits.feasible, fits.nearest_correct, fits.nearest_feasible) == (10, 10, True, True)
    assert (exceeds.correct, exceeds.feasible, exceeds.nearest_feasible) == (10, 0, False)


STRATEGIES = ("checkmate-approx", "checkmate-approx-random", "checkmate-approx-search")


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(DRAWN, max_examples=15)
@given(problem=problems(training_graphs(most_layers=3)))
def test_no_schedule_exceeds_the_budget_and_no_bound_the_optimum(strategy, problem):
    graph, budget = problem
    solution = solve(graph, budget, strategy)
    optimum = frontier_optimum(graph, budget)
    if solution.status == Status.INFEASIBLE:
        assert optimum == float("inf")
    if solution.schedule is not None:
        assert present(solution.peak) <= budget
        assert present(solution.cost) >= optimum
    if solution.lower_bound is not None:
        assert solution.lower_bound <= optimum + 1e-6


@pytest.mark.parametrize("budget", [5, 7])
def test_the_search_is_at_least_as_good_as_the_paper_s_own_setting_and_bounded_by_the_linear_program(budget):
    chain = linear(8)
    plain, search = (solve(chain, budget, strategy) for strategy in ("checkmate-approx", "checkmate-approx-search"))
    assert present(search.cost) <= present(plain.cost)
    assert present(search.lower_bound) >= max(relax(chain, budget) - 1e-6, chain.total_cost + 1e-3)


def test_the_linear_program_of_less_than_the_budget_is_no_bound(reference):
    """With half of the budget the program costs more than the optimum of the whole budget."""
    chain = linear(8)
    entries = reference("optimal_linear.json")
    (optimum,) = [entry["optimum"] for entry in entries if (entry["graph"], entry["budget"]) == ("linear8", 8)]
    solution = solve(chain, 8, "checkmate-approx", epsilon=0.5)
    assert relax(chain, 4) > optimum
    assert solution.lower_bound == chain.total_cost
    nothing = solve(linear(8), 4, "checkmate-approx", epsilon=0.6)
    assert (nothing.status, nothing.schedule) == (Status.UNKNOWN, None)


every_heuristic = pytest.mark.parametrize("heuristic", HEURISTICS)


@pytest.mark.parametrize(("heuristic", "expected"), [("local", [1, 16]), ("full", [3, 24]), ("eq", [11, 26])])
def test_scores_worked_by_hand(heuristic, expected):
    """v1, v2 and v3 (costs 2, 4, 8) are evicted, then v2 comes back. v0 (cost 1) leads to v1 alone, v4 (cost 16) comes
    from v3 alone; the class of evicted values, of v1 and v3 by then, is not split."""
    row = simple_graph([[], [0], [1], [2], [3], [4]], costs=(1, 2, 4, 8, 16, 32))
    score = HEURISTICS[heuristic](Neighbours(CondensedGraph.of(row)))
    for v in (1, 2, 3):
        score.evicted(v)
    score.returned(2)
    assert score.costs(np.array([0, 4])).tolist() == expected


@every_heuristic
@settings(DRAWN, max_examples=20)
@given(problem=problems(training_graphs()))
def test_runs_and_schedules_stay_within_the_budget_and_nothing_runs_twice_where_all_fits(heuristic, problem):
    graph, budget = problem
    free = simulate(CondensedGraph.of(graph), checkpoint_all_peak(graph), heuristic)  # nothing runs twice
    assert (free.status, free.evictions, free.runs) == ("done", 0, tuple((k,) for k in range(graph.n)))
    trace = simulate(CondensedGraph.of(graph), budget, heuristic)
    if trace.status == "done":
        sequence = [(t, k, 1) for t, row in enumerate(trace.runs) for k in row]
        _, peak = replay(Plan.from_sequence(graph, sequence))
        assert peak <= budget
    solution = solve(graph, budget, "dtr", heuristic=heuristic)
    if solution.schedule is not None:
        assert trace.status == "done"
        assert present(solution.peak) <= budget


def test_a_run_that_repeats_operations_becomes_a_schedule_that_holds_the_same_and_costs_no_more(captured):
    graph = captured("gpt2")
    least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
    condensed = CondensedGraph.of(graph)
    trace = simulate(condensed, (least + most) // 2, "local")
    assert trace.status == "done"
    assert not trace.is_ascending
    schedule = schedule_of_trace(condensed, trace)
    check_schedule(schedule)
    assert schedule.cost < sum(graph.costs[k] for row in trace.runs for k in row)
    assert (schedule.S[:, condensed.member] == trace.held).all()


def test_a_run_out_of_memory_or_that_thrashes_ends_and_claims_nothing():
    chain = linear(16)
    for budget in (4, 6, 9):
        trace = simulate(CondensedGraph.of(chain), budget, "local")
        assert sum(map(len, trace.runs)) <= THRASHING * chain.n + 1
    solution = solve(chain, 3, "dtr")
    assert (solution.status, solution.schedule) == (Status.UNKNOWN, None)


@every_heuristic
def test_a_residual_network_at_half_of_its_memory(heuristic, captured):
    graph = captured("resnet50")
    least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
    solution = solve(graph, (least + most) // 2, "dtr", heuristic=heuristic)
    assert 1 < present(solution.overhead) < 1.2


def test_another_threshold_keeps_other_values():
    """Above 0.3, v0 stays in stage 2 and v1 to the end of its use; stage 3 has to compute v0 for stage 4."""
    R = round_deterministically(CondensedGraph.of(linear(2)), DEGREES, 0.3).R.astype(int)
    assert (R - np.eye(5, dtype=int)).nonzero() == (np.array([3]), np.array([0]))
    noisy = np.where(DEGREES == 0.5, 0.5 + 1e-9, DEGREES)  # a solver's tolerance decides nothing
    one, other = (round_deterministically(CondensedGraph.of(linear(2)), degrees).R for degrees in (noisy, DEGREES))
    assert (one == other).all()
