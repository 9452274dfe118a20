"""The anytime search of `monet` on networks, and the limits that it keeps."""

from __future__ import annotations

import time

import pytest
from synthetic_choices import with_choices

from remat_explorer.graph import Graph
from remat_explorer.solution import Status
from remat_explorer.solvers import SolveJob, checkpoint_all_peak, solve


@pytest.fixture(scope="module")
def graph(data) -> Graph:
    return with_choices(Graph.load(data / "captured" / "unet.json"))


def test_choices_make_schedules_cheaper_than_checkmates(graph, data):
    captured = Graph.load(data / "captured" / "unet.json")
    budget = int(0.6 * checkpoint_all_peak(captured))
    joint = solve(graph, budget, "monet", time_limit=60)
    plain = solve(captured, budget, "optimal", time_limit=10)
    assert joint.cost is not None
    assert joint.gap is not None
    assert plain.lower_bound is not None
    assert joint.cost < plain.lower_bound  # no schedule of default implementations is as cheap
    assert joint.gap < 0.01


def test_a_schedule_comes_before_the_bound_and_both_only_improve(graph):
    reports = []
    budget = int(0.45 * checkpoint_all_peak(graph))
    solve(graph, budget, "monet", time_limit=6, on_progress=reports.append)
    costs = [report.cost for report in reports if report.cost is not None]
    bounds = [report.lower_bound for report in reports if report.lower_bound is not None]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    first_schedule = next(i for i, report in enumerate(reports) if report.cost is not None)
    first_relaxed = next(i for i, report in enumerate(reports) if "moments" in report.doing)
    assert first_schedule < first_relaxed


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
    job = SolveJob.start(graph, budget, "monet", time_limit=6, implementations="exact")
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
