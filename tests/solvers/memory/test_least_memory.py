"""The least memory at a limited cost: never above what some order of computations needs, and often equal to it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.batches.batch_bound import (
    Allowance,
    integral_least_factor,
    least_factor,
    structural_factor,
)
from remat_explorer.solvers.condensed import Condensed
from tests.solvers.orders_of_computations import least_peak


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_peaks_are_bounded_at_every_limit_on_the_cost(random_graph, overwriting_graph, solver):
    equal = 0
    for seed in range(6):
        for make in (random_graph, overwriting_graph):
            graph = make(seed, layers=3)
            condensed, spare = Condensed.of(graph), graph.total_cost * (seed % 3) / 6
            allowance = Allowance(np.zeros(graph.n), np.ones(graph.n), spare)
            least = least_peak(graph, checkpoint_all_peak(graph), graph.total_cost + spare)
            relaxed = least_factor(condensed, allowance, Limits(solver=solver))
            integral = integral_least_factor(condensed, allowance, relaxed, Limits(solver=solver))
            assert structural_factor(condensed, allowance)[0] <= relaxed.z + 1e-6
            assert relaxed.z - 1e-6 <= integral.z <= least + 1e-6
            equal += math.ceil(integral.z - 1e-6) == least
    assert equal >= 8


def test_a_factor_that_is_of_no_interest_is_infinite(random_graph):
    graph = random_graph(1, layers=4)
    condensed = Condensed.of(graph)
    allowance = Allowance(np.zeros(graph.n), np.ones(graph.n), 0.0)
    relaxed = least_factor(condensed, allowance, Limits())
    plain = integral_least_factor(condensed, allowance, relaxed, Limits())
    assert plain.settled
    assert integral_least_factor(condensed, allowance, relaxed, Limits(), plain.z * 0.99).z == math.inf
    assert integral_least_factor(condensed, allowance, relaxed, Limits(), plain.z * 1.01).z == pytest.approx(plain.z)
