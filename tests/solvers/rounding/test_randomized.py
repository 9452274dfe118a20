"""Draws of the randomized rounding: repeatable, all kept, and the strategy's answer is the cheapest that fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.rounding.linear_program import reduced_budget, solve_linear_program
from remat_explorer.solvers.rounding.two_phase import draw_samples, keeps_rules, naive_rounding, scatter, values_of

BUDGET = 6


@pytest.fixture(scope="module")
def relaxed():
    """The linear program of the chain with 8 layers, with the paper's allowance."""
    return solve_linear_program(Condensed.of(linear(8)), reduced_budget(linear(8), BUDGET, 0.1), Limits())


def test_every_draw_is_a_correct_schedule_with_the_cost_and_the_peak_that_it_says(relaxed):
    for sample in draw_samples(relaxed, 50, seed=3):
        checked = check(relaxed.graph, sample.schedule.R, sample.schedule.S)
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


def test_hardly_any_naive_draw_is_a_schedule(relaxed):
    exhibit = naive_rounding(relaxed, BUDGET, samples=2000)
    assert exhibit.samples == 2000
    assert exhibit.feasible <= exhibit.correct < 20


def test_naive_rounding_of_an_integral_point_is_that_point(relaxed):
    """What is already a schedule is drawn every time; its peak alone decides whether it is feasible."""
    best = solve(relaxed.graph, BUDGET)
    assert best.schedule is not None
    assert best.peak is not None
    members = relaxed.condensed.member
    point = replace(relaxed, R=best.schedule.R.astype(float), S=best.schedule.S[:, members].astype(float))
    fits, exceeds = (naive_rounding(point, budget, samples=10) for budget in (best.peak, best.peak - 1))
    assert (fits.correct, fits.feasible, fits.nearest_correct, fits.nearest_feasible) == (10, 10, True, True)
    assert (exceeds.correct, exceeds.feasible, exceeds.nearest_correct, exceeds.nearest_feasible) == (
        10,
        0,
        True,
        False,
    )


def test_the_rules_of_draws_are_the_rules_of_schedules():
    condensed = Condensed.of(linear(2))
    random = np.random.default_rng(0)
    agreed = set()
    for _ in range(400):
        R = np.tril(random.random((5, 5)) < 0.7) | np.eye(5, dtype=bool)
        S = (np.arange(5)[:, None] > condensed.producer) & (random.random((5, 4)) < 0.7)
        broken = Schedule(condensed.graph, R, values_of(condensed, S)).violation()
        assert keeps_rules(condensed, R, S) == (broken is None)
        agreed.add(broken is None)
    assert agreed == {True, False}
