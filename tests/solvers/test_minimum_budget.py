"""The smallest budgets: proven from below, attained from above."""

from __future__ import annotations

import pytest

from remat_explorer.checker import check
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solution import Status
from remat_explorer.solvers import minimum_budget, solve


def test_the_chain_needs_three_values_and_a_schedule_for_three_is_known():
    found = minimum_budget(linear(8))
    assert (found.lower_bound, found.known_feasible) == (3, 3)
    assert solve(linear(8), 3).status == Status.OPTIMAL


def test_the_bound_counts_inputs_outputs_workspace_resident_and_earlier_persistent_bytes():
    graph = Graph(
        "step",
        (Value("x", 10), Value("statistics", 20, persistent=True), Value("y", 40), Value("unread", 80)),
        (
            operation("f", "forward", [], [0, 1], 1),
            operation("g", "forward", [0], [2, 3], 1, workspace=160),
            operation("h", "forward", [2], [], 1),
        ),
        resident_bytes=320,
    )
    found = minimum_budget(graph)
    assert (found.lower_bound, found.operation, found.name) == (630, 1, "g")
    assert found.values == (0, 1, 2, 3)
    assert found.known_feasible == 630


def test_the_explanation_names_the_operation_its_bytes_and_a_budget_worth_trying():
    text = minimum_budget(linear(8)).explain()
    assert "'v9' alone needs 3 B (3 bytes)" in text
    assert "the smallest budget worth trying is 3" in text


@pytest.mark.parametrize("name", ["vgg16", "unet", "mobilenet_v1"])
def test_captured_networks_have_a_known_schedule_close_to_the_bound(name, captured):
    graph = captured(name)
    found = minimum_budget(graph)
    assert found.lower_bound <= found.known_feasible <= 1.25 * found.lower_bound
    check(graph, found.schedule.R, found.schedule.S, found.known_feasible)
