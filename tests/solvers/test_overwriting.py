"""Outputs that take over the storage of a dying input: every strategy and every bound knows it, exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from remat_explorer.checker import check, replay
from remat_explorer.figures.memory_map import holdings
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak, minimum_budget, relax, solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.few_moments import few_moments_bound, integral_moments_bound
from remat_explorer.solvers.bounds.lazy_rows import LivenessModel
from remat_explorer.solvers.bounds.stages import live_memory
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solution import Status
from tests.solvers.exhaustive import frontier_optimum
from tests.thorough import thorough_but


def budget_of(graph: Graph, seed: int) -> int:
    """A budget somewhere between the largest operation and U of keeping everything."""
    low, high = minimum_budget(graph, seconds=0.2).lower_bound, int(checkpoint_all(graph).U.max())
    return low + (high - low) * (seed % 5) // 6


@pytest.mark.parametrize("seed", thorough_but(range(60), *range(20)))
def test_exact_strategies_agree_with_exhaustive_search_and_no_bound_is_above_it(seed, overwriting_graph):
    graph = overwriting_graph(seed, layers=3 + seed % 2)
    budget = budget_of(graph, seed)
    optimum = frontier_optimum(graph, budget)
    for strategy in ("optimal", "checkmate-ilp") if seed % 3 == 0 else ("optimal",):
        solution = solve(graph, budget, strategy)
        if math.isinf(optimum):
            assert solution.status == Status.INFEASIBLE
        else:
            assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, optimum, optimum)
    condensed = Condensed.of(graph)
    relaxed = few_moments_bound(condensed, budget, Limits())
    integral = integral_moments_bound(condensed, budget, relaxed, Limits())
    assert graph.total_cost <= relaxed.bound <= integral.bound + 1e-6 <= optimum + 2e-6
    assert relax(graph, budget) <= optimum + 1e-6
    assert relax(graph, budget, "optimal") <= optimum + 1e-6


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


@pytest.mark.parametrize("seed", range(40))
def test_no_plan_peaks_above_U_and_each_replays_to_its_own_prediction(seed, overwriting_graph):
    loose = loose_schedule(overwriting_graph(seed, layers=5), seed)
    found = check(loose.graph, loose.R, loose.S)
    assert replay(found.plan) == (loose.cost, found.plan.timeline.peak)
    assert found.peak <= found.U_peak
    compact = loose.compact()
    again = check(compact.graph, compact.R, compact.S)
    assert again.peak <= found.peak
    assert again.U_peak <= found.U_peak
    parts = holdings(found.plan)
    assert np.array_equal(parts.total, found.plan.timeline.during[parts.statement])


@pytest.mark.parametrize("seed", range(20))
def test_every_account_of_a_schedules_memory_is_its_U(seed, overwriting_graph):
    """Of live_memory, of the model's rows at its own point, and of the summary, where everything is kept."""
    graph = overwriting_graph(seed, layers=5)
    condensed = Condensed.of(graph)
    assert graph.summary().peak == checkpoint_all_peak(graph)
    for schedule in (checkpoint_all(graph), minimum_budget(graph, 0.2).schedule, loose_schedule(graph, seed).compact()):
        S = schedule.S[:, condensed.member]
        runs = schedule.R > 0
        assert np.array_equal(live_memory(condensed, schedule.R.astype(float), S.astype(float))[runs], schedule.U[runs])
        model = LivenessModel(condensed, 0, Milp())
        assert model.build(Limits())
        for t, k in np.argwhere(runs).tolist():
            model.add_memory_row(t, k)
        point = model.point(schedule.R, S)
        for t, k in np.argwhere(runs).tolist():
            present = sum(size * term.at(point) for size, term in model._memory(t, k))
            assert condensed.base[t] + present == schedule.U[t, k]


def test_random_graphs_are_planned_within_the_budget_and_mostly_down_to_the_bound(overwriting_graph):
    """The bound counts an overwritten input once, so the planner must evict by overwriting to get there."""
    attained = 0
    for seed in range(40):
        graph = overwriting_graph(seed, layers=5)
        found = minimum_budget(graph, seconds=0.5)
        check(graph, found.schedule.R, found.schedule.S, found.known_feasible)
        assert found.lower_bound <= found.known_feasible <= checkpoint_all_peak(graph)
        attained += found.known_feasible == found.lower_bound
        size = sum(graph.values[v].bytes for v in found.values)
        way = graph.operations[found.operation].default
        again = sum(
            graph.values[v].bytes for v in way.outputs if graph.persistent[v]
        )  # a new version, if it ran before
        assert found.needed - (graph.resident_bytes + size + way.workspace) in (0, again)
        assert found.needed <= found.lower_bound
    assert attained >= 30


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
