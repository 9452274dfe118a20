"""A choice never costs more than its subset: `monet` against `optimal`, which runs default implementations alone."""

from __future__ import annotations

import math

import pytest

from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.anytime.monet import JointSearch
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.monet.selections import default_selection
from tests.solvers.monet.choice_graphs import in_place_only, overwriting, random_graph
from tests.thorough import thorough_but


@pytest.mark.parametrize("seed", thorough_but(range(16), *range(6)))
@pytest.mark.parametrize("share", [0.7, 0.85, 1.0])
def test_a_choice_never_costs_more_than_the_defaults(seed, share):
    graph = random_graph(seed, layers=4 + seed % 3)
    if seed % 2:
        graph = in_place_only(overwriting(graph))
    budget = int(share * checkpoint_all_peak(graph))
    plain, joint = solve(default_selection(graph).graph, budget, "optimal"), solve(graph, budget, "monet")
    assert (joint.cost or math.inf) <= (plain.cost or math.inf) * (1 + 1e-9)


@pytest.mark.parametrize("seed", thorough_but(range(6), 0, 1))
def test_the_steps_for_large_graphs_keep_to_that_as_well(seed):
    graph = in_place_only(overwriting(random_graph(seed, layers=6)))
    budget = int(0.85 * checkpoint_all_peak(graph))
    plain = solve(default_selection(graph).graph, budget, "optimal")
    # no integer program of the whole helps
    answer = JointSearch(graph, budget, Limits(600, threads=1), exact_up_to=0, exact_beside=0).run()
    cost = math.inf if answer.schedule is None else answer.schedule.cost
    assert cost <= (plain.cost or math.inf) * (1 + 1e-9)
