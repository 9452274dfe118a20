"""The least memory at a limited cost: against exhaustive search, and on a captured network."""

from __future__ import annotations

import pytest

import remat_explorer as rx
from remat_explorer.checker import check
from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.solvers import checkpoint_all_peak, memory_at_overhead
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.memory_at_overhead.memory_descent import MemoryDescent
from remat_explorer.solvers.memory_at_overhead.memory_search import MemorySearch
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, Tables
from remat_explorer.solvers.monet.relaxation_with_choices import LeastMemory
from remat_explorer.solvers.monet.selections import default_selection
from tests.solvers.monet.choice_graphs import best_cost, normalized_chain, random_graph
from tests.solvers.monet.synthetic_choices import with_choices
from tests.thorough import thorough_but


def least_budget(graph: rx.Graph, limit: float) -> int:
    """The least budget with a schedule within the limit on the cost, by exhaustive search and bisection."""
    low, high = 0, checkpoint_all_peak(graph)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if best_cost(graph, middle) <= limit * (1 + 1e-9) else (middle, high)
    return high


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("overhead", [0.1, 0.4])
def test_it_equals_exhaustive_search(seed, overhead):
    graph = random_graph(seed)
    found = memory_at_overhead(graph, overhead, threads=1)
    assert found.lower_bound == found.peak == least_budget(graph, (1 + overhead) * graph.total_cost)
    assert found.schedule.cost <= (1 + overhead) * graph.total_cost * (1 + 1e-9)


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(5)))
def test_without_the_joint_program_the_optimum_is_between_bound_and_peak(seed):
    graph = random_graph(seed, layers=4)
    limit = 1.25 * graph.total_cost
    search = MemorySearch(graph, limit, Limits(1.0), exact_up_to=0)
    search.run()
    assert search.bound <= least_budget(graph, limit) <= search.peak <= checkpoint_all_peak(graph)
    assert check(graph, search.best.R, search.best.S, search.peak).cost <= limit * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_no_bound_of_the_relaxation_is_above_the_optimum(seed):
    graph = random_graph(seed)
    limit, peak = 1.2 * graph.total_cost, checkpoint_all_peak(graph)
    relaxation = LeastMemory(Tables(CondensedChoices.of(graph)), limit, peak)
    fractional = relaxation.improve(Limits(), integral=False).bound
    integral = relaxation.improve(Limits(), integral=True).bound
    assert 0 < fractional <= integral <= least_budget(graph, limit) + 1e-6


def test_what_the_relaxation_would_choose_within_a_budget_leads_to_the_optimum():
    graph = normalized_chain(5)
    limit = 1.06 * graph.total_cost
    exact = MemorySearch(graph, limit, Limits(60, threads=1))
    exact.run()
    assert exact.bound == exact.peak
    limits = Limits(60, threads=1, cancelled=lambda: search.peak <= exact.peak)
    search = MemorySearch(graph, limit, limits, exact_up_to=0)
    search.run()
    assert search.bound <= exact.peak == search.peak
    assert search.peak < memory_at_overhead(graph, 0.06, "optimal", threads=1).peak


def test_plain_checkmate_runs_default_implementations():
    graph = random_graph(3)
    plain, joint = (memory_at_overhead(graph, 0.3, strategy, threads=1) for strategy in ("optimal", "monet"))
    assert plain.schedule.R.max() == 1
    assert plain.peak == least_budget(default_selection(graph).graph, 1.3 * graph.total_cost)
    assert joint.peak <= plain.peak


def test_on_a_captured_network_better_schedules_are_told_and_the_last_is_returned(data):
    graph = with_choices(rx.Graph.load(data / "captured" / "unet.json"))
    told: list[int] = []

    def tell(progress):
        assert progress.schedule.cost <= 1.1 * graph.total_cost * (1 + 1e-9)
        told.append(progress.peak)

    joint = memory_at_overhead(graph, 0.1, "monet", time_limit=5, threads=2, on_progress=tell)
    assert told == sorted(told, reverse=True)
    assert joint.peak == told[-1] < 0.9 * joint.eager_peak
    assert 0 < joint.lower_bound <= joint.peak
    assert joint.ratio == joint.peak / checkpoint_all_peak(graph)
    assert check(graph, joint.schedule.R, joint.schedule.S, joint.peak).cost <= joint.cost_limit * (1 + 1e-9)


@pytest.mark.parametrize("name", ["unet", "mobilenet_v1"])
def test_the_first_thing_tried_is_default_implementations(name, data):
    graph = with_choices(rx.Graph.load(data / "captured" / f"{name}.json"))
    limit = 1.1 * graph.total_cost
    alone = MemoryDescent(default_selection(graph), limit)
    alone.bisect(lambda: False)
    told: list[tuple[str, int]] = []
    begun: list[bool] = []

    def tell(progress):
        told.append((progress.doing, progress.peak))
        begun.append("moments" in progress.doing)

    search = MemorySearch(graph, limit, Limits(20, threads=1, report=tell, cancelled=lambda: any(begun)))
    search.run()
    assert told[0][0] == "planning with the default implementations"
    assert search.peak <= alone.peak
    assert check(graph, search.best.R, search.best.S, search.peak).cost <= limit * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_runs_of_a_schedule_are_tried_with_other_implementations(seed):
    graph = random_graph(seed, layers=4)
    limit = 1.3 * graph.total_cost
    descent = MemoryDescent(default_selection(graph), limit)
    descent.bisect(lambda: False)
    again = MemoryDescent(default_selection(graph), limit)
    lifted = descent.lifted()
    assert lifted is not None
    again.offer(lifted)
    assert again.peak == descent.peak


def test_once_cancelled_it_returns_what_it_has():
    graph = rx.linear(30)
    found = memory_at_overhead(graph, 0.2, cancelled=lambda: True)
    assert found.peak == checkpoint_all_peak(graph)
    assert found.lower_bound < found.peak


def test_another_graph_may_say_what_eager_execution_takes():
    graph, eager = rx.linear(4), rx.linear(8)
    found = memory_at_overhead(graph, 0.0, eager=eager)
    assert found.eager_peak == checkpoint_all_peak(eager)
    assert found.cost_limit == eager.total_cost
    with pytest.raises(QuantityError, match="allow a larger overhead"):
        memory_at_overhead(eager, 0.0, eager=graph)


def test_bad_arguments_are_quoted():
    with pytest.raises(QuantityError, match=r"-0\.1"):
        memory_at_overhead(rx.linear(2), -0.1)
    with pytest.raises(UnknownNameError, match="griewank"):
        memory_at_overhead(rx.linear(2), strategy="griewank")


def test_the_result_says_its_numbers():
    found = memory_at_overhead(rx.linear(8), 0.53)
    assert str(found).startswith("monet: 40.0 % of eager's 10 B at overhead +53.0 %, at least 40.0 % proven")
    document = found.to_document()
    assert document["peak"] == document["lower_bound"] == 4
    assert document["gap"] == 0
