"""Rounding: two phases give correct schedules, with the least R; naive rounding hardly ever does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_explorer.checker import check
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.methods.two_phase_rounding import (
    draw_samples,
    keeps_rules,
    minimal_R,
    naive_rounding,
    reduced_budget,
    round_deterministically,
    scatter,
    schedule_of,
    solve_linear_program,
    values_of,
)
from tests.solvers.drawn_graphs import training_graphs

# linear(2): v1 reads v0, the loss v2 reads v1, v3 reads v1 and v2, v4 reads v0 and v3; nobody reads v4
DEGREES = np.array(
    [
        [0.0, 0.0, 0.0, 0.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.5, 1.0, 0.0, 0.0],
        [0.2, 0.4, 1.0, 0.0],
        [0.7, 0.0, 0.0, 1.0],
    ]
)


def test_the_paper_s_rule_on_an_example_worked_by_hand():
    """One half is not above one half, so v0 leaves after stage 1. It is to be there in stage 4, so stage 3 computes it,
    (1c). Stage 3 reads v1, which it does not have, and computes it from that v0, (1b)."""
    schedule = round_deterministically(Condensed.of(linear(2)), DEGREES)
    S = [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [1, 0, 0, 1, 0]]
    R = [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert schedule.S.astype(int).tolist() == S
    assert schedule.R.astype(int).tolist() == R
    assert schedule.cost == 7


def test_another_threshold_keeps_other_values():
    """Above 0.3, v0 stays in stage 2 and v1 to the end of its use; stage 3 has to compute v0 for stage 4."""
    R = round_deterministically(Condensed.of(linear(2)), DEGREES, 0.3).R.astype(int)
    assert (R - np.eye(5, dtype=int)).nonzero() == (np.array([3]), np.array([0]))


def test_a_solver_s_tolerance_does_not_decide_what_lies_above_the_threshold():
    chain = Condensed.of(linear(2))
    noisy = np.where(DEGREES == 0.5, 0.5 + 1e-9, DEGREES)
    assert (round_deterministically(chain, noisy).R == round_deterministically(chain, DEGREES).R).all()


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(training_graphs(most_layers=3), st.randoms(use_true_random=False))
def test_whatever_is_retained_the_schedule_is_correct_and_computes_nothing_that_could_be_left_out(graph, random):
    condensed = Condensed.of(graph)
    S = np.zeros((condensed.n, condensed.groups), dtype=bool)
    for t, v in np.ndindex(S.shape):
        S[t, v] = condensed.producer[v] < t and random.random() < 0.5
    schedule = schedule_of(condensed, S)
    check(graph, schedule.R, schedule.S)
    assert schedule.is_frontier_advancing
    for t, k in np.argwhere(np.tril(schedule.R, -1)):
        less = schedule.R.copy()
        less[t, k] = 0
        assert Schedule(graph, less, schedule.S).violation() is not None


def test_keeping_everything_computes_everything_once():
    condensed = Condensed.of(linear(4))
    S = np.arange(condensed.n)[:, None] > condensed.producer
    assert (minimal_R(condensed, S) == np.eye(condensed.n)).all()


@pytest.mark.parametrize(("epsilon", "expected"), [(0.0, 130), (0.1, 120), (0.5, 80)])
def test_the_allowance_is_a_share_of_what_a_schedule_decides_about(epsilon, expected):
    assert reduced_budget(replace(linear(2), resident_bytes=30), 130, epsilon) == expected


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
