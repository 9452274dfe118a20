"""The smallest budgets: proven from below, attained from above."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from remat_explorer.checker import check
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, minimum_budget, solve
from remat_explorer.solvers.condensed import Condensed, largest_operation
from remat_explorer.solvers.memory.lowest_peak import least_working_set
from remat_explorer.solvers.solution import Status
from tests.solvers.monet.choice_graphs import MIB, best_cost, monet_chain
from tests.solvers.monet.choice_graphs import random_graph as choice_graph
from tests.solvers.orders_of_computations import least_peak
from tests.thorough import thorough_but


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


def test_a_graph_without_bytes_needs_none():
    operations = (operation("f", "forward", [], [0], 1.0), operation("g", "backward", [0], [1], 2.0))
    smallest = minimum_budget(Graph("weightless", (Value("x", 0), Value("y", 0)), operations))
    assert (smallest.lower_bound, smallest.known_feasible) == (0, 0)


def test_the_explanation_names_the_operation_its_bytes_and_a_budget_worth_trying():
    text = minimum_budget(linear(8)).explain()
    assert "'v9' alone needs 3 B" in text
    assert "The smallest budget worth trying is 3 B, 30% of keeping everything" in text


def test_an_infeasible_budget_is_explained_by_what_is_proven_of_it():
    found = minimum_budget(linear(8))
    assert found.proven
    below = found.explain_infeasible("optimal", 2)
    assert below.startswith("no schedule that goes stage by stage fits into 2 B: 'v9' alone needs 3 B")
    assert "worth trying is 3 B" in below
    within = found.explain_infeasible("checkpoint-all", 5)
    assert within.startswith("'checkpoint-all' has no schedule within 5 B, but there is one that needs 3 B")
    between = replace(found, known_feasible=6).explain_infeasible("optimal", 4)
    assert between.startswith("'optimal' has no schedule within 4 B, which is proven. The smallest budget worth trying")


@pytest.mark.parametrize("name", ["vgg16", "unet", "mobilenet_v1"])
def test_captured_networks_have_a_known_schedule_close_to_the_bound(name, captured):
    graph = captured(name)
    found = minimum_budget(graph)
    assert found.lower_bound <= found.known_feasible <= 1.25 * found.lower_bound
    check(graph, found.schedule.R, found.schedule.S, found.known_feasible)


def test_bounds_hold_and_are_mostly_equal_to_the_smallest_budget_on_random_graphs(random_graph, overwriting_graph):
    equal = proven = 0
    for seed in range(8):
        for graph in (random_graph(seed, layers=3), overwriting_graph(seed, layers=3)):
            least = least_peak(graph, checkpoint_all_peak(graph))
            assert largest_operation(graph)[1] <= least_working_set(Condensed.of(graph)).bytes <= least
            found = minimum_budget(graph, seconds=1)
            assert found.lower_bound <= least <= found.known_feasible
            check(graph, found.schedule.R, found.schedule.S, found.known_feasible)
            equal += found.lower_bound == least
            proven += found.proven
    assert equal >= 12
    assert proven >= 12


def test_what_waits_while_an_input_is_prepared_counts():
    values = (Value("wide", 8), Value("a", 1), Value("b", 1), Value("out", 1))
    graph = Graph(
        "waiting",
        values,
        (
            operation("widen", "forward", [], [0], 1),
            operation("left", "forward", [0], [1], 1),
            operation("right", "forward", [0], [2], 1),
            operation("join", "forward", [1, 2], [3], 1),
        ),
        resident_bytes=5,
    )
    found = minimum_budget(graph)
    assert largest_operation(graph)[1] == 5 + 9
    assert (found.lower_bound, found.known_feasible, found.proven) == (5 + 10, 5 + 10, True)
    assert (found.stage, found.operation) in ((3, 1), (3, 2))
    assert sum(values[v].bytes for v in found.values) + found.fixed == found.needed == 15
    assert "when it runs for 'join', whose other inputs wait" in found.explain()


@pytest.mark.parametrize("seed", thorough_but(range(6), 0, 1, 3, 4))
def test_the_smallest_budget_of_the_joint_problem_is_that_of_exhaustive_search(seed):
    graph = choice_graph(seed)
    found = minimum_budget(graph, 60)
    check(graph, found.schedule.R, found.schedule.S, found.known_feasible)
    assert found.needed <= found.lower_bound
    assert found.proven
    assert math.isfinite(best_cost(graph, found.known_feasible))
    assert math.isinf(best_cost(graph, found.known_feasible - 1))


def test_choices_are_explained_by_the_implementation_that_needs_the_least():
    chain = monet_chain(6, "both")
    found = minimum_budget(chain)
    assert found.known_feasible == 3 * MIB
    assert f", even {found.way!r}" in found.explain()
    own = set(chain.operations[found.operation].implementations[0].outputs)
    assert own <= set(found.values)
    below = found.explain_infeasible("monet", MIB)
    assert below.startswith("no schedule that goes stage by stage fits into 1.00 MiB")
    assert "try the strategy 'monet'" in found.explain_infeasible("checkpoint-all", 4 * MIB)


def test_fewer_implementations_need_no_less_memory():
    graph = monet_chain(6, "both")
    every, of_input = minimum_budget(graph, 20), minimum_budget(graph, 20, implementations="in")
    assert of_input.known_feasible >= every.known_feasible
    assert {code for _, _, code in of_input.schedule.sequence} == {1}


def test_values_alive_at_the_peak_of_the_known_schedule_make_up_its_peak(captured):
    graph = captured("vgg16")
    found = minimum_budget(graph)
    workspace = graph.operations[found.peak_operation].default.workspace
    assert graph.resident_bytes + int(graph.value_bytes[list(found.alive)].sum()) + workspace == found.known_feasible
    assert found.schedule.R[found.peak_stage, found.peak_operation]
