"""Stages in parts, none at all, and MOCCASIN's program: optima, what the bounds are bounds of, and limits."""

import math
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from remat_explorer.checker import check_schedule
from remat_explorer.errors import SolverError
from remat_explorer.figures import memory_heatmap, memory_timeline, schedule_heatmap
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import checkpoint_all_peak, relax, solve
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.methods import moccasin
from remat_explorer.solvers.methods.checkmate_ilp import LARGEST_UNPARTITIONED
from remat_explorer.solvers.methods.moccasin import CpSatProcess, Outcome
from remat_explorer.solvers.solution import Solution
from remat_explorer.solvers.solver_interface import INTERRUPTION, Incumbent, Limits, Progress
from tests.solvers.exhaustive import frontier_optimum, unpartitioned_optimum
from tests.solvers.helpers import present, simple_graph
from tests.solvers.random_graphs import overwriting_graph, random_graph


def one_source(keepsake: bool = False) -> Graph:
    """x and y from one source, an operation that floods the memory, and their sum.

    Computing x fits only without the source, and y needs the source again, both after the flood. With a keepsake, which
    costs a lot, there is one byte to spare, and the question is who gets it.
    """
    source, a, x, b, y = [], [0], [1], [0], [3]
    if keepsake:
        reads, costs = [source, a, x, b, y, [], [], [2, 4], [5, 7]], [1, 1, 1, 1, 1, 20, 1, 1, 1]
    else:
        reads, costs = [source, a, x, b, y, [], [2, 4]], []
    sizes = [2, 2, 1, 2] + [1] * (len(reads) - 4)
    return simple_graph(reads, sizes, costs, {2: 1, 4: 1, 6 if keepsake else 5: 4})


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_two_parts_of_a_stage_find_a_schedule_where_whole_stages_have_none(solver):
    graph = one_source()
    assert math.isinf(frontier_optimum(graph, 5))
    assert solve(graph, 5, "checkmate-ilp", solver=solver).status == Status.INFEASIBLE
    assert solve(graph, 5, "optimal", solver=solver).status == Status.INFEASIBLE
    split = solve(graph, 5, "checkmate-ilp", solver=solver, splits=2)
    optimum = frontier_optimum(graph, 5, splits=2)
    assert (split.status, split.cost, split.lower_bound) == (Status.OPTIMAL, optimum, optimum)
    last_stage = present(split.schedule).R[-2:]
    assert last_stage[:, 0].tolist() == [1, 1]  # the source, twice


def test_two_parts_of_a_stage_can_be_cheaper_and_more_parts_need_not_be():
    graph = one_source(keepsake=True)
    costs = [solve(graph, 6, "checkmate-ilp", splits=splits).cost for splits in (1, 2, 3)]
    assert costs == [frontier_optimum(graph, 6, splits) for splits in (1, 2, 3)]
    assert frontier_optimum(graph, 6) > frontier_optimum(graph, 6, splits=2) == frontier_optimum(graph, 6, splits=None)


def test_a_split_schedule_is_checked_saved_planned_and_drawn_like_any_other(tmp_path):
    graph = one_source()
    solution = solve(graph, 5, "checkmate-ilp", splits=2)
    schedule, plan = present(solution.schedule), present(solution.plan)
    found = check_schedule(schedule, 5)
    assert (found.cost, found.peak) == (solution.cost, solution.peak)
    assert max(statement.stage for statement in plan.statements) == 2 * graph.n - 1
    loaded = present(Solution.load(solution.save(tmp_path / "solution.json"), graph).schedule)
    assert np.array_equal(loaded.R, schedule.R)
    assert np.array_equal(loaded.S, schedule.S)
    for draw in (schedule_heatmap, memory_heatmap):
        figure: Any = draw(schedule)
        assert np.shape(figure.data[0].z) == (2 * graph.n, graph.n)
    assert memory_timeline(plan).data


STRATEGY = "checkmate-unpartitioned"


def test_first_runs_in_another_order_can_be_cheaper_and_the_bounds_say_for_whom_they_hold():
    """x costs much and leaves no room for the flood, which may as well run before it."""
    graph = simple_graph([[], [], [0]], costs=[5, 1, 1], workspace={1: 3})  # x, the flood, and the sum
    with_stages, without = solve(graph, 4), solve(graph, 4, STRATEGY)
    assert (with_stages.status, with_stages.cost) == (Status.OPTIMAL, frontier_optimum(graph, 4))
    assert (without.status, without.cost) == (Status.OPTIMAL, unpartitioned_optimum(graph, 4, graph.n))
    assert present(without.cost) < present(with_stages.lower_bound)
    assert not present(without.schedule).is_frontier_advancing
    check_schedule(present(without.schedule), 4)
    assert relax(graph, 4, STRATEGY) <= present(without.cost) + 1e-6


def test_a_search_that_runs_out_of_time_has_a_bound_and_claims_no_more():
    solution = solve(linear(6), 4, STRATEGY, time_limit=1)
    assert solution.status in (Status.FEASIBLE, Status.UNKNOWN)
    assert linear(6).total_cost <= present(solution.lower_bound) <= 18  # the optimum


def test_a_graph_that_is_too_large_is_refused_with_its_size_and_a_way_out():
    layers = LARGEST_UNPARTITIONED // 2 + 1
    with pytest.raises(
        SolverError, match=f"'linear{layers}' has {2 * layers + 1} operations.*at most 25.*use 'optimal'"
    ):
        solve(linear(layers), 5, STRATEGY)


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
    return found, process.solve(CondensedGraph.of(graph), budget, most_runs, limits, found)


def optimum(process: CpSatProcess, graph: Graph, budget: int) -> tuple[float, float]:
    """Cost of the program's own best schedule, and its bound."""
    found, outcome = solved(process, graph, budget)
    assert outcome.ended
    if found.schedule is not None:
        check_schedule(found.schedule, budget)
    return found.cost, present(outcome.bound)


@pytest.mark.parametrize("make", [random_graph, overwriting_graph])
@pytest.mark.parametrize("seed", range(2))
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


def test_a_bound_of_its_own_problem_is_none_of_all_schedules():
    """Beside highspy, which has another version of a library of ortools: no process can load both."""
    chain = linear(6)
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


def test_an_error_of_its_process_is_told_and_what_to_install_without_ortools(monkeypatch):
    monkeypatch.setattr(moccasin, "python_command", lambda *arguments: [sys.executable, "-c", "raise OSError('none')"])
    with pytest.raises(SolverError, match="the process of CP-SAT ended: OSError: none"):
        solve(linear(6), 5, "moccasin")
    monkeypatch.setattr(moccasin.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SolverError, match=r"pip install 'remat-explorer\[moccasin\]'"):
        solve(linear(4), 4, "moccasin")
