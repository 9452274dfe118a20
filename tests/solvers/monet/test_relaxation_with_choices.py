"""The few-moments relaxation with choices: valid bounds, and what it would choose."""

from __future__ import annotations

import math

import pytest

from remat_explorer.graph import Graph
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, Tables
from remat_explorer.solvers.monet.joint_problem import JointProblem
from remat_explorer.solvers.monet.relaxation_with_choices import RelaxationWithChoices
from tests.solvers.monet.choice_graphs import random_graph
from tests.solvers.monet.synthetic_choices import with_choices
from tests.thorough import thorough_but


@pytest.mark.parametrize("seed", thorough_but(range(30), *range(12)))
def test_no_bound_is_above_the_joint_optimum(seed):
    graph = random_graph(seed, layers=4 + seed % 3)
    problem = CondensedChoices.of(graph)
    tables, peak = Tables(problem), checkpoint_all_peak(graph)
    for share in (0.75, 0.85, 0.93):
        budget = int(share * peak)
        joint = JointProblem(problem, budget, Milp(relaxed=True))
        joint.build(Limits())
        schedule, _ = joint.solve(Limits())
        optimum = math.inf if schedule is None else schedule.cost
        relaxation = RelaxationWithChoices(tables, budget)
        fractional = relaxation.improve(Limits(), integral=False).bound
        integral = relaxation.improve(Limits(), integral=True).bound
        assert fractional <= integral <= optimum + 1e-6


def test_the_bound_says_more_than_that_everything_runs_once(data):
    graph = with_choices(Graph.load(data / "captured" / "unet.json"))
    problem = CondensedChoices.of(graph)
    budget = int(0.5 * checkpoint_all_peak(graph))
    relaxation = RelaxationWithChoices(Tables(problem), budget)
    found = relaxation.improve(Limits(), integral=False)
    assert found.bound > problem.least_cost * 1.001
    assert set(found.choice()) == set(graph.mandatory.tolist())
    names = {graph.operations[k].implementations[code - 1].name for k, code in found.choice().items()}
    assert names & {"bits", "small index", "recomputed"}


def test_a_budget_below_one_operation_is_proven_infeasible(data):
    graph = with_choices(Graph.load(data / "captured" / "unet.json"))
    problem = CondensedChoices.of(graph)
    budget = int(0.98 * problem.least_memory.max())
    assert math.isinf(RelaxationWithChoices(Tables(problem), budget).improve(Limits(), integral=False).bound)


def test_the_first_round_is_solved_to_its_end_however_little_work_there_is(data):
    graph = with_choices(Graph.load(data / "captured" / "unet.json"))
    problem = CondensedChoices.of(graph)
    relaxation = RelaxationWithChoices(Tables(problem), int(0.5 * checkpoint_all_peak(graph)))
    nothing = relaxation.improve(Limits(time_limit=0.0), integral=False)
    assert (nothing.bound, nothing.choice()) == (problem.least_cost, {})
    moments = list(relaxation.moments)
    first = relaxation.improve(Limits(), integral=False, columns=0)
    assert first.bound > problem.least_cost
    assert list(first.moments) == moments  # of one round
