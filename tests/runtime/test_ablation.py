"""Acceptance of the ablation: kinds of implementations on two small nets, solved from one profile, and executed.

`tests/data/ablation` has the two nets of `nets.py`, captured with all kinds and profiled once, in seconds of one CPU
thread: solving from files repeats, while times of another profile would differ. What is executed is captured and
profiled anew; of that, only what does not depend on times is asserted.
"""

from __future__ import annotations

import pytest

import remat_explorer as rx
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.solution import Status
from tests.capture.implementations.nets import NETS
from tests.thorough import thorough_but

SIZES = {"pooled": (96, 16), "residual": (64, 16)}
BUDGETS = ["85%", "65%"]
HALF_A_PERCENT = 0.005


@pytest.fixture(scope="module", params=thorough_but(SIZES, "pooled"))
def found(request, data) -> rx.Ablation:
    graph = Graph.load(data / "ablation" / f"{request.param}.json")
    return rx.ablation(graph, BUDGETS, time_limit=4, threads=1)


def test_all_kinds_together_cost_no_more_than_the_best_kind_alone(found):
    for place, together in enumerate(found.curve("all")):
        alone = [found.curve(kind)[place].cost for kind in found.kinds]
        known = [cost for cost in alone if cost is not None]
        if known:
            assert together.cost is not None
            assert together.cost <= (1 + HALF_A_PERCENT) * min(known)
            assert (together.lower_bound or 0.0) <= together.cost


def test_kinds_are_worth_their_while(found):
    """Together they are cheaper than default implementations, and do with memory that those cannot do with."""
    largest = [found.curve(kinds)[-1] for kinds in ("none", "all")]
    assert largest[0].cost is None or (largest[1].cost or 0.0) < largest[0].cost
    smallest = [found.smallest_budget(kinds) for kinds in ("none", "all")]
    assert smallest[1].known_feasible < smallest[0].lower_bound


@pytest.mark.parametrize("name", SIZES)
def test_something_fits_into_055_of_the_default_peak_with_all_kinds_and_nothing_with_none(name, data):
    graph = Graph.load(data / "ablation" / f"{name}.json")
    heard: list[Schedule | None] = []
    solution = rx.solve(
        graph,
        "55%",
        "monet",
        time_limit=240,
        on_progress=lambda progress: heard.append(progress.schedule),
        cancelled=lambda: any(schedule is not None for schedule in heard),  # the first schedule is enough
    )
    assert solution.schedule is not None
    assert Plan.of(solution.schedule).peak <= 0.55 * checkpoint_all_peak(graph)
    nothing = rx.solve(graph, "55%", "monet", time_limit=240, implementations=[])
    assert nothing.status is Status.INFEASIBLE


@pytest.fixture(scope="module", params=thorough_but(SIZES, "residual"))
def profiled(request):
    model, args = NETS[request.param](*SIZES[request.param])
    graph = rx.profile(rx.capture(model, args, implementations="all"), model, args, repeats=1)
    return model, args, graph


@pytest.mark.parametrize("implementations", ["all", "exact"])
def test_schedules_near_the_smallest_budget_are_executed_as_predicted(profiled, implementations):
    model, args, graph = profiled
    least = rx.minimum_budget(graph, seconds=2, implementations=implementations)
    budget = int(1.02 * least.known_feasible)
    solution = rx.solve(graph, budget, "monet", time_limit=2, implementations=implementations)
    schedule = solution.schedule or least.schedule  # a busy machine may find none in that time
    solution = rx.Solution(graph, "monet", Status.FEASIBLE, budget, schedule, None, 0.0)
    measured = rx.measure(solution, model, args, repeats=1)
    assert abs(measured.error) <= 0.001
    assert measured.eager is not None
    if implementations == "exact":
        assert measured.eager.comparison.equal
    else:
        used = {graph.operations[k].implementations[code - 1] for _, k, code in schedule.sequence}
        assert any(way.kinds for way in used)
        tolerance = sum(way.tolerance for way in used)
        assert measured.eager.comparison.gradient_difference <= max(tolerance, 1e-5)
