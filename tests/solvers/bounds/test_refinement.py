"""The rising bound: valid in every round, and the optimum in the end."""

from __future__ import annotations

import math

import numpy as np
import pytest

from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all, minimum_budget, solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.lazy_rows import LivenessModel, violated_cuts
from remat_explorer.solvers.bounds.refinement import Refinement
from remat_explorer.solvers.bounds.stages import Stages, estimated_memory, lean_point, possibilities
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp
from tests.thorough import thorough_but


def test_a_merged_schedule_satisfies_every_row_and_costs_no_more(random_graph, overwriting_graph):
    for seed in range(40):
        graph = (random_graph, overwriting_graph)[seed % 2](seed, layers=5)
        condensed, schedule = Condensed.of(graph), minimum_budget(graph, seconds=0.3).schedule
        budget = int(schedule.U.max())
        singles = np.random.default_rng(seed).choice(graph.n, size=4, replace=False)
        stages = Stages.of(condensed, singles.tolist())
        model = LivenessModel(condensed, budget, Milp(relaxed=True), stages)
        assert model.build(Limits())
        for t in stages.position:
            for k in np.flatnonzero(schedule.R[t]):
                model.add_memory_row(t, int(k))
        point = model.start(schedule.R, schedule.S[:, condensed.member])
        for column, value in enumerate(point):
            model.milp.row([column], [1.0], "=", value)
        outcome = model.milp.solve()
        assert outcome.status == "optimal", seed
        assert outcome.objective is not None
        assert model.cost(outcome.objective) <= schedule.cost + 1e-6


@pytest.mark.parametrize("seed", thorough_but(range(30), *range(10)))
def test_the_bound_never_exceeds_the_optimum_and_reaches_it(seed, random_graph, overwriting_graph):
    graph = (random_graph, overwriting_graph)[seed % 2](seed, layers=5)
    low, high = minimum_budget(graph).lower_bound, int(checkpoint_all(graph).U.max())
    budget = low + (high - low) * (seed % 5) // 6
    exact = solve(graph, budget, "checkmate-ilp")
    refinement = Refinement(Condensed.of(graph), budget, Limits(60), [graph.n // 2])
    incumbent = exact.schedule if seed % 3 else None  # what is excluded by its cost must not cut off the optimum
    optimum = exact.cost if exact.cost is not None else math.inf
    while not refinement.finished and refinement.bound < optimum - 1e-5:
        refinement.advance(incumbent)
        assert refinement.bound <= optimum + 1e-5
    assert refinement.bound == pytest.approx(optimum, abs=1e-4)


def test_cuts_hold_for_every_schedule_and_do_cut(random_graph):
    cut_off = 0
    for seed in range(20):
        graph = random_graph(seed, layers=5)
        condensed = Condensed.of(graph)
        schedule = minimum_budget(graph, seconds=0.3).schedule
        stages = Stages.of(condensed, range(0, graph.n, 2))
        R, S = stages.merge(schedule.R, schedule.S[:, condensed.member])
        assert violated_cuts(stages, R, S) == []
        half = np.where(R == 1, R, 0.5)  # a point at which paths of halves are available from nothing
        half[np.arange(graph.n) > stages.last[:, None]] = 0
        cut_off += len(violated_cuts(stages, half * 0.4 + R * 0.6, S * 0.1))
    assert cut_off > 0


def test_what_is_lean_is_needed_and_no_more(random_graph):
    for seed in range(20):
        graph = random_graph(seed, layers=5)
        condensed, schedule = Condensed.of(graph), minimum_budget(graph, seconds=0.3).schedule
        stages = Stages.of(condensed)
        R, S = schedule.R.astype(float), schedule.S[:, condensed.member].astype(float)
        lean_R, lean_S = lean_point(stages, R, S)
        assert np.array_equal(lean_R, R)  # the schedule is compact already
        assert np.array_equal(lean_S, S)
        own = estimated_memory(stages, R, S)
        assert np.array_equal(own, schedule.U.diagonal())


def test_without_permission_nothing_runs_again_and_everything_is_held():
    chain = Condensed.of(linear(4))
    nothing = np.zeros((chain.n, chain.n), dtype=bool)
    reruns, holds, must_hold = possibilities(Stages.of(chain), nothing)
    assert not reruns.any()
    assert np.array_equal(holds, must_hold)
    assert not possibilities(Stages.of(chain))[2].any()
