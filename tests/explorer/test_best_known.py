"""The budget answers at once with the best known schedule, and is improved in the background."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.explorer.budget_view import BudgetView
from remat_explorer.explorer.memory_view import MemoryView
from remat_explorer.explorer.model_view import ModelView
from remat_explorer.explorer.plots_view import PlotsView
from remat_explorer.explorer.work import loading, solving
from remat_explorer.explorer.work.screen import add_to_frontier
from remat_explorer.solvers.base import Progress
from remat_explorer.solvers.jobs import solve_job
from remat_explorer.solvers.solution import Status
from remat_explorer.solvers.sweeps.frontier import extend_frontier
from tests.explorer.driven import driver_of, settled, until


@pytest.fixture
def swept() -> Any:
    """A chain whose trade-off curve is known; nothing is improved."""
    driver = driver_of(rx.linear(8))
    chain = driver.state.graph
    methods = [rx.solve(chain, budget, name) for budget in (6, 8) for name in ("chen-sqrt-n", "checkpoint-last")]
    add_to_frontier(driver.state, chain, [*(rx.solve(chain, budget) for budget in range(3, 11)), *methods])
    return driver


@pytest.fixture
def mobilenet(data: Path) -> rx.Graph:
    return rx.Graph.load(str(data / "captured" / "mobilenet_v1.json"))


def test_setting_the_budget_shows_the_best_known_before_the_statement_ends(swept: Any) -> None:
    for budget, cost in ((4, 26), (6, 21), (10, 17)):
        swept.state.budget = budget
        assert swept.solution.cost == cost
        assert swept.state.schedule is swept.solution.schedule
        assert swept.solution.budget == budget
    assert swept.state.busy == ""
    assert not swept.state.improving


def test_the_status_says_how_good_the_best_known_is_proven_to_be(swept: Any) -> None:
    swept.state.budget = 4
    assert swept.state.status == "Best known within 4 B: overhead +52.9 %, optimal (proven)"


def test_below_the_smallest_budget_the_schedule_stays_and_the_status_says_why(swept: Any) -> None:
    swept.state.budget = 4
    shown = swept.state.schedule
    swept.state.budget = 2
    assert swept.state.schedule is shown
    assert swept.state.tone == "warning"
    assert "alone needs 3 B" in swept.state.status
    assert "The screen shows the schedule from before." in swept.state.status


def test_dragging_shows_schedules_without_choosing_their_budget(swept: Any) -> None:
    view = BudgetView(swept.state, swept.preview)
    swept.state.budget = 10
    view.slider.moving = 4.0
    assert swept.solution.cost == 26
    assert swept.state.budget == 10
    assert view.field.value == "4 B"
    assert view.slider.answered == 4.0
    assert swept.state.shown_budget == 4
    view.slider.value = 4.0  # released
    assert swept.state.budget == 4
    assert swept.solution.cost == 26


def test_a_drag_that_ends_where_it_began_shows_what_it_began_with(swept: Any) -> None:
    view = BudgetView(swept.state, swept.preview)
    swept.state.budget = 10
    before = swept.solution
    view.slider.dragged = view.slider.moving = 4.0
    assert swept.state.schedule is not before.schedule
    view.slider.dragged = 0.0  # let go at 10, which no position told the kernel
    assert (swept.state.schedule, swept.solution.cost) == (before.schedule, before.cost)
    assert swept.state.shown_budget == 10
    assert view.field.value == "10 B"


def test_pictures_draw_the_budget_under_the_thumb(swept: Any) -> None:
    swept.state.budget = 10
    view, plots = BudgetView(swept.state, swept.preview), PlotsView(swept.state)
    memory, model = MemoryView(swept.state), ModelView(swept.state)
    for picture, widget in (("memory", memory.widget), ("model", model.widget)):
        swept.state.picture = picture
        for budget in (4, 6):
            view.slider.moving = float(budget)
            assert widget.budget == budget
            assert next(t for t in plots.figure.data if t.name == "budget").y[0] == budget
        assert swept.state.budget == 10


def test_the_browser_gets_an_answer_to_every_position_even_if_showing_it_fails(swept: Any) -> None:
    def fail(budget: int) -> None:
        raise RuntimeError("a view that is broken")

    view = BudgetView(swept.state, fail)
    with pytest.raises(RuntimeError, match="a view that is broken"):
        view.slider.moving = 5.0
    assert view.slider.answered == 5.0


def test_dragging_within_one_point_of_the_curve_keeps_the_solution(swept: Any) -> None:
    swept.state.budget = 10
    shown, schedules = swept.solution, []
    swept.state.observe(lambda change: schedules.append(change["new"]), "schedule")
    swept.preview(10)
    assert swept.solution is shown
    assert schedules == []


def test_ticks_of_the_slider_are_the_points_of_the_curve(swept: Any) -> None:
    view = BudgetView(swept.state, swept.preview)
    assert view.slider.ticks == [point.peak for point in swept.state.frontier.nondominated()]
    assert len(view.slider.ticks) > 3


def test_the_slider_knows_the_least_that_any_solve_has_found(swept: Any) -> None:
    state = swept.state
    assert state.smallest is not None
    state.smallest = dataclasses.replace(state.smallest, known_feasible=6)
    assert BudgetView(state, swept.preview).slider.known == 3
    state.frontier = None
    assert BudgetView(state, swept.preview).slider.known == 6


def test_a_solution_that_was_chosen_stays_when_better_ones_are_known(swept: Any) -> None:
    frontier = swept.state.frontier
    chosen = next(s for s in frontier.points if s.cost > frontier.best(s.budget).cost)
    swept.choose(chosen)
    assert swept.solution is chosen
    assert swept.state.budget == chosen.budget


def test_a_budget_that_was_set_is_improved_until_it_is_proven(mobilenet: rx.Graph, monkeypatch: Any) -> None:
    monkeypatch.setattr(loading, "FIRST_SECONDS", 0.0)
    driver = driver_of(mobilenet)
    before = driver.state.frontier.best("75%")
    driver.state.improve = True
    driver.state.set_budget("75%")
    assert driver.solution.cost == before.cost
    assert driver.state.busy == ""
    assert driver.wait_for_sweep(120)
    assert driver.solution.cost < before.cost
    assert driver.solution.budget == driver.state.budget
    assert driver.state.status.startswith("Best known within")
    assert not driver.state.improving


def test_improving_gives_way_to_what_is_asked_for(mobilenet: rx.Graph, monkeypatch: Any) -> None:
    monkeypatch.setattr(loading, "FIRST_SECONDS", 0.0)
    driver = driver_of(mobilenet)
    driver.state.improve = True
    driver.state.set_budget("58%")
    assert until(lambda: driver.state.improving)
    driver.solve()
    assert until(lambda: driver.state.busy == "solving" and not driver.state.improving)
    driver.cancel()
    settled(driver)
    assert not driver.state.improving


def test_cancel_ends_an_improvement(mobilenet: rx.Graph, monkeypatch: Any) -> None:
    monkeypatch.setattr(loading, "FIRST_SECONDS", 0.0)
    driver = driver_of(mobilenet)
    driver.state.improve = True
    driver.state.set_budget("58%")
    assert until(lambda: driver.state.improving)
    driver.cancel()
    assert until(lambda: not driver.state.improving)
    assert driver.solution.peak <= driver.state.budget


def test_nothing_is_improved_where_another_strategy_is_chosen(swept: Any) -> None:
    swept.state.improve, swept.state.strategy = True, "griewank"
    swept.state.budget = 5
    assert swept._improver._thread is None
    assert swept.solution.cost == rx.solve(rx.linear(8), 5).cost


def test_what_a_solve_finds_joins_the_curve() -> None:
    driver = driver_of(rx.linear(8), budget=10)
    driver.state.budget = 6
    assert driver.solution.cost > 21  # only the smallest and the largest budget have been looked at
    driver.solve()
    settled(driver)
    assert driver.state.frontier.best(6).cost == 21
    driver.state.budget = 10
    driver.state.budget = 7
    assert driver.solution.cost == 21
    assert driver.solution.status is Status.FEASIBLE


class DearJob:
    """A solve that finds a dear schedule, and then ends with one that is hardly better."""

    done = from_cache = was_known = False
    remarks = ()
    found: list[rx.Solution]
    answer: rx.Solution

    @classmethod
    def start(cls, graph: rx.Graph, budget: int, strategy: str, **settings: Any) -> DearJob:
        job = cls()
        job.found = [rx.solve(graph, limit, strategy) for limit in (3, 4) if limit <= budget]
        job.answer = dataclasses.replace(job.found[-1], budget=budget, status=Status.FEASIBLE, lower_bound=None)
        return job

    @staticmethod
    def prepare() -> None:
        """There is no process to start."""

    def poll(self) -> list[Progress]:
        if not self.found:
            self.done = True
            return []
        return [Progress(0.1, "searching", self.found.pop(0).schedule)]

    def cancel(self) -> None:
        self.done = True

    def solution(self) -> rx.Solution:
        return self.answer


@pytest.mark.parametrize("cancels", [False, True])
def test_a_solve_never_shows_a_dearer_schedule_than_the_screen_did(
    swept: Any, cancels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solve_job, "SolveJob", DearJob)
    state, shown = swept.state, []
    state.budget = 6
    state.observe(lambda change: shown.append(change["new"].cost), "schedule")
    cancelled = threading.Event()
    if cancels:
        cancelled.set()
    solving.solve(state, cancelled)
    assert (state.schedule.cost, state.solution.cost) == (21.0, 21.0)
    assert set(shown) <= {21.0}
    assert "the screen shows a cheaper schedule, overhead +23.5 %" in state.status
    assert state.answer.cost > 21.0


def test_a_strategy_that_is_what_it_is_is_shown_though_a_cheaper_schedule_is_known(swept: Any) -> None:
    swept.state.budget, swept.state.strategy = 8, "checkpoint-last"
    swept.solve()
    assert swept.wait(60)
    assert swept.solution.strategy == "checkpoint-last"
    assert swept.solution.cost > swept.state.frontier.best(8).cost


def test_a_solve_without_time_answers_with_what_the_curve_knows(
    swept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))  # without what other tests have solved
    state = swept.state
    state.frontier = extend_frontier(state.graph, None, [rx.solve(state.graph, 4)])
    state.budget, state.time_limit = 5, 0.0
    swept.solve()
    assert swept.wait(60)
    assert (state.answer.cost, state.answer.status) == (26.0, Status.FEASIBLE)
    assert "no better schedule than one that was known before" in state.status


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The jobs of explorers, as they are started."""
    begun: list[Any] = []

    class Heard(solve_job.SolveJob):
        @classmethod
        def start(cls, *given: Any, **named: Any) -> Any:
            begun.append(super().start(*given, **named))
            return begun[-1]

    monkeypatch.setattr(solve_job, "SolveJob", Heard)
    return begun


def asked_for_long(graph: rx.Graph, budget: str) -> Any:
    """A driver that solves the program of the paper, which takes minutes."""
    driver = driver_of(graph)
    driver.state.strategy, driver.state.time_limit = "checkmate-ilp", 600.0
    driver.state.set_budget(budget)
    driver.solve()
    return driver


def test_a_solve_whose_process_is_killed_says_so_and_the_next_one_works(mobilenet: rx.Graph, jobs: list[Any]) -> None:
    driver = asked_for_long(mobilenet, "75%")
    shown = driver.state.schedule
    assert until(lambda: jobs and jobs[0]._worker is not None)
    os.kill(jobs[0]._worker.process.pid, signal.SIGKILL)
    settled(driver)
    assert "SIGKILL" in driver.state.status
    assert driver.state.tone in ("error", "warning")
    assert driver.state.schedule.cost <= shown.cost  # the search of the background may have found a better one
    driver.state.strategy = "checkpoint-last"
    settled(driver.solve() or driver)
    assert driver.solution.strategy == "checkpoint-last"


def test_two_explorers_that_solve_at_once_know_nothing_of_each_other(mobilenet: rx.Graph, jobs: list[Any]) -> None:
    long, other = asked_for_long(mobilenet, "75%"), driver_of(rx.linear(8))
    assert until(lambda: "solving problem (9)" in long.state.status)
    before = long.state.schedule.cost
    for budget, cost in ((4, 26.0), (6, 21.0)):
        other.state.budget = budget
        other.solve()
        settled(other)
        assert (other.solution.cost, other.solution.graph.name) == (cost, "linear8")
        assert other.state.status.startswith("Optimal")
    other.solve()
    other.cancel()
    settled(other)
    assert (long.state.busy, long.state.schedule.cost, jobs[0].done) == ("solving", before, False)
    assert {point.graph.name for point in long.state.frontier.solutions} == {mobilenet.name}
    assert {point.graph.name for point in other.state.frontier.solutions} == {"linear8"}
    status = other.state.status
    long.cancel()
    settled(long)
    assert other.state.status == status
    assert long.state.status != status
