"""Sweeps: budgets, sharing, arrival, executors, cancelling, lost workers."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.errors import QuantityError, SolverError, UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation, Value
from remat_explorer.instances import linear
from remat_explorer.solvers import Sweep, checkpoint_all_peak, minimum_budget, sweep
from remat_explorer.solvers.jobs.worker_process import Processes
from remat_explorer.solvers.solution import Status
from remat_explorer.solvers.sweeps import sweep_run
from remat_explorer.solvers.sweeps.sweep_run import answer_request

ENOUGH = 60.0  # seconds per point; every search of these tests ends by itself long before


@pytest.fixture
def thread():
    """One thread of this process."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def assert_monotone(frontier):
    for name in frontier.strategies:
        points = [s for s in frontier.solutions if s.strategy == name]
        assert [s.budget for s in points] == sorted({s.budget for s in points})
        costs = [s.cost for s in points if s.cost is not None]
        assert costs == sorted(costs, reverse=True)
        bounds = [s.lower_bound for s in points if s.lower_bound is not None]
        assert bounds == sorted(bounds, reverse=True)
        found = [s.schedule is not None for s in points]
        assert found == sorted(found)  # none has a schedule below one that has none


def test_the_optima_of_the_chains_are_found_and_proven(reference, thread):
    entries = [entry for entry in reference("optimal_linear.json") if entry["graph"] in ("linear4", "linear8")]
    for name, group in itertools.groupby(entries, key=lambda entry: entry["graph"]):
        optima = {entry["budget"]: entry["optimum"] for entry in group}
        frontier = sweep(linear(int(name[6:])), list(optima), executor=thread, time_limit=ENOUGH)
        assert {s.budget: s.cost for s in frontier.solutions} == optima
        assert {s.status for s in frontier.solutions} == {Status.OPTIMAL}


def test_a_sweep_agrees_with_the_optima_of_small_graphs_and_never_bounds_above_them(reference, small_graph, thread):
    for entry in reference("exact_small_graphs.json")[::2]:
        graph = small_graph(entry)
        budgets = [entry["budget"], entry["budget"] + 1, checkpoint_all_peak(graph)]
        frontier = sweep(graph, budgets, executor=thread, time_limit=ENOUGH)
        point = next(s for s in frontier.solutions if s.budget == entry["budget"])
        assert point.cost == point.lower_bound == entry["exact_global"]
        assert_monotone(frontier)


def test_every_point_of_random_graphs_is_checked_and_the_curve_is_monotone(random_graph, thread):
    for seed in range(6):
        graph = random_graph(seed, layers=4)
        frontier = sweep(graph, 6, ["optimal", "checkpoint-all"], thread)
        assert_monotone(frontier)
        for point in frontier.points:
            assert point.schedule is not None
            assert point.peak is not None
            assert check(graph, point.schedule.R, point.schedule.S, point.budget).peak == point.peak <= point.budget
            assert point.lower_bound is not None
            assert graph.total_cost <= point.lower_bound <= point.schedule.cost


def test_a_number_of_budgets_spans_from_the_smallest_schedule_to_keeping_everything(captured, thread):
    graph = captured("unet")
    frontier = sweep(graph, 5, executor=thread)
    budgets = [s.budget for s in frontier.solutions]
    assert budgets[-1] == checkpoint_all_peak(graph)
    assert minimum_budget(graph).lower_bound <= budgets[0] < budgets[-1]
    assert len(budgets) == 5
    assert (np.diff(budgets, 2) > 0).all()  # closer together where the curve is steep
    assert all(s.schedule is not None for s in frontier.solutions)
    last = frontier.solutions[-1]
    assert (last.cost, last.status) == (pytest.approx(graph.total_cost), Status.OPTIMAL)


def test_budgets_may_be_written_in_any_way_order_and_number(thread):
    frontier = sweep(linear(8), ["80%", 4, "6 B", 4.0, "40%"], executor=thread, time_limit=ENOUGH)
    assert [s.budget for s in frontier.solutions] == [4, 6, 8]


def test_one_budget_is_enough(thread):
    assert [s.cost for s in sweep(linear(8), "5 B", executor=thread, time_limit=ENOUGH).solutions] == [22]
    assert [s.budget for s in sweep(linear(8), 1, executor=thread).solutions] == [10]


def test_budgets_below_the_smallest_are_infeasible_and_say_why(thread):
    frontier = sweep(linear(8), [2, 4], executor=thread, time_limit=ENOUGH)
    impossible, possible = frontier.solutions
    assert (impossible.status, impossible.schedule) == (Status.INFEASIBLE, None)
    assert "'v9' alone needs 3 B" in frontier.messages["optimal", 2]
    assert (possible.cost, frontier.messages.get(("optimal", 4))) == (26, None)
    assert "'v9' alone needs 3 B" in str(frontier)


def test_a_strategy_that_cannot_meet_a_budget_leaves_the_others_their_points(thread):
    frontier = sweep(linear(8), [4, 10], ["checkpoint-all", "optimal", "checkpoint-all"], thread, time_limit=ENOUGH)
    assert frontier.strategies == ("checkpoint-all", "optimal")
    statuses = [(s.strategy, s.budget, str(s.status)) for s in frontier.solutions]
    assert statuses == [
        ("checkpoint-all", 4, "infeasible"),
        ("checkpoint-all", 10, "optimal"),
        ("optimal", 4, "optimal"),
        ("optimal", 10, "optimal"),
    ]
    assert "no schedule within 4 B" in frontier.messages["checkpoint-all", 4]
    assert len(frontier.nondominated()) == 2


def test_unknown_names_and_unreadable_budgets_are_refused_before_anything_runs():
    with pytest.raises(UnknownNameError, match="did you mean 'optimal'"):
        sweep(linear(2), 3, ["optimum"])
    with pytest.raises(UnknownNameError, match="did you mean 'highs'"):
        sweep(linear(2), 3, solver="hihgs")
    for budgets in (0, -1, True, [], ["a lot"]):
        with pytest.raises(QuantityError):
            sweep(linear(2), budgets)


def test_graphs_with_several_implementations_are_refused_by_name_or_explained_point_by_point(thread):
    ways = (Implementation((), (0,), 2.0), Implementation((), (0,), 1.0, 8, "fast"))
    graph = Graph("choice", (Value("x", 1),), (Operation("conv", "forward", ways),))
    with pytest.raises(SolverError, match="'conv' has 2 implementations"):
        sweep(graph, 3, executor=thread)
    frontier = sweep(graph, [50, 100], ["checkmate-ilp"], executor=thread)
    assert [str(s.status) for s in frontier.solutions] == ["unknown", "unknown"]
    assert "'conv' has 2 implementations" in frontier.messages["checkmate-ilp", 50]


def test_results_arrive_one_by_one_and_each_arrival_is_better_than_the_one_before(thread):
    seen, progress = [], []
    frontier = sweep(
        linear(8), [4, 5, 6, 10], executor=thread, time_limit=ENOUGH, on_result=seen.append, on_progress=progress.append
    )
    assert seen[0].budget == 10  # keeping everything needs no search
    latest = {}
    for solution in seen:
        before = latest.get(solution.budget)
        if before is not None:
            assert (solution.cost, -solution.lower_bound) < (before.cost, -before.lower_bound) or (
                solution.cost <= before.cost and solution.lower_bound >= before.lower_bound
            )
        latest[solution.budget] = solution
    assert [latest[s.budget].cost for s in frontier.solutions] == [s.cost for s in frontier.solutions]
    assert len(progress) == len(seen)
    assert (progress[-1].done, progress[-1].points) == (4, 4)
    assert progress[-1].widest_gap == 0
    assert [p.done for p in progress] == sorted(p.done for p in progress)


def test_every_budget_has_a_first_answer_before_any_is_searched(captured):
    with Recording(1) as processes:
        run = Sweep(captured("unet"), ["45%", "55%", "65%", "75%"], executor=processes, workers=1)
        with run:
            first = [next(run).budget for _ in range(4)]
            assert len(set(first)) == 4
            assert [json.loads(text)["kind"] for text in processes.requests] == ["plan"]
            list(run)
        kinds = [json.loads(text)["kind"] for text in processes.requests]
    assert kinds == ["plan", "together"]


class Recording(Processes):
    """Processes that note what they are asked."""

    def __init__(self, workers):
        super().__init__(workers)
        self.requests = []

    def submit(self, fn, /, *args, **kwargs):
        if fn is answer_request:
            self.requests.append(args[1])
        return super().submit(fn, *args, **kwargs)


def test_two_exact_strategies_have_the_same_curve(thread):
    frontier = sweep(linear(4), [4, 5], ["checkmate-ilp", "optimal"], thread, time_limit=ENOUGH)
    for a, b in zip(frontier.solutions[:2], frontier.solutions[2:], strict=True):
        assert (a.cost, a.lower_bound, a.status) == (b.cost, b.lower_bound, b.status)


def test_processes_of_its_own_need_no_guarded_script_and_are_gone_afterwards(captured):
    run = Sweep(captured("unet"), 4, workers=2)
    alive = {thread.name for thread in threading.enumerate()}
    with run:
        points = {s.budget: s for s in run}
    assert len(points) == 4
    assert {s.status for s in points.values()} <= {Status.OPTIMAL, Status.FEASIBLE}
    assert {thread.name for thread in threading.enumerate() if thread.is_alive()} <= alive | {"MainThread"}
    assert_monotone(run.frontier())


SCRIPT = """
import multiprocessing, sys
print("begun")
multiprocessing.set_start_method(sys.argv[1])
import remat_explorer as rx
print(rx.solve(rx.linear(8), 4).cost, [s.cost for s in rx.sweep(rx.linear(8), [4, 6], workers=2).solutions])
"""
GUARDED = """
import multiprocessing, sys
import remat_explorer as rx
def swept(budget):
    return rx.solve(rx.linear(8), budget).cost, [s.cost for s in rx.sweep(rx.linear(8), [4, 6], workers=2).solutions]
if __name__ == "__main__":
    print("begun")
    rx.solve(rx.linear(8), 4)
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(*pool.apply(swept, (4,)))
"""


@pytest.mark.parametrize("start", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("script", [SCRIPT, GUARDED], ids=["without a guard", "in a worker"])
def test_a_script_solves_and_sweeps_whatever_starts_its_processes(start, script, tmp_path):
    (tmp_path / "script.py").write_text(script)
    arguments = [sys.executable, "-W", "ignore::DeprecationWarning", str(tmp_path / "script.py"), start]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=240)
    assert (ran.stdout, ran.stderr) == ("begun\n26.0 [26.0, 21.0]\n", "")  # begun once


def test_a_process_pool_of_the_standard_library_serves_as_executor():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        frontier = sweep(linear(8), [4, 6], executor=pool, workers=1, time_limit=ENOUGH)
        assert pool.submit(os.getpid).result() > 0  # it is the caller's to shut down
    assert [s.cost for s in frontier.solutions] == [26, 21]


def test_a_local_dask_cluster_serves_as_executor():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, protocol="inproc"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        frontier = sweep(linear(8), [4, 6, 10], executor=client.get_executor(), workers=1, time_limit=ENOUGH)
    assert [s.cost for s in frontier.solutions] == [26, 21, 17]
    assert {s.status for s in frontier.solutions} == {Status.OPTIMAL}


class Killing(Processes):
    """One process, which is killed a second after it was given problem (9)."""

    def submit(self, fn, /, *args, **kwargs):
        future = super().submit(fn, *args, **kwargs)
        if len(args) == 2 and "checkmate-ilp" in args[1]:
            threading.Timer(1.0, lambda: [os.kill(pid, signal.SIGKILL) for pid in self.pids]).start()
        return future


def test_a_worker_that_dies_costs_only_its_points_and_says_so(captured):
    with Killing(1) as processes:
        frontier = sweep(captured("unet"), ["40%"], ["optimal", "checkmate-ilp"], processes, time_limit=2, workers=1)
        assert processes.submit(os.getpid).result() > 0  # with a new process in place of the one that died
    found, lost = frontier.solutions
    assert found.schedule is not None
    assert (lost.schedule, lost.status, lost.lower_bound) == (None, Status.UNKNOWN, found.lower_bound)
    assert "SIGKILL" in frontier.messages["checkmate-ilp", lost.budget]


class Startled(Processes):
    """Processes, one of which is killed as soon as it is given a task of a kind, or while it loads."""

    kind, killed = "loading", 0

    def submit(self, fn, /, *args, **kwargs):
        future = super().submit(fn, *args, **kwargs)
        given = args[1] if len(args) == 2 else "loading"
        while not self.killed and self.kind in given:  # the thread that starts it may not have begun
            for pid in self.pids[:1]:
                self.killed = pid
                os.kill(pid, signal.SIGKILL)
        return future


@pytest.mark.parametrize("kind", ["loading", '"kind": "plan"', '"kind": "together"'])
def test_a_worker_that_is_killed_is_said_in_words_whatever_it_did(kind, monkeypatch):
    """And costs nothing but time: another one does what it had to do."""
    monkeypatch.setattr(sweep_run, "Processes", Startled)
    monkeypatch.setattr(Startled, "kind", kind)
    with Startled(1) as executor:
        run = Sweep(
            linear(8), [3, 5, 6], executor=None if kind == "loading" else executor, workers=1, time_limit=ENOUGH
        )
        assert list(run)
    frontier = run.frontier()
    assert "SIGKILL" in str(frontier)
    assert [s.cost for s in frontier.solutions] == [45, 22, 21]
    assert {s.status for s in frontier.solutions} == {Status.OPTIMAL}


class Breaking(Executor):
    """An executor whose workers die over every task that has a certain budget in it."""

    def __init__(self, budget: int, error: Exception) -> None:
        self.budget, self.error, self.tasks = budget, error, []

    def submit(self, fn, /, *args, **kwargs) -> Future:
        future: Future = Future()
        assert fn is answer_request
        self.tasks.append(args[1])
        if f"{self.budget}" in args[1].split('"budgets": [')[1].split("]")[0].split(", "):
            future.set_exception(self.error)
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_points_solved_together_are_tried_one_by_one_when_their_worker_died():
    executor = Breaking(5, BrokenExecutor("a process in the pool was terminated abruptly"))
    frontier = sweep(linear(8), [3, 5, 6, 10], executor=executor, workers=1, time_limit=ENOUGH)
    assert [s.cost for s in frontier.solutions] == [45, 45, 21, 17]  # at 5 only what was found for 3
    assert [str(s.status) for s in frontier.solutions] == ["optimal", "feasible", "optimal", "optimal"]
    assert frontier.solutions[1].lower_bound == 21  # proven for 6
    assert list(frontier.messages) == [("optimal", 5)]
    assert "terminated abruptly" in frontier.messages["optimal", 5]


def test_a_point_without_any_schedule_is_unknown_with_the_message_of_its_worker():
    executor = Breaking(4, BrokenExecutor("killed"))
    frontier = sweep(linear(8), [4, 6], executor=executor, workers=1, time_limit=ENOUGH)
    lost, found = frontier.solutions
    assert (lost.status, lost.schedule, lost.lower_bound) == (Status.UNKNOWN, None, found.lower_bound)
    assert frontier.messages["optimal", 4] == "a search within 4 B was lost: BrokenExecutor: killed"
    assert found.status == Status.OPTIMAL


def test_an_executor_that_was_shut_down_loses_every_point_with_a_message():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    frontier = sweep(linear(8), [4, 6, 10], executor=executor)
    assert [str(s.status) for s in frontier.solutions] == ["unknown", "unknown", "optimal"]
    assert "cannot schedule new futures" in frontier.messages["optimal", 4]


def test_what_a_worker_claims_is_checked(monkeypatch, thread):
    """A worker that sends checkpoint-all for every budget, at no cost, is believed nowhere."""
    from remat_explorer.solvers.base import Answer, checkpoint_all
    from remat_explorer.solvers.sweeps import sweep_run

    def lie(graph, request, starts):
        return [Answer(checkpoint_all(graph), 17.0) for _ in request["budgets"]]

    monkeypatch.setattr(sweep_run, "_answers", lie)
    frontier = sweep(linear(8), [4, 6], executor=thread, time_limit=ENOUGH)
    assert [str(s.status) for s in frontier.solutions] == ["unknown", "unknown"]
    assert "above the budget" in frontier.messages["optimal", 4]


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), lambda: None])
def test_a_cancelled_sweep_returns_what_it_has_at_once(make, captured):
    graph, executor, seen = captured("mobilenet_v1"), make(), []
    begun = time.monotonic()
    frontier = sweep(
        graph,
        ["100%", "70%", "40%", "35%"],
        ["optimal"],
        executor,
        time_limit=300,
        workers=2,
        on_result=seen.append,
        cancelled=lambda: bool(seen),
    )
    if executor is not None:
        executor.shutdown()  # its threads notice, too
    assert time.monotonic() - begun < 60
    assert len(frontier.solutions) == 4
    assert frontier.solutions[-1].status == Status.OPTIMAL
    assert any("cancelled" in message for message in frontier.messages.values())


def test_leaving_the_loop_ends_the_workers(captured):
    run = Sweep(captured("mobilenet_v1"), ["100%", "40%"], time_limit=300)
    with run:
        first = next(run)
    assert first.budget == checkpoint_all_peak(run.graph)
    with pytest.raises(StopIteration):
        next(run)
    assert [s.schedule is not None for s in run.frontier().solutions] == [False, True]


def test_a_sweep_can_be_cancelled_from_another_thread(captured):
    run = Sweep(captured("mobilenet_v1"), ["40%", "100%"], ["checkmate-ilp"], time_limit=300)
    timer = threading.Timer(0.5, run.cancel)
    timer.start()
    begun = time.monotonic()
    with run:
        list(run)
    assert time.monotonic() - begun < 60
    assert "cancelled" in run.frontier().messages["checkmate-ilp", run.frontier().solutions[0].budget]
