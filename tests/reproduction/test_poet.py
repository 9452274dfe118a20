"""POET's program has the optima of another implementation of it, and its plans keep its rules."""

from dataclasses import replace

import pytest

from remat_explorer.errors import ScheduleError
from reproduction.poet import (
    CIFAR_A72,
    CIFAR_M4,
    LINEAR,
    EnergyGraph,
    PagingPlan,
    energy_of,
    moments_bound,
    solve_program,
)


@pytest.mark.parametrize(
    ("budget", "paging", "joules"),
    [
        (7416, True, 0.10467864),
        (3800, True, 0.10472616),
        (3256, True, 0.10491297),
        (3216, True, None),
        (3296, False, 0.10582308),
    ],
)
def test_the_linear_network_takes_what_another_program_found(budget: int, paging: bool, joules: float | None) -> None:
    graph = EnergyGraph.load(LINEAR)
    plan, bound = solve_program(graph, budget, 1.3, paging, 120, lambda: False)
    for count in (2, 4):
        assert moments_bound(graph, budget, count, 20, lambda: False) <= bound * (1 + 1e-9)
    if joules is None:
        assert (plan, bound) == (None, float("inf"))
    else:
        assert plan is not None
        assert energy_of(graph, plan, budget, 1.3)[0] == pytest.approx(joules, abs=5e-9)
        assert bound == pytest.approx(joules, rel=2e-6)
        assert bool(plan.page_in.any()) == (budget == 3256)


def test_a_tight_budget_is_bounded_above_computing_once() -> None:
    graph = EnergyGraph.load(CIFAR_M4)
    assert moments_bound(graph, 500_000, 2, 20, lambda: False) > graph.once * 1.001


def test_resnet18_fits_on_the_a72_so_that_no_paging_can_be_optimal() -> None:
    graph = EnergyGraph.load(CIFAR_A72)
    joules, peak = energy_of(graph, PagingPlan.keeping(graph), 3_000_000, 7.6)
    assert (joules, peak) == (pytest.approx(graph.once), 2453760)
    assert f"{joules:.5f}" == "7.88951"


@pytest.mark.parametrize(
    ("table", "stage", "node", "said"),
    [
        ("S", 20, 3, "whose inputs are not there|begins with what nobody"),
        ("page_in", 9, 3, "pages in what is not on flash"),
        ("page_out", 3, 9, "pages in what is not on flash, or out what is not in memory"),
        ("R", 4, 6, "does not end with node 4"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused(table: str, stage: int, node: int, said: str) -> None:
    graph = EnergyGraph.load(LINEAR)
    plan = PagingPlan.keeping(graph)
    changed = getattr(plan, table).copy()
    changed[stage, node] = 1 - changed[stage, node]
    with pytest.raises(ScheduleError, match=said):
        energy_of(graph, replace(plan, **{table: changed}), 10_000)


def test_a_plan_above_its_budget_or_its_deadline_is_refused() -> None:
    graph = EnergyGraph.load(LINEAR)
    plan = PagingPlan.keeping(graph)
    peak = energy_of(graph, plan, 10_000)[1]
    with pytest.raises(ScheduleError, match=f"needs {peak} bytes of {peak - 1}"):
        energy_of(graph, plan, peak - 1)
    assert energy_of(graph, plan, peak, 1.0)[1] == peak
    with pytest.raises(ScheduleError, match="longer than its deadline"):
        energy_of(graph, plan, peak, 0.99)
