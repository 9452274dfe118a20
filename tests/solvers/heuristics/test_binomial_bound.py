"""The closed-form bound of chains: equal to REVOLVE's cost where that is the optimum, and never above an optimum."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

from remat_explorer.instances import linear
from remat_explorer.solution import Status
from remat_explorer.solvers import solve
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.heuristics.binomial import binomial_bound, binomial_within
from tests.solvers.drawn_chains import chains
from tests.solvers.drawn_graphs import problems, training_graphs
from tests.solvers.drawn_settings import DRAWN
from tests.solvers.exhaustive import frontier_optimum
from tests.thorough import thorough_but


def test_revolve_is_proven_optimal_on_unit_chains_of_up_to_200_layers_at_every_budget():
    for layers in (1, 2, 3, 5, 8, 13, 21, 34, 200):
        chain = linear(layers)
        condensed = Condensed.of(chain)
        budgets = range(3, layers + 4) if layers < 200 else (5, 6, 8, 11, 16, 40, 100, 202)
        for budget in budgets:
            found = binomial_within(chain, budget)
            assert found is not None
            assert found.cost == binomial_bound(condensed, budget), (layers, budget)
        assert math.isinf(binomial_bound(condensed, 2)) == (layers > 1)


@pytest.mark.parametrize("graphs", thorough_but([20, 60], 20))
def test_it_is_never_above_an_optimum_that_computes_each_operation_as_often_as_it_likes(graphs):
    @settings(DRAWN, max_examples=graphs)
    @given(problems(chains(5) | chains(6, sizes=(1, 2))))
    def is_never_above(problem):
        graph, budget = problem
        assert binomial_bound(Condensed.of(graph), budget) <= frontier_optimum(graph, budget, splits=None) + 1e-9

    is_never_above()


@DRAWN
@given(problems(training_graphs()))
def test_of_other_graphs_it_says_what_everything_costs_once_or_is_valid_too(problem):
    graph, budget = problem
    bound = binomial_bound(Condensed.of(graph), budget)
    assert graph.total_cost <= bound <= frontier_optimum(graph, budget, splits=None) + 1e-9


@pytest.mark.parametrize(("layers", "budget", "cost"), [(32, 6, 111), (300, 12, 1141), (1000, 22, 3751)])
def test_long_unit_chains_are_proven(layers, budget, cost):
    solution = solve(linear(layers), budget)
    assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, cost, cost)
