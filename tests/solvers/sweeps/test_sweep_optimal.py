"""What the budgets of the optimal strategy share: one linear program, schedules, and a valid bound for each."""

from __future__ import annotations

import numpy as np
import pytest

from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.anytime.optimal import improve_optimal
from remat_explorer.solvers.anytime.sweep_search import MomentsAtBudgets, solve_together
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.bounds.few_moments import MomentsProblem, few_moments_bound
from remat_explorer.solvers.condensed import Condensed, largest_operation
from remat_explorer.solvers.milp import Milp


def budgets_of(graph, count):
    return sorted({int(b) for b in np.linspace(largest_operation(graph)[1], checkpoint_all_peak(graph), count)})


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_one_program_with_other_right_hand_sides_equals_a_program_for_each_budget(solver, captured):
    condensed = Condensed.of(captured("unet"))
    budgets = budgets_of(condensed.graph, 6)[1:]
    moments = few_moments_bound(condensed, budgets[0], Limits(60, solver)).moments
    shared = MomentsAtBudgets(condensed, budgets[0], moments, Limits(60, solver))
    for budget in (*budgets[::-1], budgets[2]):  # in any order, and again
        own = MomentsProblem(condensed, budget, list(moments), Milp(solver, relaxed=True))
        assert own.build(Limits(60))
        found = shared.at(budget, Limits(60, solver))
        # the shared program neglects fewer small values, those of the smallest budget: never a weaker bound
        assert found.bound >= own.bound(own.milp.solve()) * (1 - 1e-6)
        assert found.bound == pytest.approx(own.bound(own.milp.solve()), rel=1e-3)


def test_bounds_and_schedules_of_random_graphs_are_on_the_right_sides_of_the_optimum(random_graph):
    for seed in range(10):
        graph = random_graph(seed, layers=3)
        budgets = budgets_of(graph, 4)
        for budget, answer in zip(budgets, solve_together(graph, budgets, [], Limits(60)), strict=True):
            best = solve(graph, budget)
            if best.cost is None:
                assert answer.schedule is None
                continue
            assert not answer.infeasible
            assert answer.lower_bound is not None
            assert answer.lower_bound <= best.cost * (1 + 1e-6)
            if answer.schedule is not None:
                assert answer.schedule.cost >= best.cost * (1 - 1e-6)
                assert Plan.of(answer.schedule).peak <= budget


def test_costs_and_bounds_fall_from_budget_to_budget(captured):
    graph = captured("unet")
    answers = solve_together(graph, budgets_of(graph, 6)[1:], [], Limits(30))
    costs = [answer.schedule.cost for answer in answers if answer.schedule is not None]
    bounds = [answer.lower_bound for answer in answers if answer.lower_bound is not None]
    assert len(costs) == len(bounds) == len(answers)
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds, reverse=True)


def test_a_start_serves_where_it_fits_even_without_time_for_anything_else():
    start = solve(linear(8), 6).schedule
    assert start is not None
    small, fitting, large = solve_together(linear(8), [4, 6, 8], [start], Limits(0.0))
    assert (small.schedule, fitting.schedule, large.schedule) == (None, start, start)
    assert [answer.lower_bound for answer in (small, fitting, large)] == [26, 21, 19]


def test_a_program_that_could_not_be_built_says_only_that_everything_runs_once(captured):
    condensed = Condensed.of(captured("unet"))
    budget = budgets_of(condensed.graph, 3)[1]
    hurried = MomentsAtBudgets(condensed, budget, [50, 60], Limits(0.0))
    assert hurried.at(budget, Limits(60)).bound == condensed.graph.total_cost


def test_improving_never_loses_what_is_known():
    known = solve(linear(8), 4)
    for limits in (Limits(0.0), Limits(30)):
        found = improve_optimal(linear(8), 4, Answer(known.schedule, 26.0), limits)
        assert found.schedule is not None
        assert (found.schedule.cost, found.lower_bound, found.infeasible) == (26, 26, False)
