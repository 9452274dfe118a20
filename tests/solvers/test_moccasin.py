"""MOCCASIN's program: its optimum is ours where its restriction does not matter, and its variables grow linearly."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest

from remat_explorer.checker import check_schedule
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solution import Status
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.incumbent import Incumbent
from remat_explorer.solvers.retention.program import RetentionProgram
from remat_explorer.solvers.retention.solving import cp_sat, solve_program
from tests.solvers.random_graphs import overwriting_graph, random_graph

ENOUGH = 4  # runs of an operation, unless a test says so


def program_of(graph: Graph, budget: int, most_runs: int = ENOUGH) -> RetentionProgram:
    program = RetentionProgram(cp_sat(), Condensed.of(graph), budget, most_runs)
    assert program.build(Limits())
    return program


def optimum(graph: Graph, budget: int) -> tuple[float, float]:
    """Cost of the program's own best schedule, and its bound."""
    found = Incumbent(Limits())
    bound, ended = solve_program(program_of(graph, budget), Limits(time_limit=60), found)
    assert ended
    if found.schedule is not None:
        check_schedule(found.schedule, budget)
    return found.cost, bound


@pytest.mark.parametrize("make", [random_graph, overwriting_graph])
@pytest.mark.parametrize("seed", range(4))
def test_its_optimum_is_ours_where_no_operation_has_to_run_more_often(make, seed):
    graph = make(seed, layers=4)
    for share in (0.65, 0.85):
        budget = int(share * checkpoint_all_peak(graph))
        ours = solve(graph, budget)
        assert ours.status in (Status.OPTIMAL, Status.INFEASIBLE)
        cost, bound = optimum(graph, budget)
        if ours.schedule is None or ours.cost is None:
            assert np.isinf([cost, bound]).all()
            continue
        assert bound == pytest.approx(cost)
        most = max(np.bincount([k for _, k, _ in ours.schedule.sequence]))
        assert cost == pytest.approx(ours.cost) if most <= ENOUGH else cost >= ours.cost


@pytest.mark.parametrize(("layers", "budget", "cost"), [(8, 4, 26), (8, 5, 22), (12, 6, 33)])
def test_its_optimum_of_a_chain_is_ours(layers, budget, cost):
    assert optimum(linear(layers), budget)[0] == cost == solve(linear(layers), budget).cost


def test_its_variables_grow_with_the_operations_and_not_with_their_square():
    counts = []
    for layers in (50, 100, 200):
        program = program_of(linear(layers), 10, most_runs=2)
        counts.append((program.integers / program.condensed.n, program.booleans / program.condensed.n))
    assert np.ptp(counts, axis=0) == pytest.approx([0, 0], abs=0.2)


def test_optimal_is_claimed_only_with_a_bound_on_all_schedules():
    chain = linear(6)
    assert solve(chain, 5, "moccasin", most_runs=3).status is Status.OPTIMAL
    restricted = solve(chain, 5, "moccasin")
    assert (restricted.status, restricted.cost, restricted.lower_bound) == (Status.FEASIBLE, 16, 15)
    assert restricted.limit.endswith("at most 2 runs of an operation: no such schedule costs less than 16")
    none = solve(linear(8), 4, "moccasin")  # an operation has to run three times
    assert (none.status, none.lower_bound) == (Status.UNKNOWN, 19)
    assert none.limit.endswith("at most 2 runs of an operation: no such schedule fits")


def test_a_hint_is_a_schedule_of_the_program_and_one_with_more_runs_is_refused():
    chain = linear(8)
    schedule = solve(chain, 4).schedule
    assert schedule is not None
    assert not program_of(chain, 4, most_runs=2).hint(schedule)
    program = program_of(chain, 4)
    assert program.hint(schedule)
    solver = cp_sat().CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.solve(program.model) == cp_sat().OPTIMAL
    assert program.schedule(solver.value).sequence == schedule.sequence


def test_it_can_be_cancelled_within_a_second():
    stop, chain = threading.Event(), linear(40)
    program = program_of(chain, 9, most_runs=3)
    limits = Limits(time_limit=60, cancelled=stop.is_set)
    timer = threading.Timer(0.5, stop.set)
    timer.start()
    begin = time.monotonic()
    assert not solve_program(program, limits, Incumbent(limits))[1]
    assert time.monotonic() - begin < 30  # of an idle machine 1.5


def test_without_ortools_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(SolverError, match=r"pip install 'remat-explorer\[moccasin\]'"):
        solve(linear(4), 4, "moccasin")


@pytest.mark.parametrize("runs", [0, 1.5, "many"])
def test_a_wrong_number_of_runs_is_quoted(runs):
    with pytest.raises(SolverError, match="most_runs is"):
        solve(linear(4), 4, "moccasin", most_runs=runs)
