"""The liveness formulation's parts: memory of a point, cover rows, last uses."""

from __future__ import annotations

import numpy as np

from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all, minimum_budget, solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.lazy_rows import LivenessModel, refuse
from remat_explorer.solvers.bounds.stages import last_use, live_memory
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp


def test_live_memory_is_the_schedules_U_where_an_operation_runs(random_graph):
    for seed in range(20):
        graph = random_graph(seed, layers=5)
        condensed = Condensed.of(graph)
        for schedule in (checkpoint_all(graph), minimum_budget(graph, seconds=0.5).schedule):
            ours = live_memory(condensed, schedule.R.astype(float), schedule.S[:, condensed.member].astype(float))
            runs = schedule.R > 0
            assert np.array_equal(ours[runs], schedule.U[runs])


def test_cover_rows_alone_lead_to_the_optimum():
    """Every memory row is declared present but missing, as if the solver's tolerance let everything through."""
    chain = Condensed.of(linear(3))
    model = LivenessModel(chain, 3, Milp())
    model.points = {(t, k) for t in range(chain.n) for k in range(t + 1)}
    assert model.build(Limits())
    rounds = 0
    while True:
        outcome = model.milp.solve()
        assert outcome.values is not None
        rounds += 1
        if not refuse(model, outcome.values):
            break
        assert rounds < 200
    assert rounds > 1
    assert model.cost(outcome.bound) == 10.0


def test_a_start_satisfies_the_problem_it_starts(random_graph):
    """A start that the solver accepts costs what its schedule costs, even with no time to search."""
    graph = random_graph(3, layers=5)
    condensed = Condensed.of(graph)
    schedule = minimum_budget(graph, seconds=0.5).schedule
    budget = int(schedule.U.max())
    model = LivenessModel(condensed, budget, Milp())
    assert model.build(Limits())
    for t in range(graph.n):
        for k in range(t):
            model.add_memory_row(t, k)
    point = model.point(schedule.R, schedule.S[:, condensed.member])
    R, S = model.matrices(point)
    assert np.array_equal(R, schedule.R)
    assert np.array_equal(S, schedule.S[:, condensed.member])
    outcome = model.milp.solve(start=point)
    assert outcome.status == "optimal"
    assert model.cost(outcome.objective or 0.0) <= schedule.cost + 1e-6
    assert solve(graph, budget).cost == round(model.cost(outcome.objective or 0.0))


def test_a_value_is_worth_having_as_long_as_it_serves_a_first_run_or_a_recomputation_that_does():
    values = (Value("a", 1), Value("b", 1), Value("sum", 1))
    graph = Graph(
        "fork",
        values,
        (
            operation("a", "forward", [], [0], 1),
            operation("b", "forward", [0], [1], 1),
            operation("log", "forward", [1], [], 1),
            operation("sum", "forward", [0], [2], 1),
            operation("end", "forward", [2], [], 1),
        ),
    )
    assert last_use(Condensed.of(graph)).tolist() == [4, 2, 4]  # a for sum again in stage 4; b only for log
