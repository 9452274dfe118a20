"""Sweeps: budgets, what they share, arrival, executors, cancelling, lost workers."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

from remat_explorer.checker import check_schedule
from remat_explorer.errors import QuantityError, SolverError, UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation, Value
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import Sweep, checkpoint_all, checkpoint_all_peak, minimum_budget, solve, sweep
from remat_explorer.solvers.anytime_search.optimal import improve_optimal
from remat_explorer.solvers.anytime_search.sweep_search import BudgetSearch, MomentsAtBudgets, solve_together
from remat_explorer.solvers.bounds.few_moments import MomentsProblem, few_moments_bound
from remat_explorer.solvers.condensed_graph import CondensedGraph, largest_operation
from remat_explorer.solvers.jobs.worker_process import Processes
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solver_interface import Answer, Limits
from remat_explorer.solvers.sweeps import sweep_run
from remat_explorer.solvers.sweeps.sweep_run import answer_request
from tests.solvers.helpers import present
from tests.thorough import thorough_but

ENOUGH = 60.0  # seconds per point; every search of these tests ends by itself long before


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


def test_reference_optima_are_found_and_proven_and_nothing_is_bounded_above_them(reference, small_graph, thread):
    entries = [entry for entry in reference("optimal_linear.json") if entry["graph"] == "linear8"]
    optima = {entry["budget"]: entry["optimum"] for entry in entries}
    frontier = sweep(linear(8), list(optima), executor=thread, time_limit=ENOUGH)
    assert {s.budget: s.cost for s in frontier.solutions} == optima
    assert {s.status for s in frontier.solutions} == {Status.OPTIMAL}
    for entry in reference("exact_small_graphs.json")[::4]:
        graph = small_graph(entry)
        budgets = [entry["budget"], entry["budget"] + 1, checkpoint_all_peak(graph)]
        frontier = sweep(graph, budgets, executor=thread, time_limit=ENOUGH)
        point = next(s for s in frontier.solutions if s.budget == entry["budget"])
        assert point.cost == point.lower_bound == entry["exact_global"]
        assert_monotone(frontier)


def test_points_of_random_graphs_are_checked_monotone_and_on_the_right_sides_of_the_optimum(random_graph, thread):
    for seed in range(3):
        graph = random_graph(seed, layers=3 + seed % 2)
        frontier = sweep(graph, 5, ["optimal", "checkpoint-all"], thread)
        assert_monotone(frontier)
        for point in frontier.points:
            schedule, bound, best = present(point.schedule), present(point.lower_bound), solve(graph, point.budget)
            assert check_schedule(schedule, point.budget).peak == present(point.peak) <= point.budget
            assert graph.total_cost <= bound <= present(best.cost) * (1 + 1e-6) <= schedule.cost * (1 + 2e-6)


def test_a_number_of_budgets_spans_from_the_smallest_schedule_to_keeping_everything(captured, thread):
    graph = captured("unet")
    frontier = sweep(graph, 5, executor=thread, time_limit=1)
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
    assert [s.cost for s in sweep(linear(8), "5 B", executor=thread, time_limit=ENOUGH).solutions] == [22]
    assert [s.budget for s in sweep(linear(8), 1, executor=thread).solutions] == [10]


def test_budgets_and_strategies_that_cannot_do_it_say_why_and_leave_the_others_their_points(thread):
    names = ["checkpoint-all", "optimal", "checkpoint-all"]
    frontier = sweep(linear(8), [2, 4, 10], names, thread, time_limit=ENOUGH)
    assert frontier.strategies == ("checkpoint-all", "optimal")
    assert " ".join(str(s.status)[:3] for s in frontier.solutions) == "inf inf opt inf opt opt"
    assert "no schedule within 4 B" in frontier.messages["checkpoint-all", 4]
    assert "'v9' alone needs 3 B" in frontier.messages["optimal", 2]
    assert ("optimal", 4) not in frontier.messages
    assert "'v9' alone needs 3 B" in str(frontier)
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
        before = latest.get(solution.budget, solution)
        assert solution.cost <= before.cost
        assert solution.lower_bound >= before.lower_bound
        latest[solution.budget] = solution
    assert [latest[s.budget].cost for s in frontier.solutions] == [s.cost for s in frontier.solutions]
    assert len(progress) == len(seen)
    assert (progress[-1].done, progress[-1].points) == (4, 4)
    assert progress[-1].widest_gap == 0
    assert [p.done for p in progress] == sorted(p.done for p in progress)


def test_every_budget_has_a_first_answer_before_any_is_searched(captured):
    with Recording(1) as processes:
        run = Sweep(captured("unet"), ["45%", "55%", "65%", "75%"], executor=processes, workers=1, time_limit=1)
        with run:
            first = [next(run).budget for _ in range(4)]
            assert len(set(first)) == 4
            assert [json.loads(text)["kind"] for text in processes.requests] == ["plan"]
            list(run)
        kinds = [json.loads(text)["kind"] for text in processes.requests]
    assert kinds[:2] == ["plan", "together"]


class Recording(Processes):
    """Processes that note what they are asked."""

    requests: tuple[str, ...] = ()

    def submit(self, fn, /, *args, **kwargs):
        self.requests += (args[1],) if fn is answer_request else ()
        return super().submit(fn, *args, **kwargs)


def test_processes_of_its_own_are_gone_afterwards():
    run = Sweep(linear(24), 4, workers=2)
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


STARTS = [(script, start) for script in (SCRIPT, GUARDED) for start in ("spawn", "forkserver", "fork")]


@pytest.mark.parametrize(("script", "start"), thorough_but(STARTS, (SCRIPT, "spawn")))
def test_a_script_solves_and_sweeps_whatever_starts_its_processes(script, start, tmp_path):
    (tmp_path / "script.py").write_text(script)
    arguments = [sys.executable, "-W", "ignore::DeprecationWarning", str(tmp_path / "script.py"), start]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=240)
    assert (ran.stdout, ran.stderr) == ("begun\n26.0 [26.0, 21.0]\n", "")  # begun once


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


class Killed(Processes):
    """Processes, one of which is killed over the first task of a kind, or while it loads."""

    kind, killed = "loading", False

    def submit(self, fn, /, *args, **kwargs):
        if not self.killed and self.kind in (args[1] if len(args) == 2 else "loading"):
            self.killed = True
            return super().submit(signal.raise_signal, signal.SIGKILL)
        return super().submit(fn, *args, **kwargs)


KINDS = ["loading", '"kind": "plan"', '"kind": "together"']


@pytest.mark.parametrize("kind", thorough_but(KINDS, KINDS[-1]))
def test_a_worker_that_is_killed_is_said_in_words_whatever_it_did(kind, monkeypatch):
    """And costs nothing but time: another one does what it had to do."""
    monkeypatch.setattr(sweep_run, "Processes", Killed)
    monkeypatch.setattr(Killed, "kind", kind)
    with Killed(1) as executor:
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

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def submit(self, fn, /, *args, **kwargs) -> Future:
        future: Future = Future()
        assert fn is answer_request
        if self.budget in json.loads(args[1])["budgets"]:
            future.set_exception(BrokenExecutor("killed"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_points_solved_together_are_tried_one_by_one_when_their_worker_died():
    frontier = sweep(linear(8), [3, 5, 6, 10], executor=Breaking(5), workers=1, time_limit=ENOUGH)
    assert [s.cost for s in frontier.solutions] == [45, 45, 21, 17]  # at 5 only what was found for 3
    assert [str(s.status) for s in frontier.solutions] == ["optimal", "feasible", "optimal", "optimal"]
    assert frontier.solutions[1].lower_bound == 21  # proven for 6
    assert list(frontier.messages) == [("optimal", 5)]
    frontier = sweep(linear(8), [4, 6], executor=Breaking(4), workers=1, time_limit=ENOUGH)
    lost, found = frontier.solutions  # of which the first has no schedule at all
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
    answer = Answer(checkpoint_all(linear(8)), 17.0)
    monkeypatch.setattr(sweep_run, "_answers", lambda graph, request, starts: [answer for _ in request["budgets"]])
    frontier = sweep(linear(8), [4, 6], executor=thread, time_limit=ENOUGH)
    assert [str(s.status) for s in frontier.solutions] == ["unknown", "unknown"]
    assert "above the budget" in frontier.messages["optimal", 4]


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), lambda: None], ids=["threads", "processes"])
def test_a_cancelled_sweep_returns_what_it_has_and_does_not_wait_for_its_time_limit(make, captured):
    executor, seen = make(), []
    how = {"workers": 2, "on_result": seen.append, "cancelled": lambda: bool(seen)}
    frontier = sweep(captured("mobilenet_v1"), ["100%", "40%"], ["optimal"], executor, time_limit=3600, **how)
    if executor is not None:
        executor.shutdown()  # its threads notice, too
    assert len(frontier.solutions) == 2
    assert frontier.solutions[-1].status == Status.OPTIMAL
    assert any("cancelled" in message for message in frontier.messages.values())


def test_leaving_the_loop_ends_the_workers(captured):
    run = Sweep(captured("mobilenet_v1"), ["100%", "40%"], time_limit=3600)
    with run:
        first = next(run)
    assert first.budget == checkpoint_all_peak(run.graph)
    with pytest.raises(StopIteration):
        next(run)
    assert [s.schedule is not None for s in run.frontier().solutions] == [False, True]


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_one_program_with_other_right_hand_sides_equals_a_program_for_each_budget(solver, captured):
    graph = captured("unet")
    condensed, least = CondensedGraph.of(graph), largest_operation(graph)[1]
    budgets = [int(budget) for budget in np.linspace(least, checkpoint_all_peak(graph), 6)[1:]]
    moments = few_moments_bound(condensed, budgets[0], Limits(60, solver)).moments
    shared = MomentsAtBudgets(condensed, budgets[0], moments, Limits(60, solver))
    for budget in (*budgets[::-1], budgets[2]):  # in any order, and again
        own = MomentsProblem(condensed, budget, list(moments), Milp(solver, relaxed=True))
        assert own.build(Limits(60))
        found = shared.at(budget, Limits(60, solver))
        bound = own.bound(own.milp.solve())
        # the shared program neglects fewer small values, those of the smallest budget: never a weaker bound
        assert bound * (1 - 1e-6) <= found.bound == pytest.approx(bound, rel=1e-3)


def test_a_start_serves_where_it_fits_even_without_time_for_anything_else():
    start = present(solve(linear(8), 6).schedule)
    small, fitting, large = solve_together(linear(8), [4, 6, 8], [start], Limits(0.0))
    assert (small.schedule, fitting.schedule, large.schedule) == (None, start, start)
    assert [answer.lower_bound for answer in (small, fitting, large)] == [26, 21, 19]


def test_the_local_search_finds_its_way_back_from_beyond_the_budget(captured):
    graph = captured("unet")
    budget = int(0.6 * Plan.of(checkpoint_all(graph)).peak)
    condensed, limits = CondensedGraph.of(graph), Limits(60.0)
    search = BudgetSearch(condensed, budget, few_moments_bound(condensed, budget, limits), limits, 1.0)
    search.beyond = checkpoint_all(graph)
    for _ in range(3):  # walks, guided walks, and the first cooling
        search.advance()
    assert search.beyond is None
    assert Plan.of(present(search.best)).peak <= budget


def test_a_worker_that_dies_costs_only_its_points_and_says_so(monkeypatch):
    monkeypatch.setattr(Killed, "kind", "checkmate-ilp")
    with Killed(1) as processes:
        frontier = sweep(linear(100), [14], ["optimal", "checkmate-ilp"], processes, time_limit=3600, workers=1)
        assert processes.submit(os.getpid).result() > 0  # with a new process in place of the one that died
    found, lost = frontier.solutions
    assert found.status is Status.OPTIMAL
    assert (lost.schedule, lost.status, lost.lower_bound) == (None, Status.UNKNOWN, found.lower_bound)
    assert "SIGKILL" in frontier.messages["checkmate-ilp", lost.budget]


def test_a_sweep_can_be_cancelled_from_another_thread(captured):
    run = Sweep(captured("mobilenet_v1"), ["40%", "100%"], ["checkmate-ilp"], time_limit=3600)
    threading.Timer(0.5, run.cancel).start()
    with run:
        list(run)
    assert "cancelled" in run.frontier().messages["checkmate-ilp", run.frontier().solutions[0].budget]


def test_improving_never_loses_what_is_known():
    known = solve(linear(8), 4)
    for limits in (Limits(0.0), Limits(30)):
        found = improve_optimal(linear(8), 4, Answer(known.schedule, 26.0), limits)
        assert (present(found.schedule).cost, found.lower_bound, found.infeasible) == (26, 26, False)
