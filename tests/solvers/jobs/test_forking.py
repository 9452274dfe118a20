"""The worker that is started ahead: solves are forked from it, where the system allows that."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from remat_explorer.errors import SolverError
from remat_explorer.instances import linear
from remat_explorer.solvers import SolveJob
from remat_explorer.solvers.jobs import worker_process as process
from remat_explorer.solvers.jobs.worker_process import CAN_FORK, ForkedProcess
from remat_explorer.solvers.solution import Status
from tests.solvers.waiting import until

only_where_it_forks = pytest.mark.skipif(not CAN_FORK, reason="this system cannot fork workers")
LONG = {"graph": linear(100), "budget": 14, "strategy": "checkmate-ilp", "time_limit": 300}


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """No worker waits from before, nor afterwards."""
    process._release()
    yield
    process._release()


def loading_worker() -> process.WorkerProcess:
    """A worker that was started just now, ahead of the next solve; pytest's environment is another one in fixtures."""
    SolveJob.prepare()
    assert process._waiting is not None
    return process._waiting


def waiting_worker() -> process.WorkerProcess:
    """The same once it has loaded everything."""
    worker = loading_worker()
    assert until(lambda: worker.forks is not None)
    return worker


def worker_of(job: SolveJob) -> psutil.Process:
    assert job._worker is not None
    return psutil.Process(job._worker.process.pid)


@only_where_it_forks
def test_workers_are_forked_one_after_the_other_and_beside_one_another():
    waiting = waiting_worker()
    first, second = SolveJob.start(**LONG), SolveJob.start(**LONG)
    for job in (first, second):
        assert worker_of(job).ppid() == waiting.process.pid
        assert os.getpgid(worker_of(job).pid) == worker_of(job).pid  # Ctrl-C reaches only who started it
    first.cancel()
    assert first.done
    assert worker_of(second).is_running()
    second.cancel()
    for budget, cost in ((4, 26.0), (5, 22.0)):
        job = SolveJob.start(linear(8), budget)
        assert job.wait(60)
        assert job.solution().cost == cost
        assert job.remarks == ()
    assert process._waiting is waiting
    assert until(lambda: not psutil.Process(waiting.process.pid).children())


def test_a_solve_that_comes_while_the_worker_loads_waits_for_it():
    loading_worker()
    job = SolveJob.start(linear(8), 4)
    assert job.wait(60)
    assert job.solution().cost == 26.0


@only_where_it_forks
def test_a_solve_is_cancelled_while_the_worker_still_loads():
    loading = loading_worker()
    os.kill(loading.process.pid, signal.SIGSTOP)  # so that it goes on loading for as long as this takes
    job = SolveJob.start(linear(8), 4)
    job.cancel()
    assert job.done
    assert job._worker is None
    assert job.solution().status is Status.UNKNOWN
    os.kill(loading.process.pid, signal.SIGCONT)


@only_where_it_forks
def test_how_a_forked_worker_ended_is_known():
    waiting_worker()
    running = SolveJob.start(**LONG)
    assert running._worker is not None
    assert isinstance(running._worker.process, ForkedProcess)
    worker_of(running).send_signal(signal.SIGKILL)
    assert running.wait(60)
    with pytest.raises(SolverError, match="ended by the signal SIGKILL"):
        running.solution()
    assert running._worker.process.poll() == -signal.SIGKILL


@only_where_it_forks
def test_a_forked_worker_outlives_the_one_that_waits():
    waiting = waiting_worker()
    running = SolveJob.start(**LONG)
    assert running._worker is not None
    worker = worker_of(running)
    waiting.kill()
    waiting.process.wait()
    assert worker.is_running()
    with pytest.raises(subprocess.TimeoutExpired):
        running._worker.process.wait(0.01)
    running.cancel()
    assert running.solution().status is Status.UNKNOWN
    assert until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


@only_where_it_forks
def test_where_the_worker_that_waits_does_not_answer_another_one_is_started(monkeypatch):
    waiting = waiting_worker()
    monkeypatch.setattr("remat_explorer.solvers.jobs.worker_process.PATIENCE", 0.05)
    os.kill(waiting.process.pid, signal.SIGSTOP)
    job = SolveJob.start(linear(8), 4)
    assert job._worker is not None
    assert isinstance(job._worker.process, subprocess.Popen)
    assert job.wait(60)
    assert job.solution().cost == 26.0
    assert waiting.process.poll() == -signal.SIGKILL


def test_a_worker_that_died_or_has_another_environment_is_not_used(monkeypatch):
    waiting = waiting_worker()
    monkeypatch.setenv("OMP_NUM_THREADS", "1234")
    job = SolveJob.start(linear(8), 4)
    assert job._worker is not waiting
    assert waiting.process.poll() is not None
    assert job.wait(60)
    SolveJob.prepare()
    ahead = process._waiting
    assert ahead is not None
    ahead.kill()
    ahead.process.wait()
    job = SolveJob.start(linear(8), 5)
    assert job._worker is not ahead
    assert job.wait(60)
    assert job.solution().cost == 22.0


def test_a_worker_that_does_not_fit_any_more_is_replaced_by_the_next_one_started_ahead(monkeypatch):
    loading = loading_worker()
    monkeypatch.setenv("OMP_NUM_THREADS", "1234")
    SolveJob.prepare()
    ahead = process._waiting
    assert ahead is not None
    assert ahead is not loading
    assert loading.process.poll() is not None


def test_where_nothing_can_be_forked_the_worker_that_waits_serves_the_next_solve_itself(monkeypatch):
    monkeypatch.setattr(process, "CAN_FORK", False)
    SolveJob.prepare()
    SolveJob.prepare()
    ahead = process._waiting
    assert ahead is not None
    job = SolveJob.start(linear(8), 4)
    assert job._worker is ahead
    assert job.wait(60)
    assert job.solution().cost == 26.0
    assert process._waiting is None
