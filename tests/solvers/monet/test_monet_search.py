"""The anytime search of `monet` on networks, and the limits that it keeps."""

from __future__ import annotations

import math
import time

import pytest

from remat_explorer.graph import Graph
from remat_explorer.solvers import SolveJob, Sweep, checkpoint_all_peak, solve, sweep
from remat_explorer.solvers.anytime.monet import JointSearch, improve_monet
from remat_explorer.solvers.base import Answer, Limits, Progress
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.monet.selections import default_selection
from remat_explorer.solvers.search.planner import plan_schedule
from remat_explorer.solvers.solution import Status
from remat_explorer.solvers.sweeps.sweep_points import SweepPoints
from tests.solvers.monet.choice_graphs import MIB, monet_chain, random_graph
from tests.solvers.monet.synthetic_choices import with_choices
from tests.thorough import thorough_but


@pytest.fixture(scope="module")
def graph(data) -> Graph:
    return with_choices(Graph.load(data / "captured" / "unet.json"))


@pytest.mark.parametrize("share", thorough_but([0.7, 0.6], 0.7))
def test_choices_make_schedules_cheaper_than_checkmates(graph, data, share):
    captured = Graph.load(data / "captured" / "unet.json")
    budget = int(share * checkpoint_all_peak(captured))
    plain = solve(captured, budget, "optimal", time_limit=10)
    assert plain.lower_bound is not None
    bound = plain.lower_bound
    heard: list[Progress] = []

    def is_good() -> bool:
        return any(told.cost is not None and told.cost < bound and (told.gap or 0) < 0.01 for told in heard[-1:])

    joint = solve(graph, budget, "monet", time_limit=60, on_progress=heard.append, cancelled=is_good)
    assert joint.cost is not None
    assert joint.gap is not None
    assert joint.cost < bound  # no schedule of default implementations is as cheap
    assert joint.gap < 0.01


def test_a_schedule_comes_before_the_bound_and_both_only_improve(graph):
    reports = []
    budget = int(0.45 * checkpoint_all_peak(graph))
    solve(graph, budget, "monet", time_limit=3, on_progress=reports.append)
    costs = [report.cost for report in reports if report.cost is not None]
    bounds = [report.lower_bound for report in reports if report.lower_bound is not None]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    first_schedule = next(i for i, report in enumerate(reports) if report.cost is not None)
    first_relaxed = next(i for i, report in enumerate(reports) if "moments" in report.doing)
    assert first_schedule < first_relaxed


@pytest.mark.parametrize("share", thorough_but([0.6, 0.45], 0.45))
def test_checkmates_walks_come_first_so_choices_never_cost_more(graph, share):
    budget = int(share * checkpoint_all_peak(graph))
    heard: list[str] = []
    limits = Limits(
        20,
        threads=1,
        report=lambda report: heard.append(report.doing),
        cancelled=lambda: "planning with the implementations of the known schedule" in heard,
    )
    search = JointSearch(graph, budget, limits)
    search.run()
    plain = plan_schedule(Condensed.of(default_selection(graph).graph), budget, 20)
    assert plain is not None
    assert search.incumbent.cost <= plain.cost
    assert heard[0] == "planning with the default implementations"


def test_a_cancelled_search_returns_what_it_has(graph):
    budget = int(0.45 * checkpoint_all_peak(graph))
    found = []
    solution = solve(
        graph,
        budget,
        "monet",
        time_limit=600,
        on_progress=lambda report: found.append(report.cost),
        cancelled=lambda: any(cost is not None for cost in found),
    )
    assert solution.status is Status.FEASIBLE
    assert solution.cost == min(cost for cost in found if cost is not None)


def test_a_search_ends_when_its_time_is_up(graph):
    budget = int(0.4 * checkpoint_all_peak(graph))
    begun = time.monotonic()
    solution = solve(graph, budget, "monet", time_limit=3, threads=2)
    assert solution.lower_bound is not None
    assert time.monotonic() - begun < 60


def test_everything_fits_into_a_large_budget_in_the_cheapest_implementations(graph):
    solution = solve(graph, 4 * checkpoint_all_peak(graph), "monet", time_limit=60)
    assert solution.status is Status.OPTIMAL
    assert solution.schedule is not None
    assert solution.schedule.recomputations == 0
    assert solution.schedule.overhead <= 1 + 1e-9


def test_a_job_solves_it_too(graph):
    budget = int(0.5 * checkpoint_all_peak(graph))
    job = SolveJob.start(graph, budget, "monet", time_limit=3, implementations="exact")
    assert job.wait(300)
    solution = job.solution()
    assert solution.schedule is not None
    inexact = {
        (k, i + 1)
        for k, node in enumerate(graph.operations)
        for i, way in enumerate(node.implementations)
        if way.tolerance
    }
    assert inexact.isdisjoint({(k, code) for _, k, code in solution.schedule.sequence})


def test_a_search_begins_with_what_is_known_and_is_never_worse():
    graph = monet_chain(6, "both")
    known = solve(graph, 3 * MIB, "monet")
    answer = improve_monet(graph, 3 * MIB, Answer(known.schedule, known.lower_bound), Limits(0.0))
    assert (answer.schedule, answer.lower_bound) == (known.schedule, known.lower_bound)


def test_a_sweep_shares_schedules_and_bounds_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    graph = monet_chain(6, "both")
    curves = [sweep(graph, 4, ["monet"], time_limit=10, workers=1, cache=True) for _ in range(2)]
    for frontier in curves:
        costs = [point.cost or math.inf for point in frontier.solutions]
        bounds = [point.lower_bound or 0.0 for point in frontier.solutions]
        assert costs == sorted(costs, reverse=True)
        assert bounds == sorted(bounds, reverse=True)
        assert all(point.status is Status.OPTIMAL for point in frontier.solutions)
    first, second = curves
    assert [point.cost for point in first.solutions] == [point.cost for point in second.solutions]
    run = Sweep(graph, [point.budget for point in first.solutions], ["monet"], time_limit=10, workers=1, cache=True)
    with run:
        list(run)
    assert run.from_cache == len(first.solutions)


def test_a_sweep_never_takes_the_cost_of_default_implementations_for_a_bound():
    """A fast implementation makes schedules that cost less than keeping everything."""
    seeds = [seed for seed in range(20) if "name='fast'" in str(random_graph(seed).operations)]
    graph = random_graph(seeds[0])
    points = SweepPoints(graph)
    points.begin(["monet", "checkpoint-all"], [checkpoint_all_peak(graph), 10**6], None)
    (cheapest,) = {point.cost for point in [solve(graph, 10**6, "monet")]}
    assert cheapest is not None
    assert cheapest < graph.total_cost
    found = points.frontier(False, 0.0)
    assert all((point.lower_bound or 0.0) <= cheapest for point in found.solutions)
    assert all(point.status is not Status.OPTIMAL for point in found.solutions)


def test_a_sweep_spaces_budgets_from_the_least_that_choices_are_known_to_fit_into():
    graph = monet_chain(6, "both")
    frontier = sweep(graph, 3, ["monet", "monet-paper"], time_limit=10, workers=1)
    points = {
        name: [point for point in frontier.solutions if point.strategy == name] for name in ("monet", "monet-paper")
    }
    assert min(point.budget for point in points["monet"]) == 3 * MIB
    assert all(point.status is Status.OPTIMAL for point in points["monet"])
    for joint, restricted in zip(points["monet"], points["monet-paper"], strict=True):
        if joint.cost is not None and restricted.cost is not None:
            assert joint.cost <= restricted.cost
