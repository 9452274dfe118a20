"""The executor of worker processes: results, errors, deaths, ends."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remat_explorer.errors import SolverError
from remat_explorer.solvers.jobs.worker_process import Processes
from tests.solvers.waiting import until

PACKAGE = str(Path(__file__).parents[3])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_calls_return_what_the_function_returns_and_share_a_process():
    with Processes(1) as processes:
        assert list(processes.map(json.dumps, ["a", "b"])) == ['"a"', '"b"']
        first, second = (processes.submit(os.getpid).result() for _ in range(2))
        assert first == second == processes.pids[0] != os.getpid()
    assert not alive(first)


def test_two_workers_are_two_processes():
    with Processes(2) as processes:
        waiting = [processes.submit(time.sleep, 0.3) for _ in range(2)]
        assert until(lambda: len(processes.pids) == 2)
        assert [future.result() for future in waiting] == [None, None]


def test_an_error_of_the_function_arrives_with_its_message_and_costs_only_its_call():
    with Processes(1) as processes:
        with pytest.raises(SolverError, match="ValueError: "):
            processes.submit(math.sqrt, -1).result()
        assert processes.submit(math.sqrt, 4).result() == 2


def test_a_process_that_dies_costs_its_call_and_the_next_one_gets_another():
    with Processes(1) as processes:
        doomed = processes.submit(time.sleep, 60)
        assert until(lambda: len(processes.pids) == 1)
        (pid,) = processes.pids
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SolverError, match="SIGKILL"):
            doomed.result()
        assert processes.submit(os.getpid).result() != pid


def test_the_last_words_of_a_process_are_quoted():
    with Processes(1) as processes, pytest.raises(SolverError, match="exit code was 3"):
        processes.submit(os._exit, 3).result()


def test_kill_ends_what_runs_and_begins_nothing_more():
    processes = Processes(1)
    running, waiting = processes.submit(time.sleep, 60), processes.submit(time.sleep, 60)
    assert until(lambda: len(processes.pids) == 1)
    (pid,) = processes.pids
    begun = time.monotonic()
    processes.kill()
    assert time.monotonic() - begun < 30
    assert isinstance(running.exception(), SolverError)
    assert waiting.cancelled()
    assert until(lambda: not alive(pid))
    with pytest.raises(RuntimeError, match="shutdown"):
        processes.submit(os.getpid)


def test_workers_end_with_their_parent():
    """The parent is killed while its worker works; the worker sees the end of its input."""
    script = (
        "import time\n"
        "from remat_explorer.solvers.jobs.worker_process import Processes\n"
        "processes = Processes(1)\n"
        "processes.submit(time.sleep, 600)\n"
        "while not processes.pids: time.sleep(0.01)\n"
        "print(processes.pids[0], flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PACKAGE},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert until(lambda: not alive(pid) or _is_zombie(pid))


def test_a_script_without_a_guard_runs_once(tmp_path):
    """A process pool of the standard library would run it again in every worker."""
    script = tmp_path / "script.py"
    script.write_text(
        "import remat_explorer as rx\n"
        "print('once')\n"
        "print([point.cost for point in rx.sweep(rx.linear(8), [4, 10], workers=1, time_limit=30).points])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": PACKAGE},
        check=True,
    )
    assert done.stdout.splitlines() == ["once", "[26.0, 17.0]"]


def _is_zombie(pid: int) -> bool:
    """Ended, but its new parent has not noticed yet; only Linux tells."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
