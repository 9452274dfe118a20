"""REVOLVE: its schedules take the fewest steps for their slots, and the bound of that kind holds."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat_explorer.solvers.methods.griewank as binomial_schedule_module
import remat_explorer.solvers.search.local_search as walks_module
from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solvers import solve
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.methods.griewank import (
    binomial_bound,
    binomial_schedule,
    binomial_within,
    fewest_slots,
    forward_steps,
    griewank,
    slot_numbers,
    stored_states,
)
from remat_explorer.solvers.search.planner import first_within
from remat_explorer.solvers.solution import Status
from tests.solvers.drawn_chains import chains
from tests.solvers.drawn_graphs import problems, training_graphs
from tests.solvers.drawn_settings import DRAWN
from tests.solvers.exhaustive import frontier_optimum
from tests.thorough import thorough_but


@cache
def fewest_steps(steps: int, slots: int) -> int:
    """The dynamic program: store state m next, reverse what follows it, then what precedes it."""
    if steps == 1:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    return min(m + fewest_steps(steps - m, slots - 1) + fewest_steps(m, slots) for m in range(1, steps))


def forward_runs(schedule) -> int:
    """Runs of forward operations, first and repeated."""
    return int((schedule.R[:, ~schedule.graph.is_backward] > 0).sum())


def test_the_closed_form_equals_the_reference(reference):
    entries = reference("revolve_counts.json")["revolve"]
    assert len(entries) == 600
    for entry in entries:
        assert forward_steps(entry["steps"], entry["checkpoints"]) == entry["extra_forward_formula"], entry


def test_schedules_of_chains_run_as_many_forward_operations_as_the_reference(reference):
    """l steps: the l - 1 forward operations of the chain, and the loss; the input of the chain is the initial state."""
    entries = [entry for entry in reference("revolve_counts.json")["revolve"] if entry["steps"] <= 24]
    entries += [entry for entry in reference("revolve_counts.json")["revolve"] if entry["checkpoints"] == 5]
    assert len(entries) > 250
    for entry in entries:
        schedule = binomial_schedule(linear(entry["steps"] - 1), entry["checkpoints"])
        assert forward_runs(schedule) == entry["extra_forward_dp"], entry


@DRAWN
@given(st.integers(1, 40), st.integers(1, 12), st.randoms())
def test_whatever_the_sizes_the_choice_of_states_is_an_optimal_one_and_fits_into_the_slots(steps, slots, random):
    stored = stored_states(steps, slots, [random.randrange(9) for _ in range(steps)])
    assert stored.sum(axis=1).max() <= slots
    held, advanced = {0}, 0
    for i in reversed(range(steps)):
        nearest = max(state for state in held if state <= i)
        now = set(map(int, np.flatnonzero(stored[i])))
        assert all(nearest <= state <= i for state in now - held), "what is stored next lies on the way to state i"
        advanced += i - nearest
        held = now
    assert advanced == fewest_steps(steps, slots)


@DRAWN
@given(chains())
def test_no_chain_needs_more_forward_runs_than_the_count_and_every_schedule_passes(graph):
    steps = int((~graph.is_backward).sum()) + 1
    for slots in slot_numbers(graph):
        schedule = binomial_schedule(graph, slots)
        check(graph, schedule.R, schedule.S)
        assert forward_runs(schedule) <= fewest_steps(steps, slots)


@DRAWN
@given(chains())
def test_of_equal_states_bisection_takes_the_most_slots_that_fit(graph):
    equal = linear(int((~graph.is_backward).sum()))
    every = [(Plan.of(found.schedule).peak, found.schedule.cost) for found in griewank(equal)]
    for budget in {peak for peak, _ in every}:
        found = binomial_within(equal, budget)
        assert found is not None
        assert found.cost == min(cost for peak, cost in every if peak <= budget)
    assert binomial_within(equal, min(peak for peak, _ in every) - 1) is None


def test_schedules_of_too_many_computations_are_not_made(monkeypatch):
    chain, steps = linear(60), 61
    found = binomial_within(chain, 3)
    assert found is not None
    assert 1_000 < found.recomputations <= forward_steps(steps, 1)
    for module in (binomial_schedule_module, walks_module):
        monkeypatch.setattr(module, "MOST_COMPUTATIONS", 1_000)
    least = fewest_slots(60)
    assert forward_steps(steps, least) <= 1_000 < forward_steps(steps, least - 1)
    assert binomial_within(chain, 3) is None
    condensed = Condensed.of(chain)
    assert first_within(condensed, 3, lambda: False) is None
    assert first_within(condensed, least + 2, lambda: False) is not None


def test_with_as_many_slots_as_operations_nothing_is_recomputed():
    assert [next(griewank(linear(layers))).schedule.recomputations for layers in (1, 2, 9, 60)] == [0, 0, 0, 0]


def test_more_slots_than_states_are_as_good_as_all_of_them():
    assert [found.label for found in griewank(linear(5), slots=99)] == ["5 slots"]


def test_long_chains_try_at_most_forty_numbers_of_slots():
    numbers = slot_numbers(linear(500))
    assert len(numbers) <= 40
    assert (numbers[0], numbers[-1]) == (1, 500)


@pytest.mark.parametrize("slots", [0, -3, 1.5, "two", True, float("nan")])
def test_slots_that_are_no_number_of_states_are_refused(slots):
    with pytest.raises(SolverError, match=r"slots is .*give a whole number of states, at least 1"):
        solve(linear(4), 10, "griewank", slots=slots)


def test_fewer_slots_cost_more_and_need_less():
    solutions = [solve(linear(16), 100, "griewank", slots=slots) for slots in (1, 3, 6, 16)]
    for fewer, more in pairwise(solutions):
        assert fewer.cost is not None
        assert more.cost is not None
        assert fewer.peak is not None
        assert more.peak is not None
        assert fewer.cost > more.cost
        assert fewer.peak <= more.peak


def test_revolve_is_proven_optimal_on_unit_chains_of_up_to_200_layers_at_every_budget():
    for layers in (1, 2, 3, 5, 8, 13, 21, 34, 200):
        chain = linear(layers)
        condensed = Condensed.of(chain)
        budgets = range(3, layers + 4) if layers < 200 else (5, 6, 8, 11, 16, 40, 100, 202)
        for budget in budgets:
            found = binomial_within(chain, budget)
            assert found is not None
            assert found.cost == binomial_bound(condensed, budget), (layers, budget)
        assert math.isinf(binomial_bound(condensed, 2)) == (layers > 1)


@pytest.mark.parametrize("graphs", thorough_but([20, 60], 20))
def test_it_is_never_above_an_optimum_that_computes_each_operation_as_often_as_it_likes(graphs):
    @settings(DRAWN, max_examples=graphs)
    @given(problems(chains(5) | chains(6, sizes=(1, 2))))
    def is_never_above(problem):
        graph, budget = problem
        assert binomial_bound(Condensed.of(graph), budget) <= frontier_optimum(graph, budget, splits=None) + 1e-9

    is_never_above()


@DRAWN
@given(problems(training_graphs()))
def test_of_other_graphs_it_says_what_everything_costs_once_or_is_valid_too(problem):
    graph, budget = problem
    bound = binomial_bound(Condensed.of(graph), budget)
    assert graph.total_cost <= bound <= frontier_optimum(graph, budget, splits=None) + 1e-9


@pytest.mark.parametrize(("layers", "budget", "cost"), [(32, 6, 111), (300, 12, 1141), (1000, 22, 3751)])
def test_long_unit_chains_are_proven(layers, budget, cost):
    solution = solve(linear(layers), budget)
    assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, cost, cost)
