"""Dynamic Tensor Rematerialization: its scores by hand, its runs replayed, its schedules within the budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from remat_explorer.checker import check, replay
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.condensed import Condensed, largest_operation
from remat_explorer.solvers.methods.dtr import HEURISTICS, THRASHING, Neighbours, schedule_of_trace, simulate
from remat_explorer.solvers.solution import Status
from tests.solvers.drawn_graphs import problems, training_graphs

every_heuristic = pytest.mark.parametrize("heuristic", HEURISTICS)


def row_of_operations(costs: tuple[int, ...]) -> Graph:
    """Operations in a row, each reading the one before."""
    values = tuple(Value(f"v{k}", 1) for k in range(len(costs)))
    rows = enumerate(costs)
    return Graph("row", values, tuple(operation(f"v{k}", "forward", [k - 1] if k else [], [k], c) for k, c in rows))


@pytest.mark.parametrize(("heuristic", "expected"), [("local", [1, 16]), ("full", [3, 24]), ("eq", [11, 26])])
def test_scores_worked_by_hand(heuristic, expected):
    """v1, v2 and v3 (costs 2, 4, 8) are evicted, then v2 comes back. v0 (cost 1) leads to v1 alone, v4 (cost 16) comes
    from v3 alone; the class of evicted values, of v1 and v3 by then, is not split."""
    score = HEURISTICS[heuristic](Neighbours(Condensed.of(row_of_operations((1, 2, 4, 8, 16, 32)))))
    for v in (1, 2, 3):
        score.evicted(v)
    score.returned(2)
    assert score.costs(np.array([0, 4])).tolist() == expected


@pytest.mark.parametrize(("heuristic", "expected"), [("local", 16), ("full", 30), ("eq", 30)])
def test_what_is_evicted_in_a_row_counts_as_a_whole(heuristic, expected):
    score = HEURISTICS[heuristic](Neighbours(Condensed.of(row_of_operations((1, 2, 4, 8, 16, 32)))))
    for v in (3, 1, 2):  # v2 joins the two
        score.evicted(v)
    assert score.costs(np.array([4])).tolist() == [expected]


@every_heuristic
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(graph=training_graphs())
def test_without_memory_pressure_everything_is_computed_once(heuristic, graph):
    trace = simulate(Condensed.of(graph), checkpoint_all_peak(graph), heuristic)
    assert (trace.status, trace.evictions) == ("done", 0)
    assert trace.runs == tuple((k,) for k in range(graph.n))


@every_heuristic
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(problem=problems(training_graphs()))
def test_runs_and_schedules_stay_within_the_budget(heuristic, problem):
    graph, budget = problem
    trace = simulate(Condensed.of(graph), budget, heuristic)
    if trace.status == "done":
        sequence = [(t, k, 1) for t, row in enumerate(trace.runs) for k in row]
        _, peak = replay(Plan.from_sequence(graph, sequence))
        assert peak <= budget
    solution = solve(graph, budget, "dtr", heuristic=heuristic)
    if solution.schedule is not None:
        assert trace.status == "done"
        assert solution.peak is not None
        assert solution.peak <= budget


def test_a_run_that_rows_can_say_is_the_schedule():
    chain = linear(8)
    trace = simulate(Condensed.of(chain), 6)
    assert trace.is_ascending
    schedule = schedule_of_trace(Condensed.of(chain), trace)
    assert [k for _, k, _ in schedule.sequence] == [k for row in trace.runs for k in row]
    assert schedule.cost > chain.total_cost


def test_a_run_that_repeats_operations_becomes_a_schedule_that_holds_the_same_and_costs_no_more(captured):
    graph = captured("gpt2")
    least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
    condensed = Condensed.of(graph)
    trace = simulate(condensed, (least + most) // 2, "local")
    assert trace.status == "done"
    assert not trace.is_ascending
    schedule = schedule_of_trace(condensed, trace)
    check(graph, schedule.R, schedule.S)
    assert schedule.cost < sum(graph.costs[k] for row in trace.runs for k in row)
    assert (schedule.S[:, condensed.member] == trace.held).all()


@every_heuristic
def test_a_run_out_of_memory_claims_nothing(heuristic):
    solution = solve(linear(16), 3, "dtr", heuristic=heuristic)
    assert (solution.status, solution.schedule) == (Status.UNKNOWN, None)


@pytest.mark.parametrize("budget", range(4, 12))
def test_no_run_costs_much_more_than_where_it_counts_as_thrashing(budget):
    chain = linear(16)
    trace = simulate(Condensed.of(chain), budget, "local")
    assert sum(map(len, trace.runs)) <= THRASHING * chain.n + 1


@pytest.mark.parametrize("wrong", ["lru", 3, ["eq"]])
def test_a_heuristic_that_there_is_not_is_quoted(wrong):
    with pytest.raises(SolverError, match="'dtr' knows 'eq', 'full', 'local'"):
        solve(linear(4), 5, "dtr", heuristic=wrong)


@every_heuristic
def test_a_residual_network_at_half_of_its_memory(heuristic, captured):
    graph = captured("resnet50")
    least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
    solution = solve(graph, (least + most) // 2, "dtr", heuristic=heuristic)
    assert solution.overhead is not None
    assert 1 < solution.overhead < 1.2
