"""The bounds of `optimal`: cover rows, few moments, the liveness formulation, its refinement, and the reversed path."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak, minimum_budget, solve
from remat_explorer.solvers.bounds.few_moments import few_moments_bound, integral_moments_bound
from remat_explorer.solvers.bounds.lazy_rows import LivenessModel, violated_cuts
from remat_explorer.solvers.bounds.merged_stages import MemoryRow, Stages, violated_cover
from remat_explorer.solvers.bounds.stage_refinement import StageRefinement
from remat_explorer.solvers.chain_reversal import reversal_bound as bound
from remat_explorer.solvers.chain_reversal.reversal_bound import reversal_bound
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.linear_expression import ONE, LinearExpression
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solver_interface import Limits
from tests.solvers.drawn_graphs import DRAWN, chains, problems, residual_graphs, training_graphs
from tests.solvers.exhaustive import frontier_optimum
from tests.solvers.helpers import present, simple_graph
from tests.thorough import thorough, thorough_but

SIZES = st.lists(st.integers(1, 12), min_size=2, max_size=7)
TENTHS = st.integers(0, 10)


def row_of(sizes: list[int], room: int, complemented: int) -> MemoryRow:
    """x = column, or 1 - column where the bit of the term is set."""
    terms = [LinearExpression.of(i) for i in range(len(sizes))]
    terms = [ONE - term if complemented >> i & 1 else term for i, term in enumerate(terms)]
    return MemoryRow.of(room, list(zip(sizes, terms, strict=True)))


@given(SIZES, st.integers(0, 40), st.integers(0, 127), st.lists(TENTHS, min_size=7, max_size=7))
def test_a_cover_holds_at_every_integral_point_that_fits(sizes, room, complemented, tenths):
    row = row_of(sizes, room, complemented)
    point = np.array(tenths[: len(sizes)]) / 10
    cover = violated_cover(row, point)
    if cover is None:
        reject()
    terms, coefficients = list(cover.terms), np.array(cover.coefficients)
    assert coefficients @ row.presence(point)[terms] > cover.right + 0.02  # the least violation
    for x in product((0.0, 1.0), repeat=len(sizes)):
        if np.dot(sizes, x) <= room:
            assert coefficients @ np.array(x)[terms] <= cover.right


def test_the_bounds_of_few_moments_are_never_above_the_optimum_and_mostly_equal_to_it(random_graph, overwriting_graph):
    equal = 0
    for seed in range(8):
        for make in (random_graph, overwriting_graph):
            graph = make(seed, layers=3)
            condensed = CondensedGraph.of(graph)
            low, high = int(condensed.operation_bytes.max()), checkpoint_all_peak(graph)
            budget = low + (high - low) * (1 + seed % 7) // 8
            optimum = frontier_optimum(graph, budget)
            relaxed = few_moments_bound(condensed, budget, Limits())
            integral = integral_moments_bound(condensed, budget, relaxed, Limits())
            assert graph.total_cost <= relaxed.bound <= integral.bound + 1e-6 <= optimum + 2e-6
            equal += integral.bound == pytest.approx(optimum)
    assert equal >= 10


def test_few_moments_bound_a_captured_network_at_once(captured):
    graph = captured("unet")
    condensed = CondensedGraph.of(graph)
    low, high = int(condensed.operation_bytes.max()), checkpoint_all_peak(graph)
    relaxed = few_moments_bound(condensed, int(low + 0.2 * (high - low)), Limits())
    assert 1.09 * graph.total_cost < relaxed.bound < 1.1203 * graph.total_cost


def test_a_merged_schedule_satisfies_every_row_and_costs_no_more(random_graph, overwriting_graph):
    for seed in range(10):
        graph = (random_graph, overwriting_graph)[seed % 2](seed, layers=5)
        condensed, schedule = CondensedGraph.of(graph), minimum_budget(graph, seconds=0.3).schedule
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
        assert model.cost(present(outcome.objective)) <= schedule.cost + 1e-6


@pytest.mark.parametrize("seed", thorough_but(range(30), *range(4)))
def test_the_bound_never_exceeds_the_optimum_and_reaches_it(seed, random_graph, overwriting_graph):
    graph = (random_graph, overwriting_graph)[seed % 2](seed, layers=5)
    low, high = minimum_budget(graph).lower_bound, int(checkpoint_all(graph).U.max())
    budget = low + (high - low) * (seed % 5) // 6
    exact = solve(graph, budget, "checkmate-ilp")
    refinement = StageRefinement(CondensedGraph.of(graph), budget, Limits(60), [graph.n // 2])
    incumbent = exact.schedule if seed % 3 else None  # what is excluded by its cost must not cut off the optimum
    optimum = exact.cost if exact.cost is not None else math.inf
    while not refinement.finished and refinement.bound < optimum - 1e-5:
        refinement.advance(incumbent)
        assert refinement.bound <= optimum + 1e-5
    assert refinement.bound == pytest.approx(optimum, abs=1e-4)


def test_cuts_hold_for_every_schedule_and_do_cut(random_graph):
    cut_off = 0
    for seed in range(8):
        graph = random_graph(seed, layers=5)
        condensed = CondensedGraph.of(graph)
        schedule = minimum_budget(graph, seconds=0.3).schedule
        stages = Stages.of(condensed, range(0, graph.n, 2))
        R, S = stages.merge(schedule.R, schedule.S[:, condensed.member])
        assert violated_cuts(stages, R, S) == []
        half = np.where(R == 1, R, 0.5)  # a point at which paths of halves are available from nothing
        half[np.arange(graph.n) > stages.last[:, None]] = 0
        cut_off += len(violated_cuts(stages, half * 0.4 + R * 0.6, S * 0.1))
    assert cut_off > 0


@pytest.mark.parametrize(("layers", "size", "budget"), [thorough(200, 97, 73), (60, 97, 23), (60, 7, 12), (60, 7, 0)])
def test_the_unit_of_bytes_does_not_matter(layers, size, budget):
    chain = linear(layers)
    scaled = replace(chain, values=tuple(replace(value, bytes=size * value.bytes) for value in chain.values))
    proven = reversal_bound(CondensedGraph.of(chain), budget)
    assert reversal_bound(CondensedGraph.of(scaled), size * budget) == proven
    assert math.isinf(proven) == (budget == 0)


@pytest.mark.parametrize("graphs", thorough_but([100, 2000], 100))
@pytest.mark.parametrize("work", [bound.WORK, 40.0])
def test_it_is_never_above_an_optimum(monkeypatch, work, graphs):
    monkeypatch.setattr(bound, "WORK", work)  # little of it makes slots large
    above = 0

    @settings(DRAWN, max_examples=graphs)
    @given(problems(residual_graphs()) | problems(residual_graphs() | training_graphs() | chains(5)))
    def is_never_above(problem):
        nonlocal above
        graph, budget = problem
        proven = reversal_bound(CondensedGraph.of(graph), budget)
        above += proven > graph.total_cost
        assert graph.total_cost <= proven <= frontier_optimum(graph, budget, splits=None) + 1e-9

    is_never_above()
    assert above > graphs / 5  # it says more than that every operation runs once


def test_what_is_visited_in_the_order_of_the_forward_pass_need_not_run_again_in_reverse():
    reads = [[], [0], [1], [2], [3], [0], *([4 + i, i] for i in range(1, 5))]
    graph = simple_graph(reads, phases="fffffbbbbb")
    for budget in (3, 4, 5):
        assert reversal_bound(CondensedGraph.of(graph), budget) <= frontier_optimum(graph, budget, splits=None)
