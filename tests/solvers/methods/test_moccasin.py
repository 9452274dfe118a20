"""MOCCASIN's program: its optimum is ours where its restriction does not matter, and its variables grow linearly."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from remat_explorer.checker import check_schedule
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.base import INTERRUPTION, Incumbent, Limits, Progress
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.methods import moccasin
from remat_explorer.solvers.methods.moccasin import CpSatProcess, Outcome
from remat_explorer.solvers.solution import Status
from tests.solvers.random_graphs import overwriting_graph, random_graph

ENOUGH = 4  # runs of an operation, unless a test says so


@pytest.fixture(scope="module")
def process() -> Iterator[CpSatProcess]:
    with CpSatProcess() as started:
        yield started


def solved(
    process: CpSatProcess, graph: Graph, budget: int, most_runs: int = ENOUGH, start: Schedule | None = None
) -> tuple[Incumbent, Outcome]:
    """The best schedule of the program, with what is proven of it."""
    limits = Limits(time_limit=60)
    found = Incumbent(limits, start)
    return found, process.solve(Condensed.of(graph), budget, most_runs, limits, found)


def optimum(process: CpSatProcess, graph: Graph, budget: int) -> tuple[float, float]:
    """Cost of the program's own best schedule, and its bound."""
    found, outcome = solved(process, graph, budget)
    assert outcome.ended
    assert outcome.bound is not None
    if found.schedule is not None:
        check_schedule(found.schedule, budget)
    return found.cost, outcome.bound


@pytest.mark.parametrize("make", [random_graph, overwriting_graph])
@pytest.mark.parametrize("seed", range(4))
def test_its_optimum_is_ours_where_no_operation_has_to_run_more_often(process, make, seed):
    graph = make(seed, layers=4)
    for share in (0.65, 0.85):
        budget = int(share * checkpoint_all_peak(graph))
        ours = solve(graph, budget)
        assert ours.status in (Status.OPTIMAL, Status.INFEASIBLE)
        cost, bound = optimum(process, graph, budget)
        if ours.schedule is None or ours.cost is None:
            assert np.isinf([cost, bound]).all()
            continue
        assert bound == pytest.approx(cost)
        most = max(np.bincount([k for _, k, _ in ours.schedule.sequence]))
        assert cost == pytest.approx(ours.cost) if most <= ENOUGH else cost >= ours.cost


@pytest.mark.parametrize(("layers", "budget", "cost"), [(8, 4, 26), (8, 5, 22), (12, 6, 33)])
def test_its_optimum_of_a_chain_is_ours(process, layers, budget, cost):
    assert optimum(process, linear(layers), budget)[0] == cost == solve(linear(layers), budget).cost


def test_its_variables_grow_with_the_operations_and_not_with_their_square(process):
    counts = []
    for layers in (50, 100, 200):
        found, limits = Incumbent(Limits()), Limits(time_limit=1.5)
        outcome = process.solve(Condensed.of(linear(layers)), 2 * layers, 2, limits, found)
        counts.append((outcome.integers / (2 * layers + 1), outcome.booleans / (2 * layers + 1)))
    assert counts[0] == pytest.approx((5, 7), abs=0.2)
    assert np.ptp(counts, axis=0) == pytest.approx([0, 0], abs=0.2)


def test_a_bound_of_its_own_problem_is_none_of_all_schedules():
    """Beside highspy, which has another version of a library of ortools: no process can load both."""
    chain = linear(6)
    assert solve(chain, 5, "checkmate-ilp").cost == 16
    restricted = solve(chain, 5, "moccasin")
    assert (restricted.status, restricted.cost, restricted.lower_bound) == (Status.FEASIBLE, 16, 15)
    assert restricted.limit.endswith("at most 2 runs of an operation: no such schedule costs less than 16")
    none = solve(linear(8), 4, "moccasin")  # an operation has to run three times
    assert (none.status, none.lower_bound) == (Status.UNKNOWN, 19)
    assert none.limit.endswith("at most 2 runs of an operation: no such schedule fits")
    assert "ortools" not in sys.modules


def test_it_begins_with_a_schedule_unless_an_operation_runs_more_often_in_it(process):
    chain = linear(8)
    schedule = solve(chain, 4).schedule
    found, outcome = solved(process, chain, 4, start=schedule)
    assert (outcome.hinted, found.schedule) == (True, schedule)  # of two that cost the same, the first stays
    assert not solved(process, chain, 4, most_runs=2, start=schedule)[1].hinted


def test_it_is_cancelled_while_cp_sat_works():
    stop, heard = threading.Event(), []

    def report(progress: Progress) -> None:
        heard.append(progress.doing)
        if progress.doing.startswith("solving a program of"):
            stop.set()

    solution = solve(linear(60), 8, "moccasin", on_progress=report, cancelled=stop.is_set)
    assert stop.is_set()
    assert solution.limit == INTERRUPTION


def test_an_error_of_its_process_is_told(monkeypatch):
    monkeypatch.setattr(moccasin, "python_command", lambda *arguments: [sys.executable, "-c", "raise OSError('none')"])
    with pytest.raises(SolverError, match="the process of CP-SAT ended: OSError: none"):
        solve(linear(6), 5, "moccasin")


def test_without_ortools_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(moccasin.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SolverError, match=r"pip install 'remat-explorer\[moccasin\]'"):
        solve(linear(4), 4, "moccasin")


@pytest.mark.parametrize("runs", [0, 1.5, "many"])
def test_a_wrong_number_of_runs_is_quoted(runs):
    with pytest.raises(SolverError, match="most_runs is"):
        solve(linear(4), 4, "moccasin", most_runs=runs)
