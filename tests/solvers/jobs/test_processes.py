"""The processes behind solves and sweeps: an executor of them, and the worker that is started ahead to be forked."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from remat_explorer.errors import SolverError
from remat_explorer.instances import linear
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import SolveJob
from remat_explorer.solvers.jobs import worker_process as process
from remat_explorer.solvers.jobs.worker_process import CAN_FORK, Processes
from tests.solvers.helpers import present, until

PACKAGE = str(Path(__file__).parents[3])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_calls_share_a_process_and_an_error_or_a_death_costs_only_its_call():
    with Processes(1) as processes:
        assert list(processes.map(json.dumps, ["a", "b"])) == ['"a"', '"b"']
        first, second = (processes.submit(os.getpid).result() for _ in range(2))
        assert first == second == processes.pids[0] != os.getpid()
        with pytest.raises(SolverError, match="ValueError: "):
            processes.submit(math.sqrt, -1).result()
        assert processes.submit(os.getpid).result() == first
        for end, code, message in ((os._exit, 3, "exit code was 3"), (signal.raise_signal, signal.SIGKILL, "SIGKILL")):
            with pytest.raises(SolverError, match=message):
                processes.submit(end, code).result()
            assert processes.submit(os.getpid).result() != first
    assert not alive(first)


def test_kill_ends_all_that_run_and_begins_nothing_more():
    processes = Processes(2)
    first, second, waiting = (processes.submit(time.sleep, 600) for _ in range(3))
    assert until(lambda: len(processes.pids) == 2)
    pids = processes.pids
    processes.kill()
    assert isinstance(first.exception(), SolverError)
    assert isinstance(second.exception(), SolverError)
    assert waiting.cancelled()
    assert until(lambda: not any(map(alive, pids)))
    with pytest.raises(RuntimeError, match="shutdown"):
        processes.submit(os.getpid)


CALL = """
processes = Processes(1)
processes.submit(time.sleep, 600)
while not processes.pids: time.sleep(0.01)
print(processes.pids[0], flush=True)
"""
JOB = """
job = SolveJob.start(linear(100), 14, "checkmate-ilp", time_limit=600)
while not job.poll(): time.sleep(0.01)
print(job._worker.process.pid, flush=True)
"""


@pytest.mark.parametrize("work", [CALL, JOB], ids=["call", "job"])
def test_workers_end_with_their_parent(work):
    """The parent is killed while its worker works; the worker sees the end of its input."""
    script = (
        "import time\n"
        "from remat_explorer.instances import linear\n"
        "from remat_explorer.solvers import SolveJob\n"
        "from remat_explorer.solvers.jobs.worker_process import Processes\n"
        f"{work}time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": PACKAGE}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        pid = int(present(parent.stdout).readline())
        assert alive(pid)
        parent.kill()
    assert until(lambda: not alive(pid) or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    """Ended, but its new parent has not noticed yet; only Linux tells."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


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
    return present(process._waiting)


def waiting_worker() -> process.WorkerProcess:
    """The same once it has loaded everything."""
    worker = loading_worker()
    assert until(lambda: worker.forks is not None)
    return worker


def worker_of(job: SolveJob) -> psutil.Process:
    return psutil.Process(present(job._worker).process.pid)


def ends_at(job: SolveJob, cost: float) -> None:
    assert job.wait(60)
    assert job.solution().cost == cost


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
        ends_at(job := SolveJob.start(linear(8), budget), cost)
        assert job.remarks == ()
    assert process._waiting is waiting
    assert until(lambda: not psutil.Process(waiting.process.pid).children())


def test_a_solve_that_comes_while_the_worker_loads_waits_for_it():
    loading_worker()
    ends_at(SolveJob.start(linear(8), 4), 26.0)


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
def test_a_forked_worker_outlives_the_one_that_waits_and_how_one_ended_is_known():
    waiting = waiting_worker()
    killed, running = SolveJob.start(**LONG), SolveJob.start(**LONG)
    worker_of(killed).send_signal(signal.SIGKILL)
    assert killed.wait(60)
    with pytest.raises(SolverError, match="ended by the signal SIGKILL"):
        killed.solution()
    assert present(killed._worker).process.poll() == -signal.SIGKILL
    worker = worker_of(running)
    waiting.kill()
    waiting.process.wait()
    assert worker.is_running()
    with pytest.raises(subprocess.TimeoutExpired):
        present(running._worker).process.wait(0.01)
    running.cancel()
    assert running.solution().status is Status.UNKNOWN
    assert until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


@only_where_it_forks
def test_where_the_worker_that_waits_does_not_answer_another_one_is_started(monkeypatch):
    waiting = waiting_worker()
    monkeypatch.setattr("remat_explorer.solvers.jobs.worker_process.PATIENCE", 0.05)
    os.kill(waiting.process.pid, signal.SIGSTOP)
    job = SolveJob.start(linear(8), 4)
    assert isinstance(present(job._worker).process, subprocess.Popen)
    ends_at(job, 26.0)
    assert waiting.process.poll() == -signal.SIGKILL


def test_a_worker_that_died_or_has_another_environment_is_not_used(monkeypatch):
    loading = loading_worker()
    monkeypatch.setenv("OMP_NUM_THREADS", "1234")
    ahead = loading_worker()
    assert ahead is not loading
    assert loading.process.poll() is not None
    ahead.kill()
    ahead.process.wait()
    job = SolveJob.start(linear(8), 5)
    assert job._worker is not ahead
    ends_at(job, 22.0)


def test_where_nothing_can_be_forked_the_worker_that_waits_serves_the_next_solve_itself(monkeypatch):
    monkeypatch.setattr(process, "CAN_FORK", False)
    ahead = loading_worker()
    assert ahead is loading_worker()
    job = SolveJob.start(linear(8), 4)
    assert job._worker is ahead
    ends_at(job, 26.0)
    assert process._waiting is None
