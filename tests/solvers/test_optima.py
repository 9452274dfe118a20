"""The exact strategies, every bound and every account of memory against reference optima and exhaustive search."""

import math
from typing import Any

import numpy as np
import pytest

from remat_explorer.checker import check_schedule, replay
from remat_explorer.figures.memory_map import holdings
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import checkpoint_all_peak, minimum_budget, relax, solve
from remat_explorer.solvers.bounds.lazy_rows import LivenessModel, refuse
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solver_interface import Limits, Progress
from tests.solvers.drawn_graphs import drawn, loose_graphs, problems, residual_graphs, training_graphs
from tests.solvers.exhaustive import frontier_optimum, unpartitioned_optimum
from tests.solvers.helpers import present
from tests.thorough import thorough_but


def test_reference_chains_are_solved_to_their_optimum(reference):
    for entry in reference("optimal_linear.json"):
        chain = linear(entry["n"] // 2)
        # longer chains at small budgets take problem (9) minutes
        for strategy in ("optimal", "checkmate-ilp") if entry["n"] <= 9 else ("optimal",):
            solution = solve(chain, entry["budget"], strategy)
            assert (solution.status, solution.cost) == (Status.OPTIMAL, entry["optimum"]), (entry["graph"], strategy)
            assert solution.lower_bound == entry["optimum"]
            assert check_schedule(present(solution.schedule)).U_peak <= entry["budget"]


def test_the_relaxation_of_problem_9_gives_the_reference_bounds_and_that_of_liveness_none_below(reference, small_graph):
    for entry in reference("optimal_linear.json"):
        bound = relax(linear((entry["n"] - 1) // 2), entry["budget"])
        assert bound == pytest.approx(entry["lp_bound"], rel=1e-6), (entry["graph"], entry["budget"])
        if entry["graph"] == "linear8":  # that of the other formulation is at least as good
            assert entry["lp_bound"] - 1e-6 <= relax(linear(8), entry["budget"], "optimal") <= entry["optimum"] + 1e-6
    for entry in reference("exact_small_graphs.json"):
        assert relax(small_graph(entry), entry["budget"]) == pytest.approx(entry["lp_bound"], rel=1e-6), entry


@pytest.mark.parametrize("step", thorough_but([4, 1], 4))
def test_global_optima_without_any_stages_are_reached_on_small_graphs(step, reference, small_graph):
    """By `optimal` everywhere, by the others where they are quick, by checkpoint-all where it is the optimum."""
    ran: set[str] = set()
    for i, entry in enumerate(reference("exact_small_graphs.json")):
        graph, budget, optimum = small_graph(entry), entry["budget"], entry["exact_global"]
        runs: list[tuple[str, dict[str, Any]]] = [("optimal", {})]
        if i % step == 0:
            runs += [("checkmate-ilp", {})]
            runs += [("checkmate-ilp", {"splits": 2})] if graph.n <= 9 else []
            runs += [("checkmate-unpartitioned", {})] if graph.n <= 7 and step == 1 else []
            runs += [("checkpoint-all", {})] if checkpoint_all_peak(graph) <= budget else []
        for strategy, options in runs:
            solution = solve(graph, budget, strategy, **options)
            assert (solution.status, solution.cost) == (Status.OPTIMAL, optimum), (entry["graph"], budget, strategy)
            assert solution.lower_bound == optimum
            ran.add(strategy)
    assert ran >= {"optimal", "checkmate-ilp", "checkpoint-all"}


def test_integrality_gaps_with_and_without_stages_are_those_of_the_paper(reference):
    chain = linear(8)
    assert 26 / relax(chain, 4) == pytest.approx(1.1818, abs=1e-4)
    assert 26 / relax(chain, 4, "checkmate-unpartitioned") == pytest.approx(21.557, abs=1e-3)
    for entry in reference("integrality_gap_linear8.json"):
        assert relax(chain, entry["budget"]) == pytest.approx(entry["lp_frontier"])
        unpartitioned = relax(chain, entry["budget"], "checkmate-unpartitioned")
        assert unpartitioned == pytest.approx(entry["lp_unpartitioned"])


@drawn(problems(training_graphs() | residual_graphs()), 60, 300)
def test_optimal_agrees_with_exhaustive_search_and_all_it_says_on_the_way_is_true(problem):
    graph, budget = problem
    optimum = frontier_optimum(graph, budget)
    told = agrees(graph, budget, "optimal", optimum)
    assert all(schedule.is_frontier_advancing for schedule in told)
    for formulation in ("optimal", "checkmate-ilp", "checkmate-unpartitioned"):
        assert at_most(relax(graph, budget, formulation), optimum), formulation


@drawn(problems(training_graphs()), 30, 100)
def test_the_liveness_formulation_alone_agrees_with_exhaustive_search(problem):
    """`optimal` is often done before it gets there."""
    graph, budget = problem
    model = LivenessModel(CondensedGraph.of(graph), budget, Milp())
    assert model.build(Limits())
    outcome = model.milp.solve()
    while outcome.values is not None and refuse(model, outcome.values):
        outcome = model.milp.solve()
    found = math.inf if outcome.objective is None else model.cost(outcome.objective)
    assert math.isclose(found, frontier_optimum(graph, budget), rel_tol=1e-6, abs_tol=1e-6)


@drawn(problems(training_graphs()), 20, 60)
def test_problem_9_agrees_with_exhaustive_search(problem):
    graph, budget = problem
    agrees(graph, budget, "checkmate-ilp", frontier_optimum(graph, budget))


@drawn(problems(training_graphs(most_layers=3)), 20, 60)
def test_split_stages_agree_with_exhaustive_search_and_cost_no_more_than_whole_ones(problem):
    graph, budget = problem
    optimum = frontier_optimum(graph, budget, splits=2)
    agrees(graph, budget, "checkmate-ilp", optimum, splits=2)
    assert at_most(relax(graph, budget, splits=2), min(optimum, relax(graph, budget)))
    assert frontier_optimum(graph, budget, splits=None) <= optimum <= frontier_optimum(graph, budget)


@drawn(problems(loose_graphs() | training_graphs(most_layers=2)), 6, 40)
def test_the_unpartitioned_form_agrees_with_exhaustive_search_and_costs_no_more_than_stages(problem):
    graph, budget = problem
    optimum = unpartitioned_optimum(graph, budget, rows=graph.n)
    agrees(graph, budget, "checkmate-unpartitioned", optimum)
    assert at_most(relax(graph, budget, "checkmate-unpartitioned"), optimum)
    assert optimum <= frontier_optimum(graph, budget)


def agrees(graph: Graph, budget: int, strategy: str, optimum: float, **options: Any) -> list[Schedule]:
    """A strategy proves the optimum, or that there is none, and says only what is true on the way; its schedules."""
    told: list[Progress] = []
    solution = solve(graph, budget, strategy, on_progress=told.append, **options)
    if math.isinf(optimum):
        assert (solution.status, solution.schedule) == (Status.INFEASIBLE, None)
    else:
        assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, optimum, optimum)
        check_schedule(present(solution.schedule), budget)
    for progress in told:
        assert progress.lower_bound is None or at_most(progress.lower_bound, optimum), progress.doing
    schedules = [progress.schedule for progress in told if progress.schedule is not None]
    for schedule in schedules:
        check_schedule(schedule, budget)
    return schedules


def at_most(bound: float, optimum: float) -> bool:
    """Whether a bound is not above the optimum, but for the solvers' tolerance."""
    return bound <= optimum + 1e-6 * (1 + abs(optimum)) if math.isfinite(optimum) else True


def loose_schedule(graph: Graph, seed: int) -> Schedule:
    """Values retained at random, whether they serve anything or not, and the least R that this needs."""
    draw = np.random.default_rng(seed)
    n = graph.n
    possible = np.arange(n)[:, None] > graph.producer[None, :]
    S = possible & ((draw.random((n, len(graph.values))) < 0.4) | graph.persistent)
    R = np.eye(n, dtype=int)
    for t in range(n):
        needed = (S[t + 1] if t + 1 < n else np.zeros_like(S[0])) & ~S[t]
        for k in range(t, -1, -1):
            if k == t or needed[list(graph.outputs(k))].any():
                R[t, k] = 1
                for v in graph.inputs(k):
                    needed[v] |= not S[t, v]
    return Schedule(graph, R, S)


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_peaks_above_U_and_each_replays_to_its_own_prediction(seed, overwriting_graph):
    loose = loose_schedule(overwriting_graph(seed, layers=5), seed)
    found = check_schedule(loose)
    assert replay(found.plan) == (loose.cost, found.plan.timeline.peak)
    assert found.peak <= found.U_peak
    again = check_schedule(loose.compact())
    assert again.peak <= found.peak
    assert again.U_peak <= found.U_peak
    parts = holdings(found.plan)
    assert np.array_equal(parts.total, found.plan.timeline.during[parts.statement])


def test_running_in_place_makes_a_chain_of_updates_as_small_as_one_value():
    """x, x + 1, x + 2, ...: two values at a time without overwriting, one with it."""

    def chain(overwriting: bool) -> Graph:
        values = tuple(Value(f"x{k}", 8) for k in range(5))
        steps = (
            operation(f"x{k}", "forward", [k - 1], [k], 1.0, overwrites=k - 1 if overwriting else None)
            for k in range(1, 5)
        )
        return Graph("chain", values, (operation("x0", "forward", [], [0], 1.0), *steps))

    for overwriting, least in ((False, 16), (True, 8)):
        graph = chain(overwriting)
        assert minimum_budget(graph).lower_bound == checkpoint_all_peak(graph) == least
        for strategy in ("optimal", "checkmate-ilp", "checkpoint-all"):
            assert solve(graph, least, strategy).cost == 5.0
            assert solve(graph, least - 1, strategy).status == Status.INFEASIBLE
