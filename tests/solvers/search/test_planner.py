"""The planner: always within the budget, always there when checkpoint-all fits."""

from __future__ import annotations

import pytest

from remat_explorer.checker import check
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, minimum_budget
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.planner import plan_schedule


@pytest.mark.parametrize("name", ["vgg16", "unet", "mobilenet_v1"])
def test_captured_networks_get_a_schedule_at_every_budget_above_a_twentieth_of_the_range(name, captured):
    graph = captured(name)
    condensed = Condensed.of(graph)
    low, high = int(condensed.operation_bytes.max()), checkpoint_all_peak(graph)
    last = float("inf")
    for share in (0.05, 0.2, 0.5, 0.9):
        budget = int(low + share * (high - low))
        schedule = plan_schedule(condensed, budget)
        assert schedule is not None
        checked = check(graph, schedule.R, schedule.S, budget)
        assert checked.cost < 1.5 * graph.total_cost
        assert checked.cost <= last, "a larger budget gave a dearer schedule"
        last = checked.cost


def test_checkpoint_all_is_returned_where_it_fits():
    schedule = plan_schedule(Condensed.of(linear(8)), 10)
    assert schedule is not None
    assert schedule.recomputations == 0


def test_nothing_is_planned_below_the_largest_operation():
    assert plan_schedule(Condensed.of(linear(8)), 2) is None


def test_random_training_graphs_are_planned_within_the_budget_from_the_known_minimum_on(random_graph):
    for seed in range(40):
        graph = random_graph(seed, layers=5)
        found = minimum_budget(graph, seconds=1)
        check(graph, found.schedule.R, found.schedule.S, found.known_feasible)
        assert found.lower_bound <= found.known_feasible <= checkpoint_all_peak(graph)


def test_tight_budgets_are_repaired_by_raising_the_weights_of_what_was_missing(random_graph):
    repaired = 0
    for seed in range(40):
        graph = random_graph(seed, layers=6)
        found = minimum_budget(graph, seconds=1)
        repaired += found.known_feasible == found.lower_bound
    assert repaired >= 20, "fewer than half of the graphs were planned at the bound of their largest operation"
