"""One call for every strategy: statuses, budgets, limits, names."""

from __future__ import annotations

import time

import numpy as np
import pytest

from remat_explorer.errors import QuantityError, ScheduleError, SolverError, UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import STRATEGIES, checkpoint_all, checkpoint_all_peak, minimum_budget, relax, solve
from remat_explorer.solvers.base import Answer, Limits, Progress
from remat_explorer.solvers.condensed import largest_operation
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.solve import judge, round_up
from tests.thorough import thorough_but

SHARES = [(name, share) for name in ("vgg16", "unet", "mobilenet_v1") for share in (70, 50)]


@pytest.mark.parametrize(("name", "share"), thorough_but(SHARES, ("vgg16", 50), ("vgg16", 70), ("unet", 50)))
def test_captured_networks_are_scheduled_within_seventy_and_fifty_percent(name, share, captured):
    graph = captured(name)
    solution = solve(graph, f"{share}%", time_limit=2)
    peak = checkpoint_all_peak(graph)
    if name == "vgg16" and share == 50:  # its largest convolution alone needs 69 % of the checkpoint-all peak
        assert solution.status == Status.INFEASIBLE
        assert minimum_budget(graph).lower_bound > solution.budget
        return
    assert solution.peak is not None
    assert solution.cost is not None
    assert solution.lower_bound is not None
    assert solution.peak <= solution.budget <= share * peak / 100
    assert graph.total_cost <= solution.lower_bound <= solution.cost


def test_a_budget_below_the_largest_operation_is_infeasible_at_once_for_every_strategy():
    for strategy in STRATEGIES:
        solution = solve(linear(300), 2, strategy, time_limit=0.5)
        assert (solution.status, solution.schedule, solution.lower_bound) == (Status.INFEASIBLE, None, None)


def test_a_budget_that_fits_every_operation_but_no_schedule_is_proven_infeasible():
    """a and b each come from a value twice their size, and their sum needs both: one must wait beside the other's."""
    graph = Graph(
        "two wells",
        (Value("well a", 2), Value("a", 1), Value("well b", 2), Value("b", 1), Value("sum", 1)),
        (
            operation("well a", "forward", [], [0], 1),
            operation("a", "forward", [0], [1], 1),
            operation("well b", "forward", [], [2], 1),
            operation("b", "forward", [2], [3], 1),
            operation("sum", "forward", [1, 3], [4], 1),
        ),
    )
    found = minimum_budget(graph)
    assert (largest_operation(graph)[1], found.lower_bound, found.known_feasible) == (3, 4, 4)
    for strategy in ("optimal", "checkmate-ilp"):
        assert solve(graph, 3, strategy).status == Status.INFEASIBLE
        assert solve(graph, 4, strategy).status == Status.OPTIMAL


def test_checkpoint_all_is_optimal_where_it_fits_and_infeasible_one_byte_below():
    graph = linear(8)
    assert solve(graph, 10, "checkpoint-all").status == Status.OPTIMAL
    assert solve(graph, 9, "checkpoint-all").status == Status.INFEASIBLE


def test_the_time_limit_is_kept_by_both_formulations_and_both_solvers(captured):
    graph = captured("mobilenet_v1")
    for strategy, solver in (("optimal", "highs"), ("optimal", "cbc"), ("checkmate-ilp", "highs")):
        started = time.monotonic()
        solution = solve(graph, "40%", strategy, time_limit=3, solver=solver)
        assert time.monotonic() - started < 9, (strategy, solver)  # without the limit minutes; the machine may be busy
        assert solution.lower_bound is not None
        assert (solution.schedule is not None) == (strategy == "optimal")


def test_a_solve_without_time_to_build_still_has_the_planners_schedule_and_a_bound(captured):
    graph = captured("mobilenet_v1")
    solution = solve(graph, "40%", time_limit=0.3)
    assert solution.status == Status.FEASIBLE
    assert solution.lower_bound is not None
    assert solution.lower_bound >= graph.total_cost


def test_a_cancelled_solve_returns_what_it_has(captured):
    seen: list[Progress] = []
    solution = solve(
        captured("mobilenet_v1"), "40%", on_progress=seen.append, cancelled=lambda: any(p.schedule for p in seen)
    )
    assert solution.status == Status.FEASIBLE
    assert solution.seconds < 10


def test_progress_brings_schedules_and_bounds_that_only_get_better(captured):
    seen: list[Progress] = []
    solution = solve(captured("unet"), "60%", time_limit=5, on_progress=seen.append)
    costs = [p.schedule.cost for p in seen if p.schedule]
    bounds = [p.lower_bound for p in seen if p.lower_bound is not None]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert costs[-1] == solution.cost


def test_back_ends_print_nothing(capfd):
    for solver in ("highs", "cbc"):
        for strategy in ("optimal", "checkmate-ilp"):
            solve(linear(4), 4, strategy, solver=solver)
        relax(linear(4), 4, solver=solver)
    assert capfd.readouterr().out == ""


def test_unknown_names_list_near_matches():
    with pytest.raises(UnknownNameError, match="did you mean 'optimal'"):
        solve(linear(2), 4, "optimum")
    with pytest.raises(UnknownNameError, match="unknown solver 'hihgs'; did you mean 'highs'"):
        solve(linear(2), 4, solver="hihgs")
    with pytest.raises(UnknownNameError, match="unknown formulation"):
        relax(linear(2), 4, "checkmate")


def test_a_budget_that_cannot_be_read_is_quoted():
    with pytest.raises(QuantityError, match="'a lot'"):
        solve(linear(2), "a lot")


def test_graphs_with_several_implementations_are_refused_by_name():
    ways = (Implementation((), (0,), 2.0), Implementation((), (0,), 1.0, 8, "fast"))
    graph = Graph("choice", (Value("x", 1),), (Operation("conv", "forward", ways),))
    with pytest.raises(SolverError, match="'conv' has 2 implementations"):
        solve(graph, 100)


def test_a_wrong_schedule_never_becomes_a_solution():
    chain = linear(8)
    with pytest.raises(ScheduleError, match="above the budget"):
        judge(chain, 4, "optimal", Answer(checkpoint_all(chain), 17.0), 0.0)


def test_lower_bounds_are_rounded_to_costs_that_exist_and_never_above_the_cost():
    graph = Graph("even", (Value("x", 1),), (operation("x", "forward", [], [0], 6),))
    assert round_up(graph, 6.2) == 12
    assert round_up(graph, 6.0000001) == 6
    solution = judge(graph, 1, "optimal", Answer(checkpoint_all(graph), 6.00001), 0.0)
    assert (solution.lower_bound, solution.status) == (6.0, Status.OPTIMAL)


def test_huge_and_odd_bytes_are_never_exceeded_by_a_byte(random_graph):
    """Budgets of terabytes with odd sizes: the solver's tolerance alone would let thousands of bytes through."""
    for seed in range(12):
        graph = random_graph(seed, layers=4)
        random = np.random.default_rng(seed)
        values = tuple(
            Value(v.name, v.bytes * 10**12 + int(random.integers(0, 99)), v.persistent) for v in graph.values
        )
        large = Graph("large", values, graph.operations)
        low, high = minimum_budget(large).lower_bound, int(checkpoint_all(large).U.max())
        reference = solve(large, (low + high) // 2)
        if reference.peak is not None:
            tight = solve(large, reference.peak - 1)  # one byte less than a peak that is attained
            assert tight.peak is None or tight.peak < reference.peak


def test_solutions_survive_their_file(tmp_path):
    solution = solve(linear(8), 4)
    loaded = Solution.load(solution.save(tmp_path / "solution.json"), linear(8))
    assert (loaded.cost, loaded.status, loaded.lower_bound) == (26.0, Status.OPTIMAL, 26.0)


def test_limits_count_down_and_ask_for_cancellation():
    assert Limits(time_limit=0).over
    assert Limits(cancelled=lambda: True).over
    assert not Limits(time_limit=60).over
