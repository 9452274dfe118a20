"""The few-moments relaxation: never above an optimum, and close to it."""

from __future__ import annotations

import pytest

from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.few_moments import few_moments_bound, integral_moments_bound
from remat_explorer.solvers.condensed import Condensed


def test_its_bounds_are_never_above_the_optimum_and_mostly_equal_to_it_on_random_training_graphs(random_graph):
    equal = 0
    for seed in range(100, 140):
        graph = random_graph(seed, layers=3 + seed % 3)
        condensed = Condensed.of(graph)
        low, high = int(condensed.operation_bytes.max()), checkpoint_all_peak(graph)
        budget = low + (high - low) * (seed % 7) // 8
        optimum = solve(graph, budget, "checkmate-ilp").cost
        if optimum is None:
            continue
        relaxed = few_moments_bound(condensed, budget, Limits())
        integral = integral_moments_bound(condensed, budget, relaxed, Limits())
        assert graph.total_cost <= relaxed.bound <= integral.bound + 1e-6 <= optimum + 2e-6
        equal += integral.bound == pytest.approx(optimum)
    assert equal >= 25


def test_its_bound_on_the_eight_layer_chain_is_valid_at_every_budget():
    for budget, optimum in {3: 45, 4: 26, 5: 22, 6: 21, 7: 20, 8: 19, 9: 18, 10: 17}.items():
        assert 17 <= few_moments_bound(Condensed.of(linear(8)), budget, Limits()).bound <= optimum + 1e-6


def test_it_bounds_a_captured_network_at_once(captured):
    graph = captured("unet")
    condensed = Condensed.of(graph)
    low, high = int(condensed.operation_bytes.max()), checkpoint_all_peak(graph)
    relaxed = few_moments_bound(condensed, int(low + 0.2 * (high - low)), Limits())
    assert 1.09 * graph.total_cost < relaxed.bound < 1.1203 * graph.total_cost
