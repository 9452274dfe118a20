"""The joint problem against MONeT's own objectives, exhaustive search, and the problem without choices."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.monet.joint_problem import JointProblem
from remat_explorer.solvers.solution import Status
from tests.solvers.monet.choice_graphs import (
    MIB,
    anywhere,
    best_cost,
    in_place_only,
    monet_chain,
    overwriting,
    random_graph,
)
from tests.thorough import thorough_but

REFERENCE = json.loads((Path(__file__).parents[2] / "data" / "monet_chain.json").read_text())
OBJECTIVES = {(entry["case"], entry["budget_mib"]): entry["objective"] for entry in REFERENCE}


def chain_of(case: str) -> Graph:
    layers, reads = case.removeprefix("chain").split("_")
    return monet_chain(int(layers), reads)


def exactly(graph: Graph, budget: int) -> float:
    problem = JointProblem(CondensedChoices.of(graph), budget, Milp(relaxed=True))
    assert problem.build(Limits())
    schedule, bound = problem.solve(Limits())
    if schedule is None:
        assert math.isinf(bound)
        return math.inf
    assert bound == pytest.approx(schedule.cost)
    return schedule.cost


@pytest.mark.parametrize(("case", "budget"), OBJECTIVES)
def test_the_joint_problem_costs_at_most_what_monet_does(case, budget):
    objective = OBJECTIVES[case, budget]
    solution = solve(chain_of(case), budget * MIB, "monet")
    assert solution.status is Status.OPTIMAL
    assert solution.cost <= objective + 1e-6


def test_monet_cannot_drop_a_checkpoint_in_the_stage_of_its_last_use():
    # where memory is tightest, that costs its formulation something on all but two of the nine chains
    dearer = [
        (case, budget)
        for (case, budget), objective in OBJECTIVES.items()
        if (solve(chain_of(case), budget * MIB, "monet").cost or math.inf) < objective - 1e-6
    ]
    assert len(dearer) == 7
    assert {budget for _, budget in dearer} == {3}


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(6)))
def test_the_joint_problem_finds_the_optimum_of_exhaustive_search(seed):
    graph = random_graph(seed, layers=3 + seed % 2)
    peak = checkpoint_all_peak(graph)
    for share in (0.75, 0.85, 0.93):
        budget = int(share * peak)
        expected = best_cost(graph, budget)
        assert exactly(graph, budget) == pytest.approx(expected)


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(6)))
def test_the_optimum_keeps_what_may_run_in_place_only_to_that(seed):
    graph = in_place_only(overwriting(random_graph(seed, layers=3 + seed % 2)))
    peak = checkpoint_all_peak(graph)
    for share in (0.7, 0.85, 1.5):
        assert exactly(graph, int(share * peak)) == pytest.approx(best_cost(graph, int(share * peak)))


def test_that_rule_makes_schedules_dearer():
    graphs = [in_place_only(overwriting(random_graph(seed))) for seed in range(12)]
    budgets = [2 * checkpoint_all_peak(graph) for graph in graphs]  # so much that only the rule keeps from the cheapest
    with_rule = [exactly(graph, budget) for graph, budget in zip(graphs, budgets, strict=True)]
    without = [exactly(anywhere(graph), budget) for graph, budget in zip(graphs, budgets, strict=True)]
    assert all(one >= other - 1e-9 for one, other in zip(with_rule, without, strict=True))
    assert sum(one > other + 1e-9 for one, other in zip(with_rule, without, strict=True)) >= 3


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(6)))
def test_a_search_keeps_what_may_run_in_place_only_to_that(seed):
    graph = in_place_only(overwriting(random_graph(seed, layers=4)))
    budget = int((0.8 if seed % 2 else 1.5) * checkpoint_all_peak(graph))
    solution = solve(graph, budget, "monet")  # checked: see `checker.replay`
    assert (solution.cost or math.inf) == pytest.approx(best_cost(graph, budget))


@pytest.mark.parametrize("layers", [2, 4, 6])
def test_with_one_implementation_each_the_joint_problem_is_checkmates(layers, data):
    for entry in json.loads((data / "optimal_linear.json").read_text()):
        if entry["graph"] == f"linear{layers}":
            assert exactly(linear(layers), entry["budget"]) == pytest.approx(entry["optimum"])


def test_with_one_implementation_each_the_joint_problem_is_the_global_optimum(data):
    for entry in json.loads((data / "exact_small_graphs.json").read_text()):
        if len(entry["deps"]) > 11:
            continue
        values = tuple(Value(f"v{k}", size) for k, size in enumerate(entry["mem"]))
        pairs = enumerate(zip(entry["deps"], entry["cost"], strict=True))
        operations = tuple(operation(f"v{k}", "forward", reads, [k], cost) for k, (reads, cost) in pairs)
        assert exactly(Graph(entry["graph"], values, operations), entry["budget"]) == entry["exact_global"]


def test_only_chosen_implementations_run():
    graph = monet_chain(6, "both")
    either = exactly(graph, 3 * MIB)
    for name in ("all", "exact", "out"):
        assert solve(graph, 3 * MIB, "monet", implementations=name).cost == either
    of_input = exactly(monet_chain(6, "in"), 3 * MIB)
    assert solve(graph, 3 * MIB, "monet", implementations="in").cost == of_input > either
    with pytest.raises(UnknownNameError, match="'inn'"):
        solve(graph, 3 * MIB, "monet", implementations=["inn"])


def test_what_no_implementation_fits_into_is_infeasible():
    assert solve(monet_chain(4, "both"), 2 * MIB, "monet").status is Status.INFEASIBLE
