"""Solves in their own process: watched, cancelled, failing, orphaned; good schedules stay, wrong ones are refused.

In most of the failures the worker itself is made to misbehave: Python runs a module `sitecustomize` before anything
else. There the strategy becomes one that tells of a schedule and then of a bound, which is valid but too low to prove
it optimal, and fails.
"""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from remat_explorer.checker import check_schedule
from remat_explorer.errors import ScheduleError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import STRATEGIES, SolveJob, checkpoint_all, checkpoint_all_peak, solve
from remat_explorer.solvers.cache import Question, load_solution
from remat_explorer.solvers.jobs import worker_process as process
from remat_explorer.solvers.jobs.solve_job import pack_progress, unpack_progress
from remat_explorer.solvers.solution import Solution
from remat_explorer.solvers.solve import round_up
from remat_explorer.solvers.solver_interface import Answer, Limits, Progress
from tests.solvers.helpers import present, until
from tests.thorough import thorough

FOUND = """
import dataclasses, os, sys, time
from remat_explorer.solvers.solver_interface import Answer, checkpoint_all
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.registry import STRATEGIES

def missing(*arguments, **keywords):
    raise FileNotFoundError("no library of HiGHS")

def strategy(graph, budget, limits):
    limits.tell("planning", checkpoint_all(graph), 0.8 * graph.total_cost)
    limits.tell("bounding", None, 0.9 * graph.total_cost)
    {then}

STRATEGIES["optimal"] = dataclasses.replace(STRATEGIES["optimal"], run=strategy)
"""
NOTHING_FOUND = "\n".join(line for line in FOUND.splitlines() if "limits.tell" not in line)
STUCK = "time.sleep(600)"
NO_MIP = "sys.modules['mip'] = None; Milp(limits.solver)"
NO_LIBRARY = "import mip; mip.Model.__init__ = missing; Milp(limits.solver)"
NO_MEMORY = "raise MemoryError"
SILENT = "os._exit(7)"
BUG = "return [][0]"


@pytest.fixture
def in_the_worker(tmp_path, monkeypatch):
    """Makes the strategy of every worker that is started afterwards find something, or nothing, and then fail."""

    def prepare(then: str, program: str = FOUND) -> None:
        (tmp_path / "sitecustomize.py").write_text(program.format(then=then))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    return prepare


def started(**choices) -> SolveJob:
    graph = linear(12)
    return SolveJob.start(graph, checkpoint_all_peak(graph), **{"time_limit": 120, **choices})


def with_a_schedule(job: SolveJob) -> SolveJob:
    """The job, once it knows a schedule and a bound."""
    assert until(lambda: job.done or any(progress.doing == "bounding" for progress in job.poll()))
    assert not job.done
    return job


def require_kept(job: SolveJob) -> Solution:
    """The solution of a job whose worker failed: the incumbent, within its budget, with the bound told last."""
    assert job.wait(60)
    solution = job.solution()
    assert (solution.status, solution.cost) == (Status.FEASIBLE, job.graph.total_cost)
    assert solution.lower_bound == round_up(job.graph, 0.9 * job.graph.total_cost)
    check_schedule(present(solution.schedule), job.budget)
    return solution


def require_error(job: SolveJob, message: str) -> None:
    assert job.wait(60)
    with pytest.raises(SolverError, match=message):
        job.solution()


def kill(job: SolveJob) -> None:
    os.kill(present(job._worker).process.pid, signal.SIGKILL)


def test_cancel_in_the_middle_keeps_the_best_schedule_with_its_last_bound(in_the_worker):
    in_the_worker(STUCK)
    job = with_a_schedule(started())
    with pytest.raises(SolverError, match="still running"):
        job.solution()
    for _ in range(2):  # the second has nothing left to do
        job.cancel()
        assert job.done
    require_kept(job)
    assert job.remarks == ()
    assert present(job._worker).process.poll() is not None


def test_a_back_end_that_ignores_the_time_limit_is_ended_and_the_schedule_kept(in_the_worker):
    said = "the solver did not stop at its time limit of 200 ms and was ended"
    in_the_worker(STUCK)
    assert require_kept(job := started(time_limit=0.2)).seconds >= 0.2
    assert job.remarks == (f"{said}; the best schedule found until then is kept",)
    in_the_worker(STUCK, NOTHING_FOUND)
    job = started(time_limit=0.2)
    assert job.wait(60)
    assert (job.solution().status, job.remarks) == (Status.UNKNOWN, (said,))


def test_a_worker_that_is_killed_leaves_the_schedule_that_it_found_or_an_error_that_says_so(in_the_worker):
    in_the_worker(STUCK)
    kill(job := with_a_schedule(started()))
    require_kept(job)
    (remark,) = job.remarks
    assert "ended by the signal SIGKILL, as the system does when memory runs out" in remark
    assert remark.endswith("the best schedule found until then is kept")
    in_the_worker(STUCK, NOTHING_FOUND)
    kill(job := started())
    require_error(job, "ended without an answer: it was ended by the signal SIGKILL")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        thorough(NO_MIP, "the solver 'highs' cannot be loaded"),
        (NO_LIBRARY, "the solver 'highs' cannot be loaded: no library of HiGHS; reinstall the package mip"),
        (NO_MEMORY, "the solver process ran out of memory"),
    ],
)
def test_a_back_end_that_is_missing_or_fails_leaves_what_was_planned_without_it(in_the_worker, code, message):
    in_the_worker(code)
    require_kept(job := started())
    (remark,) = job.remarks
    assert message in remark
    assert remark.endswith("the best schedule found until then is kept")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (NO_LIBRARY, "cannot be loaded: no library of HiGHS"),
        (SILENT, "its exit code was 7"),
        (BUG, "IndexError: list index out"),
    ],
)
def test_a_worker_that_ends_without_an_answer_says_how(in_the_worker, code, message):
    in_the_worker(code, NOTHING_FOUND)
    require_error(started(), message)


def test_a_search_that_was_ended_early_does_not_pass_for_a_whole_one_in_the_cache(in_the_worker, tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    in_the_worker(STUCK)
    job = with_a_schedule(started(cache=True))
    job.cancel()
    solution = require_kept(job)
    whole, ended = (Question(job.graph, job.budget, "optimal", "highs", limit) for limit in (120, solution.seconds))
    assert load_solution(whole) is None
    assert present(load_solution(ended)).to_document() == solution.to_document()


def test_a_job_ends_as_a_call_and_reports_the_cheapest_schedule_and_the_highest_bound_so_far():
    graph = linear(8)
    job = SolveJob.start(graph, 4, solver="cbc")
    assert job.wait(60)
    solution, reports = job.solution(), job.poll()
    assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, 26.0, 26.0)
    assert job.poll() == []
    costs = [progress.cost for progress in reports if progress.cost is not None]
    bounds = [progress.lower_bound for progress in reports if progress.lower_bound is not None]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    last = reports[-1]
    assert (last.cost, last.peak) == (solution.cost, solution.peak)
    assert last.gap == pytest.approx(0, abs=1e-6)
    older = Progress(9.0, "looking back", None, 17.0)
    merged = unpack_progress(pack_progress(older, False), graph, 4, last)  # what is worse changes nothing
    assert (merged.schedule, merged.lower_bound, merged.doing) == (last.schedule, last.lower_bound, "looking back")


def test_a_worker_started_ahead_ends_quietly_with_its_parent():
    worker = process.WorkerProcess()
    present(worker.process.stdin).close()
    assert worker.process.wait(60) == 0
    assert worker.close() == "its exit code was 0"


def test_a_disk_without_room_for_the_workers_last_words_stops_no_solve(monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(process.tempfile, "TemporaryFile", full)
    job = SolveJob.start(linear(8), 4)
    assert job.wait(60)
    assert job.solution().cost == 26.0


def test_the_workers_own_error_is_raised_in_the_parent():
    require_error(SolveJob.start(linear(8), 4, "optimum"), "unknown strategy 'optimum'; did you mean 'optimal'")


def test_jobs_run_side_by_side_from_threads():
    with ThreadPoolExecutor(2) as threads:
        jobs = list(threads.map(lambda budget: SolveJob.start(linear(8), budget), (5, 6)))
        assert list(threads.map(lambda job: job.wait(60) and job.solution().cost, jobs)) == [22.0, 21.0]


def test_the_worker_imports_neither_torch_nor_plotly_nor_widgets():
    code = (
        "import sys, remat_explorer.solvers.jobs.job_worker, mip\n"
        "from remat_explorer.solvers import solve\n"
        "from remat_explorer.instances import linear\n"
        "solve(linear(8), 4)\n"
        "heavy = {'torch', 'plotly', 'ipywidgets', 'anywidget', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_job_begins_with_a_known_schedule_unless_it_exceeds_the_budget_or_is_of_another_graph():
    small, foreign = (Answer(solve(linear(layers), 4).schedule) for layers in (8, 7))
    for budget, known, begun in ((3, small, []), (8, foreign, []), (5, small, [small.schedule])):
        job = SolveJob.start(linear(8), budget, known=known)
        job.cancel()  # before its worker says anything
        assert [report.schedule for report in job.poll()[:1] if report.schedule] == begun
        solution = job.solution()
        assert (present(solution.cost) <= 26) if begun else solution.status in (Status.UNKNOWN, Status.FEASIBLE)


CHAIN, BUDGET = linear(8), 4
KEPT = checkpoint_all(CHAIN)
MISTAKES = [
    (KEPT, "needs 10 B, above the budget of 4 B"),
    (
        Schedule(CHAIN, np.eye(CHAIN.n), np.zeros((CHAIN.n, CHAIN.n))),
        "stage 1 computes 'v1' but its input 'v0' is neither computed nor retained",
    ),
    (Schedule(CHAIN, KEPT.R[:-1], KEPT.S[:-1]), "'v16' is never computed"),
]


@pytest.fixture
def instead(monkeypatch):
    """Puts another function in place of the optimal strategy."""
    return lambda run: monkeypatch.setitem(STRATEGIES, "optimal", dataclasses.replace(STRATEGIES["optimal"], run=run))


@pytest.mark.parametrize("told_first", [False, True])
@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_wrong_schedule_is_refused_by_solve_and_not_even_shown_on_the_way(mistake, message, told_first, instead):
    def strategy(graph: Graph, budget: int, limits: Limits) -> Answer:
        limits.tell("about to answer", lower_bound=graph.total_cost)
        if told_first:
            limits.tell("found a schedule", mistake, graph.total_cost)
        return Answer(mistake, graph.total_cost)

    instead(strategy)
    seen: list[Progress] = []
    with pytest.raises(ScheduleError, match=message):
        solve(CHAIN, BUDGET, on_progress=seen.append)
    assert [progress.doing for progress in seen] == ["about to answer"]


def test_a_lower_bound_above_the_cost_of_a_schedule_in_hand_is_refused_but_for_the_solvers_tolerance(instead):
    bounds = iter((18.0, 17.0001))
    instead(lambda graph, budget, limits: Answer(KEPT, next(bounds)))
    with pytest.raises(ScheduleError, match="'optimal' says that no schedule costs less than 18, but its own costs 17"):
        solve(CHAIN, 10)
    assert solve(CHAIN, 10).lower_bound == 17


@pytest.mark.parametrize(
    ("code", "program"),
    [("return Answer(None)", FOUND), thorough("return Answer(checkpoint_all(graph), 17.0)", NOTHING_FOUND)],
)
def test_a_job_whose_strategy_is_wrong_says_so_and_has_no_solution(code, program, in_the_worker):
    in_the_worker(code, program)
    job = SolveJob.start(CHAIN, BUDGET)
    require_error(job, "needs 10 B, above the budget of 4 B")
    assert not any(progress.schedule for progress in job.poll())


@pytest.mark.parametrize("dies", [True, False])
def test_a_job_believes_neither_a_last_word_nor_a_solution_that_is_wrong(dies, in_the_worker):
    progress = pack_progress(Progress(0.1, "boasting", KEPT, 17.0), True)
    message = {"progress": progress} if dies else {"solution": solve(CHAIN, 10).to_document() | {"budget": BUDGET}}
    in_the_worker(f"import os\nprint({json.dumps(message)!r}, flush=True)\nos._exit({int(dies)})\n", "{then}")
    require_error(SolveJob.start(CHAIN, BUDGET), r"refused: .* above the budget of 4 B")
