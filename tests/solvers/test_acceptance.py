"""Every strategy and every bound against exhaustive search, on graphs that hypothesis draws."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from remat_explorer.checker import check
from remat_explorer.graph import Graph
from remat_explorer.solvers import relax, solve
from remat_explorer.solvers.base import Limits, Progress
from remat_explorer.solvers.bounds.lazy_rows import LivenessModel, refuse
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solution import Solution, Status
from tests.solvers.drawn_graphs import loose_graphs, problems, training_graphs
from tests.solvers.exhaustive import frontier_optimum, unpartitioned_optimum

SAME_EVERY_TIME = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=False
)


@settings(SAME_EVERY_TIME, max_examples=100)
@given(problem=problems(training_graphs()))
def test_optimal_agrees_with_exhaustive_search_and_all_it_says_on_the_way_is_true(problem):
    optimal_agrees(*problem)


@pytest.mark.thorough
@settings(SAME_EVERY_TIME, max_examples=300)
@given(problem=problems(training_graphs()))
def test_so_it_does_on_three_times_as_many_graphs(problem):
    optimal_agrees(*problem)


def optimal_agrees(graph: Graph, budget: int) -> None:
    """`optimal` finds the optimum, what it says on the way is true, and no relaxation is above it."""
    optimum = frontier_optimum(graph, budget)
    told: list[Progress] = []
    agrees(solve(graph, budget, "optimal", on_progress=told.append), optimum)
    for progress in told:
        if progress.lower_bound is not None:
            assert at_most(progress.lower_bound, optimum), progress.doing
        if progress.schedule is not None:
            check(graph, progress.schedule.R, progress.schedule.S, budget)
            assert progress.schedule.is_frontier_advancing
    for formulation in ("optimal", "checkmate-ilp", "checkmate-unpartitioned"):
        assert at_most(relax(graph, budget, formulation), optimum), formulation


@settings(SAME_EVERY_TIME, max_examples=100)
@given(problem=problems(training_graphs()))
def test_the_liveness_formulation_alone_agrees_with_exhaustive_search(problem):
    """`optimal` is often done before it gets there."""
    graph, budget = problem
    model = LivenessModel(Condensed.of(graph), budget, Milp())
    assert model.build(Limits())
    outcome = model.milp.solve()
    while outcome.values is not None and refuse(model, outcome.values):
        outcome = model.milp.solve()
    optimum = frontier_optimum(graph, budget)
    found = math.inf if outcome.objective is None else model.cost(outcome.objective)
    assert math.isclose(found, optimum, rel_tol=1e-6, abs_tol=1e-6)


@settings(SAME_EVERY_TIME, max_examples=60)
@given(problem=problems(training_graphs()))
def test_problem_9_agrees_with_exhaustive_search(problem):
    graph, budget = problem
    agrees_on_the_way(graph, budget, "checkmate-ilp", frontier_optimum(graph, budget))


@settings(SAME_EVERY_TIME, max_examples=60)
@given(problem=problems(training_graphs(most_layers=3)))
def test_split_stages_agree_with_exhaustive_search_and_cost_no_more_than_whole_ones(problem):
    graph, budget = problem
    optimum = frontier_optimum(graph, budget, splits=2)
    agrees_on_the_way(graph, budget, "checkmate-ilp", optimum, splits=2)
    assert at_most(relax(graph, budget, splits=2), min(optimum, relax(graph, budget)))
    assert frontier_optimum(graph, budget, splits=None) <= optimum <= frontier_optimum(graph, budget)


@settings(SAME_EVERY_TIME, max_examples=40)
@given(problem=problems(loose_graphs() | training_graphs(most_layers=2)))
def test_the_unpartitioned_form_agrees_with_exhaustive_search_and_costs_no_more_than_stages(problem):
    graph, budget = problem
    optimum = unpartitioned_optimum(graph, budget, rows=graph.n)
    agrees_on_the_way(graph, budget, "checkmate-unpartitioned", optimum)
    assert at_most(relax(graph, budget, "checkmate-unpartitioned"), optimum)
    assert optimum <= frontier_optimum(graph, budget)


def agrees(solution: Solution, optimum: float) -> None:
    """The solution is the optimum, proven, or proven not to exist."""
    if math.isinf(optimum):
        assert (solution.status, solution.schedule) == (Status.INFEASIBLE, None)
    else:
        assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, optimum, optimum)
        assert solution.schedule is not None
        check(solution.graph, solution.schedule.R, solution.schedule.S, solution.budget)


def agrees_on_the_way(graph: Graph, budget: int, strategy: str, optimum: float, **options: Any) -> None:
    """As `agrees`, and what a strategy says on the way is true."""
    told: list[Progress] = []
    agrees(solve(graph, budget, strategy, on_progress=told.append, **options), optimum)
    for progress in told:
        assert progress.lower_bound is None or at_most(progress.lower_bound, optimum)
        if progress.schedule is not None:
            check(graph, progress.schedule.R, progress.schedule.S, budget)


def at_most(bound: float, optimum: float) -> bool:
    """Whether a bound is not above the optimum, but for the solvers' tolerance."""
    return bound <= optimum + 1e-6 * (1 + abs(optimum)) if math.isfinite(optimum) else True
