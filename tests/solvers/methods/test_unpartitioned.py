"""The problem without stages, (1a) to (1f): its optima, what its bounds are bounds of, and its limits."""

from __future__ import annotations

import pytest

from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import relax, solve
from remat_explorer.solvers.methods.checkmate_ilp import LARGEST_UNPARTITIONED
from remat_explorer.solvers.relaxation import Relaxation
from remat_explorer.solvers.solution import Solution, Status
from tests.solvers.exhaustive import frontier_optimum, unpartitioned_optimum
from tests.thorough import thorough_but

STRATEGY = "checkmate-unpartitioned"


def late_result(persistent: bool = True) -> Graph:
    """A result that could be computed at once, though another operation has the smaller number."""
    return Graph(
        "late result",
        (Value("a", 3), Value("result", 2, persistent), Value("b", 4), Value("end", 1, persistent)),
        (
            operation("a", "forward", [], [0], 1),
            operation("result", "forward", [0], [1], 1),
            operation("b", "forward", [], [2], 1),
            operation("end", "forward", [2, 1], [3], 1),
        ),
        resident_bytes=1,
    )


CHAINS = [(2, 3, "highs"), (2, 3, "cbc"), (3, 4, "cbc"), (3, 4, "highs")]


@pytest.mark.parametrize(("layers", "budget", "solver"), thorough_but(CHAINS, *CHAINS[:3]))
def test_chains_have_the_optimum_that_they_have_with_stages(layers, budget, solver):
    chain = linear(layers)
    solution = solve(chain, budget, STRATEGY, solver=solver)
    optimum = frontier_optimum(chain, budget)
    assert unpartitioned_optimum(chain, budget, chain.n) == optimum
    assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, optimum, optimum)


def test_first_runs_in_another_order_can_be_cheaper_and_the_bounds_say_for_whom_they_hold():
    """x costs much and leaves no room for the flood, which may as well run before it."""
    graph = Graph(
        "flood last",
        (Value("x", 1), Value("flood", 1), Value("sum", 1)),
        (
            operation("x", "forward", [], [0], 5),
            operation("flood", "forward", [], [1], 1, workspace=3),
            operation("sum", "forward", [0], [2], 1),
        ),
    )
    with_stages, without = solve(graph, 4), solve(graph, 4, STRATEGY)
    assert (with_stages.status, with_stages.cost) == (Status.OPTIMAL, frontier_optimum(graph, 4))
    assert (without.status, without.cost) == (Status.OPTIMAL, unpartitioned_optimum(graph, 4, graph.n))
    assert without.cost is not None
    assert with_stages.lower_bound is not None
    assert without.cost < with_stages.lower_bound
    assert without.schedule is not None
    assert not without.schedule.is_frontier_advancing
    check(graph, without.schedule.R, without.schedule.S, 4)
    assert relax(graph, 4, STRATEGY) <= without.cost + 1e-6


def test_persistent_values_count_from_their_first_run_whenever_that_is():
    graph = late_result()
    for budget in range(4, 13):
        optimum = unpartitioned_optimum(graph, budget, graph.n)
        solution = solve(graph, budget, STRATEGY)
        assert (solution.cost or float("inf")) == optimum, budget
        assert solution.status == (Status.INFEASIBLE if optimum == float("inf") else Status.OPTIMAL)
        assert relax(graph, budget, STRATEGY) <= optimum + 1e-6


def test_an_operation_may_need_less_than_stages_would_make_it_need():
    """With stages the results of earlier operations are there already, so the same budget is refused."""
    graph = Graph(
        "two results",
        (Value("small", 4, persistent=True), Value("large", 3, persistent=True)),
        (operation("small", "forward", [], [0], 1), operation("large", "forward", [], [1], 1, workspace=4)),
    )
    assert solve(graph, 7).status == Status.INFEASIBLE
    assert (solve(graph, 7, STRATEGY).status, solve(graph, 7, STRATEGY).cost) == (Status.OPTIMAL, 2)
    assert solve(graph, 6, STRATEGY).status == Status.INFEASIBLE


def test_a_schedule_without_stages_survives_its_file(tmp_path):
    solution = solve(late_result(), 8, STRATEGY)
    loaded = Solution.load(solution.save(tmp_path / "solution.json"), late_result())
    assert (loaded.cost, loaded.peak, loaded.status) == (solution.cost, solution.peak, Status.OPTIMAL)


def test_a_search_that_runs_out_of_time_has_a_bound_and_claims_no_more():
    solution = solve(linear(6), 4, STRATEGY, time_limit=1)
    assert solution.status in (Status.FEASIBLE, Status.UNKNOWN)
    assert solution.lower_bound is not None
    assert linear(6).total_cost <= solution.lower_bound <= 18  # the optimum


def test_a_graph_that_is_too_large_is_refused_with_its_size_and_a_way_out():
    layers = LARGEST_UNPARTITIONED // 2 + 1
    with pytest.raises(
        SolverError, match=f"'linear{layers}' has {2 * layers + 1} operations.*at most 25.*use 'optimal'"
    ):
        solve(linear(layers), 5, STRATEGY)


def test_its_relaxation_shows_how_little_of_each_operation_it_computes():
    relaxed = Relaxation.of(linear(8), 4, STRATEGY)
    assert relaxed.bound == pytest.approx(1.2061068702290072)
    assert relaxed.R is not None
    assert relaxed.R.sum() == pytest.approx(relaxed.bound)
    stays = Relaxation.of(late_result(), 9, STRATEGY)
    assert stays.S is not None
    assert 0 <= stays.S.min() <= stays.S.max() <= 1
    assert not stays.S[0].any()
