"""The rounding strategies: schedules within the budget or none, bounds that hold, options that are looked at."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from remat_explorer.errors import SolverError
from remat_explorer.instances import linear
from remat_explorer.solvers import relax, solve
from remat_explorer.solvers.methods.checkmate_approx import thresholds
from remat_explorer.solvers.solution import Status
from tests.solvers.drawn_graphs import problems, training_graphs
from tests.solvers.exhaustive import frontier_optimum

STRATEGIES = ("checkmate-approx", "checkmate-approx-random", "checkmate-approx-search")


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(problem=problems(training_graphs(most_layers=3)))
def test_no_schedule_exceeds_the_budget_and_no_bound_the_optimum(strategy, problem):
    graph, budget = problem
    solution = solve(graph, budget, strategy)
    optimum = frontier_optimum(graph, budget)
    if solution.status == Status.INFEASIBLE:
        assert optimum == float("inf")
    if solution.schedule is not None:
        assert solution.peak is not None
        assert solution.peak <= budget
        assert solution.cost is not None
        assert solution.cost >= optimum
    if solution.lower_bound is not None:
        assert solution.lower_bound <= optimum + 1e-6


@pytest.mark.parametrize("budget", [5, 6, 7, 8])
def test_the_search_is_at_least_as_good_as_the_paper_s_own_setting_and_bounded_by_the_linear_program(budget):
    chain = linear(8)
    plain, search = (solve(chain, budget, strategy) for strategy in ("checkmate-approx", "checkmate-approx-search"))
    assert plain.cost is not None
    assert search.cost is not None
    assert search.lower_bound is not None
    assert search.cost <= plain.cost
    assert search.lower_bound >= relax(chain, budget) - 1e-6
    assert search.lower_bound > chain.total_cost


def test_the_linear_program_of_less_than_the_budget_is_no_bound(reference):
    """With half of the budget the program costs more than the optimum of the whole budget."""
    chain = linear(8)
    entries = reference("optimal_linear.json")
    (optimum,) = [entry["optimum"] for entry in entries if (entry["graph"], entry["budget"]) == ("linear8", 8)]
    solution = solve(chain, 8, "checkmate-approx", epsilon=0.5)
    assert relax(chain, 4) > optimum
    assert solution.lower_bound == chain.total_cost


def test_an_allowance_that_leaves_nothing_proves_nothing():
    solution = solve(linear(8), 4, "checkmate-approx", epsilon=0.6)
    assert (solution.status, solution.schedule) == (Status.UNKNOWN, None)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_time_there_is_no_schedule_and_no_claim(strategy):
    told = []
    solution = solve(linear(8), 6, strategy, time_limit=0, on_progress=told.append)
    assert (solution.status, solution.schedule) == (Status.UNKNOWN, None)
    if strategy != "checkmate-approx-search":  # which does not even begin
        assert told[-1].doing == "the time is too short for the linear program of problem (9)"


@pytest.mark.parametrize(
    ("strategy", "option", "wrong"),
    [
        ("checkmate-approx", "epsilon", 1.0),
        ("checkmate-approx", "epsilon", float("nan")),
        ("checkmate-approx", "threshold", -0.1),
        ("checkmate-approx", "threshold", "half"),
        ("checkmate-approx-random", "samples", 0),
        ("checkmate-approx-random", "samples", True),
        ("checkmate-approx-random", "seed", 1.5),
    ],
)
def test_a_value_that_an_option_cannot_have_is_quoted(strategy, option, wrong):
    with pytest.raises(SolverError, match=f"{option} is {wrong!r}; expected"):
        solve(linear(4), 5, strategy, **{option: wrong})


def test_thresholds_are_the_degrees_that_occur_and_not_too_many():
    assert thresholds(np.array([[1.0, 0.5], [0.5 + 1e-9, 0.25]])) == [0.0, 0.25, 0.5]
    many = thresholds(np.linspace(0, 1, 1000)[None])
    assert len(many) <= 40
    assert many == sorted(set(many))
