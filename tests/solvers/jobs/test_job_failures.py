"""What becomes of a solve when something goes wrong: the last good schedule stays, and a sentence says what happened.

The worker itself is made to misbehave: Python runs a module `sitecustomize` before anything else. There the strategy
becomes one that tells of a schedule and then of a bound, which is valid but too low to prove it optimal, and fails.
"""

from __future__ import annotations

import errno
import os
import signal

import pytest

from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.instances import linear
from remat_explorer.solvers import SolveJob, checkpoint_all_peak
from remat_explorer.solvers.base import Progress
from remat_explorer.solvers.cache import Question, load_solution
from remat_explorer.solvers.jobs import worker_process as process
from remat_explorer.solvers.jobs.solve_job import GRACE, pack_progress, unpack_progress
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.solve import round_up
from tests.solvers.waiting import until
from tests.thorough import thorough

FOUND = """
import dataclasses, os, sys, time
from remat_explorer.solvers.base import Answer
from remat_explorer.solvers.base import checkpoint_all
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
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return prepare


def started(share: float = 1.0, **choices) -> SolveJob:
    """A job within that share of the checkpoint-all peak."""
    graph = linear(12)
    return SolveJob.start(graph, int(share * checkpoint_all_peak(graph)), **{"time_limit": 120, **choices})


def with_a_schedule(job: SolveJob) -> SolveJob:
    """The job, once it knows a schedule and a bound."""
    assert until(lambda: job.done or any(progress.doing == "bounding" for progress in job.poll()))
    assert not job.done
    return job


def require_kept(job: SolveJob) -> Solution:
    """The solution of a job whose worker failed: the incumbent, within its budget, with the bound told last."""
    assert job.wait(60)
    solution = job.solution()
    assert solution.schedule is not None
    assert solution.status == Status.FEASIBLE
    assert solution.cost == job.graph.total_cost
    assert solution.lower_bound == round_up(job.graph, 0.9 * job.graph.total_cost)
    check(job.graph, solution.schedule.R, solution.schedule.S, job.budget)
    return solution


def test_cancel_in_the_middle_keeps_the_best_schedule_with_its_last_bound(in_the_worker):
    in_the_worker(STUCK)
    job = with_a_schedule(started())
    job.cancel()
    require_kept(job)
    assert job.remarks == ()
    assert job._worker is not None
    assert job._worker.process.poll() is not None


def test_a_back_end_that_ignores_the_time_limit_is_ended_and_the_schedule_kept(in_the_worker):
    in_the_worker(STUCK)
    limit = 1.0
    solution = require_kept(job := started(time_limit=limit))
    assert limit <= solution.seconds < limit + GRACE + 5  # the rest is for a busy machine
    (remark,) = job.remarks
    assert remark == (
        "the solver did not stop at its time limit of 1.0 s and was ended; the best schedule found until then is kept"
    )


def test_a_search_that_is_ended_at_its_time_limit_without_a_schedule_is_unknown(in_the_worker):
    in_the_worker(STUCK, NOTHING_FOUND)
    job = started(time_limit=0.2)
    assert job.wait(60)
    assert job.solution().status == Status.UNKNOWN
    assert job.remarks == ("the solver did not stop at its time limit of 200 ms and was ended",)


def test_a_worker_that_is_killed_after_it_found_a_schedule_leaves_it(in_the_worker):
    in_the_worker(STUCK)
    job = with_a_schedule(started())
    assert job._worker is not None
    os.kill(job._worker.process.pid, signal.SIGKILL)
    require_kept(job)
    (remark,) = job.remarks
    assert "ended by the signal SIGKILL, as the system does when memory runs out" in remark
    assert remark.endswith("the best schedule found until then is kept")


def test_a_worker_that_is_killed_before_it_found_a_schedule_is_an_error_that_says_so(in_the_worker):
    in_the_worker(STUCK, NOTHING_FOUND)
    job = started()
    assert job._worker is not None
    os.kill(job._worker.process.pid, signal.SIGKILL)
    assert job.wait(60)
    with pytest.raises(SolverError, match=r"ended without an answer: it was ended by the signal SIGKILL"):
        job.solution()


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


def test_a_back_end_that_is_missing_is_an_error_where_nothing_was_planned(in_the_worker):
    in_the_worker(NO_LIBRARY, NOTHING_FOUND)
    job = started()
    assert job.wait(60)
    with pytest.raises(SolverError, match="cannot be loaded: no library of HiGHS"):
        job.solution()


def test_a_wrong_schedule_of_a_strategy_is_never_shown(in_the_worker):
    in_the_worker("return Answer(None)")  # after it told of checkpoint-all, which does not fit
    job = started(share=0.6)
    assert job.wait(60)
    assert not any(progress.schedule for progress in job.poll())
    with pytest.raises(SolverError, match=r"the strategy's schedule is refused: .* above the budget"):
        job.solution()


@pytest.mark.parametrize(("code", "message"), [(SILENT, "its exit code was 7"), (BUG, "IndexError: list index out")])
def test_a_worker_that_ends_without_an_answer_says_how(in_the_worker, code, message):
    in_the_worker(code, NOTHING_FOUND)
    job = started()
    assert job.wait(60)
    with pytest.raises(SolverError, match=message):
        job.solution()


def test_a_search_that_was_ended_early_does_not_pass_for_a_whole_one_in_the_cache(in_the_worker, tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    in_the_worker(STUCK)
    job = with_a_schedule(started(cache=True))
    job.cancel()
    solution = require_kept(job)

    def asked(time_limit: float) -> Question:
        return Question(job.graph, job.budget, "optimal", "highs", time_limit)

    assert load_solution(asked(120)) is None
    kept = load_solution(asked(solution.seconds))
    assert kept is not None
    assert kept.to_document() == solution.to_document()


def test_reports_carry_the_cheapest_schedule_and_the_highest_bound_so_far():
    job = SolveJob.start(linear(8), 4)
    assert job.wait(60)
    reports = job.poll()
    costs = [progress.cost for progress in reports if progress.cost is not None]
    bounds = [progress.lower_bound for progress in reports if progress.lower_bound is not None]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    last = reports[-1]
    assert last.schedule is not None
    assert (last.cost, last.peak) == (job.solution().cost, job.solution().peak)
    assert last.gap == pytest.approx(0, abs=1e-6)


def test_a_report_that_is_worse_than_what_is_known_changes_nothing():
    graph = linear(8)
    job = SolveJob.start(graph, 4)
    assert job.wait(60)
    best, *_ = (progress for progress in reversed(job.poll()) if progress.schedule)
    older = Progress(9.0, "looking back", None, 17.0)
    merged = unpack_progress(pack_progress(older, False), graph, 4, best)
    assert (merged.schedule, merged.lower_bound, merged.doing) == (best.schedule, best.lower_bound, "looking back")


def test_a_worker_started_ahead_ends_quietly_with_its_parent():
    worker = process.WorkerProcess()
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    assert worker.process.wait(60) == 0
    assert worker.close() == "its exit code was 0"


def test_a_disk_without_room_for_the_workers_last_words_stops_no_solve(monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(process.tempfile, "TemporaryFile", full)
    job = SolveJob.start(linear(8), 4)
    assert job.wait(60)
    assert job.solution().cost == 26.0
