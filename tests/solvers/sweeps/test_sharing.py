"""What the points of a sweep may take from each other."""

from __future__ import annotations

import numpy as np

from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all, solve
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.sweeps.own_points import best_within, bound_at, merge_solutions, share_best


def point(budget, schedule=None, bound=None, strategy="optimal", status=Status.UNKNOWN, graph=None):
    return Solution(graph or linear(8), strategy, status, budget, schedule, bound, 1.0)


def test_a_schedule_goes_to_every_larger_budget_of_its_strategy_and_to_no_other():
    small = solve(linear(8), 4)
    nothing, other = point(5), point(5, strategy="checkmate-ilp")
    found = share_best([small, nothing, other])
    assert found[0] is small
    assert (found[1].schedule, found[1].status) == (small.schedule, Status.FEASIBLE)
    assert (found[2].schedule, found[2].status) == (None, Status.UNKNOWN)


def test_a_schedule_goes_to_smaller_budgets_from_its_peak_on():
    found_for_7 = Solution(linear(8), "optimal", Status.FEASIBLE, 7, solve(linear(8), 5).schedule, None, 1.0)
    assert found_for_7.peak == 5
    below, at, above = (share_best([point(budget), found_for_7])[0] for budget in (4, 5, 6))
    assert below.schedule is None
    assert at.cost == above.cost == found_for_7.cost


def test_a_bound_goes_to_smaller_budgets_of_every_strategy_and_to_no_larger_one():
    bound = point(6, bound=21.0)
    found = share_best([bound, point(5, bound=18.0), point(5, strategy="checkmate-ilp"), point(7, bound=19.0)])
    assert [s.lower_bound for s in found] == [21.0, 21.0, 21.0, 19.0]


def test_a_shared_bound_can_prove_a_schedule_optimal():
    cheap = solve(linear(8), 6)
    unproven = point(6, cheap.schedule, 17.0, "checkmate-ilp", Status.FEASIBLE)
    assert share_best([unproven, point(6, bound=21.0)])[0].status == Status.OPTIMAL


def test_bounds_of_frontier_advancing_schedules_are_kept_from_other_schedules():
    """Both values at once in a single stage: cheaper than what the bound is about, which must not be cut down to it."""
    graph = Graph(
        "pair",
        (Value("a", 1), Value("b", 1)),
        (operation("a", "forward", [], [0], 1), operation("b", "forward", [0], [1], 1)),
    )
    free = Schedule(graph, np.array([[1, 1]]), np.zeros((1, 2)))
    assert not free.is_frontier_advancing
    foreign = point(2, free, None, "foreign", Status.FEASIBLE, graph)
    assert share_best([foreign, point(2, bound=3.0, graph=graph)])[0].lower_bound is None


def test_what_a_strategy_cannot_do_within_a_budget_it_cannot_do_within_a_smaller_one():
    impossible = point(6, strategy="checkpoint-all", status=Status.INFEASIBLE)
    found = share_best([point(5, strategy="checkpoint-all"), impossible, point(7, strategy="checkpoint-all"), point(5)])
    assert [str(s.status) for s in found] == ["infeasible", "infeasible", "unknown", "unknown"]


def test_a_schedule_in_hand_refutes_that_there_is_none():
    held = solve(linear(8), 4)
    found = share_best([held, point(6, status=Status.INFEASIBLE)])
    assert [str(s.status) for s in found] == ["optimal", "feasible"]


def test_two_answers_for_one_point_give_the_cheaper_schedule_and_the_higher_bound():
    dear, cheap = solve(linear(8), 4), solve(linear(8), 6)
    first = point(6, dear.schedule, 20.0, status=Status.FEASIBLE)
    second = point(6, cheap.schedule, 19.0, status=Status.FEASIBLE)
    for both in (merge_solutions(first, second), merge_solutions(second, first)):
        assert (both.cost, both.lower_bound, both.seconds) == (21.0, 20.0, 2.0)


def test_the_best_within_a_budget_is_the_cheapest_that_fits():
    points = [solve(linear(8), budget) for budget in (4, 6, 8)]
    assert [getattr(best_within(budget, points), "cost", None) for budget in (3, 4, 5, 7, 99)] == [None, 26, 26, 21, 19]
    assert [bound_at(budget, points) for budget in (3, 5, 8, 9)] == [26, 21, 19, None]


def test_keeping_everything_is_a_schedule_like_any_other():
    everything = point(99, checkpoint_all(linear(8)), 17.0, status=Status.OPTIMAL)
    found = share_best([point(9, bound=17.0), point(10, bound=17.0), everything])
    assert [s.cost for s in found] == [None, 17, 17]
    assert found[1].status == Status.OPTIMAL
