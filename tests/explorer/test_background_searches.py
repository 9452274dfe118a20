"""The sweep in the background: it fills the trade-off curve, gives way, goes on, and never counts as work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.errors import SolverError
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work import background_searches
from remat_explorer.explorer.work.screen import add_to_frontier
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.sweeps.frontier import extend_frontier
from tests.explorer.driven import driver_of, settled, until


@pytest.fixture
def vgg16(data: Path) -> rx.Graph:
    return rx.Graph.load(str(data / "captured" / "vgg16.json"))


def test_the_curve_of_a_chain_is_filled_with_optima_and_with_other_methods() -> None:
    driver = driver_of(rx.linear(8), sweep=True)
    assert driver.wait_for_sweep(120)
    frontier = driver.state.frontier
    assert frontier is not None
    assert driver.state.sweeping is None
    assert {"optimal", "checkpoint-all", "griewank", "chen-sqrt-n"} <= {s.strategy for s in frontier.points}
    for budget in (4, 5, 6, 7, 10):
        assert frontier.best(budget).cost == rx.solve(rx.linear(8), budget).cost


def test_other_methods_are_swept_once_a_person_asks_for_them(monkeypatch) -> None:
    few = {name: background_searches.STRATEGIES[name] for name in ("optimal", "rotor", "checkpoint-last")}
    monkeypatch.setattr(background_searches, "STRATEGIES", few)
    driver = driver_of(rx.linear(3), sweep=True)
    assert driver.wait_for_sweep(120)
    assert "rotor" not in driver.state.frontier.strategies
    driver.state.methods = True
    assert driver.wait_for_sweep(120)
    assert {"rotor", "checkpoint-last"} <= {s.strategy for s in driver.state.frontier.points}


def test_a_sweep_is_no_work_that_one_waits_for(vgg16: rx.Graph) -> None:
    driver = driver_of(vgg16, sweep=True)
    heard: list[str] = []
    driver.state.observe(lambda change: heard.append(change["new"]), "busy")
    assert until(lambda: driver.state.sweeping is not None)
    assert driver.wait(5)
    assert driver.state.busy == ""
    assert until(lambda: len(driver.state.frontier.points) > 8)
    assert heard == []
    driver.state.sweep = False
    assert until(lambda: driver.state.sweeping is None)


def test_a_solve_makes_the_sweep_give_way_and_the_sweep_goes_on_afterwards(vgg16: rx.Graph) -> None:
    driver = driver_of(vgg16, sweep=True, strategy="checkmate-ilp", time_limit=600)
    assert until(lambda: driver.state.sweeping is not None)
    driver.solve()
    assert until(lambda: driver.state.busy == "solving" and driver.state.sweeping is None)
    assert not driver.wait_for_sweep(0.1)
    driver.cancel()
    settled(driver)
    assert driver.wait_for_sweep(120)
    assert len(driver.state.frontier.nondominated()) > 5


def test_another_model_ends_the_sweep_and_forgets_its_curve(vgg16: rx.Graph, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.py").write_text(
        "import torch\ndef make_model():\n    return torch.nn.Linear(4, 4), (torch.ones(2, 4),)\n"
    )
    driver = driver_of(vgg16, sweep=True, measured_costs=False)
    assert until(lambda: driver.state.sweeping is not None)
    driver.state.model = "two.py:make_model"
    settled(driver)
    assert driver.wait_for_sweep(120)
    graph = driver.state.graph
    assert graph is not vgg16
    assert all(point.graph is graph for point in driver.state.frontier.points)


def test_a_sweep_that_fails_is_said_where_nothing_else_is_going_on(monkeypatch: Any) -> None:
    def fail(*arguments: Any, **settings: Any) -> Any:
        raise SolverError("no worker could be started")

    monkeypatch.setattr(background_searches, "Sweep", fail)
    driver = driver_of(rx.linear(8), sweep=True)
    assert driver.wait_for_sweep(60)
    assert driver.state.status == "The trade-off curve is incomplete: no worker could be started"
    driver.solve()
    settled(driver)
    assert driver.solution.status is Status.OPTIMAL


def test_a_solution_joins_the_curve_of_its_own_graph_only() -> None:
    chain, other = rx.linear(8), rx.linear(8)
    state: Any = State(graph=chain)
    add_to_frontier(state, other, [rx.solve(other, 4)])
    assert state.frontier is None
    add_to_frontier(state, chain, [rx.solve(chain, 4)])
    extend_frontier: Any = state.frontier  # type checkers remember that it was None
    assert extend_frontier.best(4).cost == 26


def test_a_better_answer_replaces_a_worse_one_and_a_worse_one_changes_nothing(monkeypatch) -> None:
    chain = rx.linear(8)
    found = rx.solve(chain, 6)
    smaller = rx.solve(chain, 4)
    worse = Solution(chain, "optimal", Status.FEASIBLE, 6, smaller.schedule, 17.0, 1.0)
    first: Any = extend_frontier(chain, None, [worse])
    second = extend_frontier(chain, first, [found])
    third: Any = extend_frontier(chain, second, [worse])
    assert [(s.cost, s.lower_bound) for s in first.points] == [(26, 17)]
    assert [(s.cost, s.lower_bound) for s in second.points] == [(21, 21)]
    assert [(s.cost, s.lower_bound) for s in third.points] == [(21, 21)]
    assert third.best(6).schedule is found.schedule
    monkeypatch.setattr(rx.Plan, "from_sequence", None)
    assert third.best(6).plan.peak == 6  # it was made before, so that showing it needs no planning
