"""MONeT's restriction of the joint problem against the objectives of MONeT's own formulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remat_explorer.errors import SolverError
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.methods.monet_paper import PaperProblem
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.solution import Status
from tests.solvers.monet.choice_graphs import MIB, monet_chain, random_graph
from tests.thorough import thorough_but

REFERENCE = json.loads((Path(__file__).parents[2] / "data" / "monet_chain.json").read_text())
OBJECTIVES = {(entry["case"], entry["budget_mib"]): entry["objective"] for entry in REFERENCE}


@pytest.mark.parametrize(("case", "budget"), OBJECTIVES)
def test_the_restriction_costs_what_monet_does(case, budget):
    layers, reads = case.removeprefix("chain").split("_")
    graph = monet_chain(int(layers), reads)
    problem = PaperProblem(CondensedChoices.of(graph), budget * MIB, Milp(relaxed=True))
    assert problem.build(Limits())
    schedule, bound = problem.solve(Limits())
    assert schedule is not None
    assert bound == pytest.approx(OBJECTIVES[case, budget])


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(6)))
def test_the_joint_problem_is_never_dearer_and_the_bounds_of_local_memory_enclose(seed):
    graph = random_graph(seed, layers=5)
    problem = CondensedChoices.of(graph)
    budget = int(0.9 * checkpoint_all_peak(graph))
    costs = []
    for from_above in (False, True):
        paper = PaperProblem(problem, budget, Milp(relaxed=True), from_above)
        assert paper.build(Limits())
        costs.append(paper.solve(Limits())[1])
    assert costs[0] <= costs[1] + 1e-6
    joint = solve(graph, budget, "monet")
    restricted = solve(graph, budget, "monet-paper")
    if restricted.cost is not None:
        assert joint.cost is not None
        assert joint.cost <= restricted.cost + 1e-6
        backward = [k for k in range(graph.n) if graph.is_backward[k]]
        assert restricted.schedule is not None
        assert (restricted.schedule.R[:, backward] > 0).sum(axis=0).max() == 1


def test_what_no_implementation_fits_into_is_infeasible():
    assert solve(monet_chain(4, "both"), 2 * MIB, "monet-paper").status is Status.INFEASIBLE


def test_its_bound_is_one_of_all_schedules():
    solution = solve(monet_chain(6, "out"), 3 * MIB, "monet-paper")
    assert solution.lower_bound is not None
    assert solution.lower_bound <= 22  # the joint optimum


def test_local_memory_is_bounded_from_one_side():
    with pytest.raises(SolverError, match="'middle'"):
        solve(monet_chain(4, "both"), 3 * MIB, "monet-paper", local_memory="middle")
