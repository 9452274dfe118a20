"""Best known schedules at once, and what solves, improvements and the sweep of the background add to them."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer import solvers
from remat_explorer.errors import SolverError
from remat_explorer.explorer.controllers import background_searches, loading, solving
from remat_explorer.explorer.controllers.screen import add_to_frontier
from remat_explorer.explorer.controls import Controls
from remat_explorer.explorer.curve import CurveView, sent_curve
from remat_explorer.explorer.memory_view import MemoryView
from remat_explorer.explorer.model_view import ModelView
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.panels.runs_twice import RunsTwiceView
from remat_explorer.explorer.plots_view import PlotsView
from remat_explorer.explorer.static_view import static_html
from remat_explorer.explorer.story import chips, format_more, tell
from remat_explorer.figures import journeys_of
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import Progress, SolveJob, extend_frontier
from tests.explorer.driven import (
    captured,
    driver_of,
    explorer_of,
    html,
    message,
    plain,
    settled,
    solved,
    until,
    view_of,
)

CHAIN = rx.linear(8)


@pytest.fixture(autouse=True)
def no_first_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a graph does not look for a good schedule already."""
    monkeypatch.setattr(loading, "FIRST_SECONDS", 0.0)


@pytest.fixture(scope="module")
def points() -> list[rx.Solution]:
    """Optima of the chain for every budget, and answers of other methods."""
    others = [rx.solve(CHAIN, budget, name) for budget in (6, 8) for name in ("chen-sqrt-n", "checkpoint-last")]
    return [*(rx.solve(CHAIN, budget) for budget in range(3, 11)), *others]


@pytest.fixture
def swept(points: list[rx.Solution]) -> Any:
    driver = driver_of(CHAIN)
    add_to_frontier(driver.state, CHAIN, points)
    return driver


def test_setting_the_budget_shows_the_best_known_before_the_statement_ends(swept: Any) -> None:
    for budget, cost in ((10, 17), (6, 21), (4, 26)):
        swept.state.budget = budget
        assert (swept.solution.cost, swept.solution.budget) == (cost, budget)
        assert swept.state.schedule is swept.solution.schedule
    assert swept.state.busy == ""
    assert swept.state.status == "Best known within 4 B: overhead +52.9 %, proven best"
    shown = swept.state.schedule
    swept.state.budget = 2
    assert swept.state.schedule is shown
    assert swept.state.tone == "warning"
    assert "alone needs 3 B" in swept.state.status
    assert "The screen shows the schedule from before." in swept.state.status


def test_dragging_shows_schedules_without_choosing_their_budget(swept: Any) -> None:
    view = CurveView(swept.state, swept.preview)
    swept.state.budget = 10
    before = swept.solution
    swept.preview(10)
    assert swept.solution is before
    view.slider.dragged = view.slider.moving = 4.0
    assert (swept.solution.cost, swept.state.budget, swept.state.shown_budget) == (26, 10, 4)
    assert (view.field.value, view.slider.answered) == ("4 B", 4.0)
    view.slider.dragged = 0.0  # let go at 10, which no position told the kernel
    assert (swept.state.schedule, swept.solution.cost) == (before.schedule, before.cost)
    assert (swept.state.shown_budget, view.field.value) == (10, "10 B")
    view.slider.moving = 4.0
    view.slider.value = 4.0  # released
    assert (swept.state.budget, swept.solution.cost) == (4, 26)
    view = CurveView(swept.state, [].remove)
    with pytest.raises(ValueError, match="not in list"):
        view.slider.moving = 5.0
    assert view.slider.answered == 5.0  # the browser gets an answer even if showing it fails


def test_pictures_draw_the_budget_under_the_thumb(swept: Any) -> None:
    swept.state.budget = 10
    view, plots = CurveView(swept.state, swept.preview), PlotsView(swept.state)
    pictures = {"memory": MemoryView(swept.state).widget, "model": ModelView(swept.state).widget, "plots": None}
    for picture, widget in pictures.items():
        swept.state.picture = picture
        for budget in (4, 6):
            view.slider.moving = float(budget)
            drawn = widget.budget if widget else next(t for t in plots.figure.data if t.name == "budget").y[0]
            assert drawn == budget
        assert swept.state.budget == 10


def test_the_slider_has_the_points_of_the_curve_and_the_least_that_any_solve_has_found(swept: Any) -> None:
    state = swept.state
    state.smallest = dataclasses.replace(state.smallest, known_feasible=6)
    slider = CurveView(state, swept.preview).slider
    assert [peak for peak, _ in slider.curve["best"]] == [point.peak for point in state.frontier.nondominated()]
    assert len(slider.curve["best"]) > 3
    assert slider.known == 3
    state.frontier = None
    assert CurveView(state, swept.preview).slider.known == 6


def test_a_solution_that_was_chosen_or_asked_for_stays_though_a_cheaper_one_is_known(swept: Any) -> None:
    frontier = swept.state.frontier
    chosen = next(s for s in frontier.points if s.cost > frontier.best(s.budget).cost)
    swept.choose(chosen)
    assert swept.solution is chosen
    assert swept.state.budget == chosen.budget
    swept.state.budget, swept.state.strategy = 8, "checkpoint-last"
    assert solved(swept).solution.strategy == "checkpoint-last"
    assert swept.solution.cost > frontier.best(8).cost


def test_a_budget_that_was_set_is_improved_until_it_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_searches, "_MAX_IMPROVE_SECONDS", 600.0)
    driver = driver_of(captured("mobilenet_v1"))
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


def test_improving_ends_when_it_is_cancelled_and_gives_way_to_what_is_asked_for() -> None:
    driver = driver_of(captured("mobilenet_v1"), improve=True)
    state = driver.state
    state.set_budget("58%")
    assert until(lambda: state.improving)
    driver.cancel()
    assert until(lambda: not state.improving)
    assert driver.solution.peak <= state.budget
    state.set_budget("59%")
    assert until(lambda: state.improving)
    driver.solve()
    assert until(lambda: state.busy == "solving" and not state.improving)
    driver.cancel()
    assert not settled(driver).state.improving
    before, state.strategy = driver._improver._thread, "griewank"  # of which nothing is improved
    state.set_budget("57%")
    assert driver._improver._thread is before


def test_what_a_solve_finds_joins_the_curve() -> None:
    driver = driver_of(CHAIN, budget=10)
    driver.state.budget = 6
    assert driver.solution.cost > 21  # only the smallest and the largest budget have been looked at
    solved(driver)
    assert driver.state.frontier.best(6).cost == 21
    driver.state.budget = 10
    driver.state.budget = 7
    assert (driver.solution.cost, driver.solution.status) == (21, Status.FEASIBLE)


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
    def prepare() -> None: ...

    def poll(self) -> list[Progress]:
        self.done = self.done or not self.found
        return [] if self.done else [Progress(0.1, "searching", self.found.pop(0).schedule)]

    def cancel(self) -> None:
        self.done = True

    def solution(self) -> rx.Solution:
        return self.answer


@pytest.mark.parametrize("cancels", [False, True])
def test_a_solve_never_shows_a_dearer_schedule_than_the_screen_did(swept: Any, cancels: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(solvers, "SolveJob", DearJob)
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


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    begun: list[Any] = []

    class Heard(SolveJob):
        @classmethod
        def start(cls, *given: Any, **named: Any) -> Any:
            begun.append(super().start(*given, **named))
            return begun[-1]

    monkeypatch.setattr(solvers, "SolveJob", Heard)
    return begun


def asked_for_long() -> Any:
    """A driver that solves the program of the paper, which takes minutes."""
    driver = driver_of(captured("mobilenet_v1"), strategy="checkmate-ilp", time_limit=600.0)
    driver.state.set_budget("75%")
    driver.solve()
    return driver


def test_a_solve_whose_process_is_killed_says_so_and_the_next_one_works(jobs: list[Any]) -> None:
    driver = asked_for_long()
    shown = driver.state.schedule
    assert until(lambda: jobs and jobs[0]._worker is not None)
    os.kill(jobs[0]._worker.process.pid, signal.SIGKILL)
    settled(driver)
    assert "SIGKILL" in driver.state.status
    assert driver.state.tone in ("error", "warning")
    assert driver.state.schedule.cost <= shown.cost  # the search of the background may have found a better one
    driver.state.strategy = "checkpoint-last"
    assert solved(driver).solution.strategy == "checkpoint-last"


def test_two_explorers_that_solve_at_once_know_nothing_of_each_other(jobs: list[Any]) -> None:
    long, other = asked_for_long(), driver_of(CHAIN)
    assert until(lambda: "solving problem (9)" in long.state.status)
    for budget, cost in ((4, 26.0), (6, 21.0)):
        other.state.budget = budget
        solved(other)
        assert (other.solution.cost, other.solution.graph.name) == (cost, "linear8")
        assert other.state.status.startswith("Proven best")
        assert {point.graph.name for point in other.state.frontier.solutions} == {"linear8"}
    other.solve()
    other.cancel()
    status = settled(other).state.status
    assert (long.state.busy, jobs[0].done) == ("solving", False)
    assert long.state.schedule.graph is long.state.graph
    long.cancel()
    settled(long)
    assert other.state.status == status != long.state.status


def test_a_solve_leaves_its_moments_and_the_next_one_begins_anew() -> None:
    driver = solved(driver_of(rx.linear(16), "60%", strategy="checkmate-approx-search"))
    history = driver.state.history
    assert history
    assert [m.seconds for m in history] == sorted(m.seconds for m in history)
    costs = [m.cost for m in history if m.cost is not None]
    assert costs == sorted(costs, reverse=True)
    driver.state.strategy = "checkpoint-last"
    solved(driver)
    assert driver.state.history != history
    assert len(driver.state.history) <= 2


def test_the_curve_of_a_chain_is_filled_with_optima_and_with_other_methods_once_asked(monkeypatch: Any) -> None:
    few = ("optimal", "checkpoint-all", "griewank", "chen-sqrt-n", "rotor", "checkpoint-last")
    known = background_searches.STRATEGIES
    monkeypatch.setattr(background_searches, "STRATEGIES", {name: known[name] for name in few})
    driver = driver_of(CHAIN, sweep=True)
    state = driver.state
    assert driver.wait_for_sweep(120)
    assert state.sweeping is None
    for budget in (4, 5, 6, 7, 10):
        assert state.frontier.best(budget).cost == rx.solve(CHAIN, budget).cost
    assert {"optimal", "checkpoint-all", "griewank", "chen-sqrt-n"} <= set(state.frontier.strategies)
    assert "rotor" not in state.frontier.strategies
    state.methods = True
    assert driver.wait_for_sweep(120)
    assert {"rotor", "checkpoint-last"} <= {s.strategy for s in state.frontier.points}


def test_a_sweep_is_no_work_gives_way_to_a_solve_and_goes_on_afterwards() -> None:
    driver = driver_of(captured("vgg16"), sweep=True, strategy="checkmate-ilp", time_limit=600)
    state, heard = driver.state, []
    state.observe(lambda change: heard.append(change["new"]), "busy")
    assert until(lambda: state.sweeping is not None)
    settled(driver)
    assert until(lambda: len(state.frontier.points) > 8)
    assert (state.busy, heard) == ("", [])
    driver.solve()
    assert until(lambda: state.busy == "solving" and state.sweeping is None)
    assert not driver.wait_for_sweep(0.1)
    count = len(state.frontier.points)
    driver.cancel()
    settled(driver)
    assert until(lambda: len(state.frontier.points) > count)
    state.sweep = False
    assert driver.wait_for_sweep(60)


def test_another_model_ends_the_sweep_and_forgets_its_curve() -> None:
    driver = driver_of(captured("vgg16"), sweep=True, measured_costs=False, batch=64)
    assert until(lambda: driver.state.sweeping is not None)
    driver.state.model = "mlp"
    settled(driver).state.sweep = False
    assert driver.wait_for_sweep(120)
    graph = driver.state.graph
    assert graph is not captured("vgg16")
    assert all(point.graph is graph for point in driver.state.frontier.points)


def test_a_sweep_that_fails_is_said_where_nothing_else_is_going_on(monkeypatch: Any) -> None:
    def fail(*arguments: Any, **settings: Any) -> Any:
        raise SolverError("no worker could be started")

    monkeypatch.setattr(background_searches, "Sweep", fail)
    driver = driver_of(CHAIN, sweep=True)
    assert driver.wait_for_sweep(60)
    assert driver.state.status == "The trade-off curve is incomplete: no worker could be started"
    assert solved(driver).solution.status is Status.OPTIMAL


def test_where_values_may_be_sent_the_best_plan_at_the_bandwidth_of_now_is_shown_and_told() -> None:
    explorer = explorer_of(rx.linear(8), budget=4, transfers="1 B/s", time_limit=2)
    state = explorer.state
    controls = view_of(explorer, Controls)
    assert "travel" not in tell(state).sentence  # nothing is known of that yet
    solved(explorer)
    found = explorer.solution
    assert state.plan is None
    assert found.plan.sent_bytes > 0
    told = f"it costs {'no' if found.overhead == 1 else format_more(found.overhead)} more:"
    assert told in tell(state).sentence
    assert "to the host at 1 B a unit of cost" in tell(state).sentence
    assert ("times are predicted, not measured", "plain") in chips(state)
    assert controls.bandwidth.layout.display is None
    costs = [found.cost]
    for rate in (0.5, 0.25, 0.1):  # what was found stays legal, and takes longer
        state.transfers = rx.Transfers(rate, rate)
        shown = explorer.solution
        costs.append(shown.cost)
        assert (shown.lower_bound or 17.0) <= shown.cost
    assert costs == sorted(costs)
    assert state.sending is None  # computing again is no slower, and was known
    state.transfers = "4 B/s"
    assert explorer.solution.cost <= costs[0]
    assert explorer.solution.lower_bound == 17.0  # what was proven holds for less bandwidth only
    drawn = sent_curve(state)
    assert drawn["sent"][0][0] <= 4
    assert len(drawn["others"]) == 1
    state.budget = 3
    assert state.sending is None  # no plan is known that fits
    state.budget, state.transfers = 4, None
    assert rx.Plan.of(state.schedule).peak <= 4
    assert controls.bandwidth.layout.display == "none"
    assert sent_curve(state) == {}


def test_a_search_that_ends_worse_than_what_is_known_shows_what_is_known(monkeypatch: Any) -> None:
    driver = driver_of(CHAIN, budget=4, transfers="0.01 B/s", time_limit=0.0)
    state, transfers = driver.state, rx.Transfers(0.01, 0.01)
    known, worse = rx.solve(CHAIN, 4), rx.solve(CHAIN, 4, "offload-only", transfers=transfers)
    assert known.cost is not None
    assert worse.cost is not None
    assert worse.cost > known.cost

    def find(known: Any, *asked: Any, **settings: Any) -> Any:
        assert [one.cost for one in known] == [26.0]  # the search has what the curve knows
        return dataclasses.replace(worse, strategy="offload", status=Status.FEASIBLE, lower_bound=17.0)

    monkeypatch.setattr(solving, "solve_sending_from", find)
    state.frontier = extend_frontier(CHAIN, None, [known])
    solved(driver)
    assert (state.sending, state.schedule.cost) == (None, 26.0)
    assert "nothing is sent: at 0.01 B a unit of cost no faster plan that sends values is known" in state.status


def test_a_plan_that_sends_nothing_is_a_schedule_of_the_curve() -> None:
    driver = driver_of(CHAIN, budget=4, transfers="0.01 B/s", time_limit=2)
    state = solved(driver).state
    assert (state.sending, state.schedule.cost, state.solution.budget) == (None, 26.0, 4)
    assert state.frontier.best(4).cost == 26.0
    assert "nothing is sent: at 0.01 B a unit of cost no" in state.status
    assert "0 B sent" not in state.status
    assert sent_curve(state) == {}
    state.budget = 10  # everything can be kept, which nothing undercuts
    solved(driver)
    assert "no plan that sends values is faster (proven)" in state.status


def test_panels_say_of_a_plan_that_sends_why_each_value_travels_and_what_cannot_be_compared() -> None:
    explorer = explorer_of(rx.linear(8), budget=4, transfers="1 B/s", time_limit=2)
    solved(explorer)
    state, panels = explorer.state, view_of(explorer, Panels)
    journey = journeys_of(explorer.solution.plan)[0]
    explorer.select(value=journey.value, stage=journey.fetched)
    said = plain(html(panels, "explain"))
    assert f"Sent to the host in stage {journey.sent}, back in stage {journey.fetched}" in said
    assert "takes cost 2, while other operations are computed" in said
    assert "its operation takes cost 1" in said
    assert "on the host" in said
    assert "Runs twice or travels" in view_of(explorer, RunsTwiceView).widget.html
    assert "fetch" in html(panels, "plan")
    assert "are on the host (predicted)" in html(panels, "peak")
    explorer.compare("checkpoint-all")
    assert ", predicted" in plain(html(panels, "compare"))
    message(panels, "compare", action="pin")
    assert "not B" in state.status
    assert "predicted peak 4 B" in static_html(state)


def test_a_solve_without_time_answers_with_what_the_curve_knows(swept: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))  # without what other tests have solved
    state = swept.state
    state.frontier = extend_frontier(state.graph, None, [rx.solve(state.graph, 4)])
    state.budget, state.time_limit = 5, 0.0
    solved(swept)
    assert (state.answer.cost, state.answer.status) == (26.0, Status.FEASIBLE)
    assert "no better schedule than one that was known before" in state.status


def test_a_better_answer_replaces_a_worse_one_and_a_worse_one_changes_nothing(monkeypatch: Any) -> None:
    found, smaller = rx.solve(CHAIN, 6), rx.solve(CHAIN, 4)
    worse = rx.Solution(CHAIN, "optimal", Status.FEASIBLE, 6, smaller.schedule, 17.0, 1.0)
    frontier, seen = None, []
    for answer in (worse, found, worse):
        frontier = extend_frontier(CHAIN, frontier, [answer])
        seen.append([(s.cost, s.lower_bound) for s in frontier.points])
    assert seen == [[(26, 17)], [(21, 21)], [(21, 21)]]
    best: Any = frontier and frontier.best(6)
    assert best.schedule is found.schedule
    monkeypatch.setattr(rx.Plan, "from_sequence", None)
    assert best.plan.peak == 6  # it was made before, so that showing it needs no planning
