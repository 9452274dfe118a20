"""An executor of worker processes that take text and give text.

A process pool of the standard library runs the caller's script again in every worker, unless that is guarded, and one
worker that dies takes the whole pool with it. Here the workers are fresh interpreters that are told what to call; one
that dies costs its own call, and the next call gets a new one. They can be ended at any time, and end by themselves
when their parent is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from remat_explorer.errors import SolverError


class Processes(Executor):
    """Up to ``workers`` processes, started as calls come in.

    Args:
        workers: how many calls run at a time.

    >>> with Processes(1) as processes:
    ...     processes.submit(json.dumps, "text").result()
    '"text"'
    """

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="worker process")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that run now."""
        with self._lock:
            return [process.pid for process in self._running]

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function of a module in a worker.

        Args:
            fn: a function that can be imported by its module and name.
            args: what JSON can express, as must be what the function returns.
            kwargs: the same.
        """
        request = {"module": fn.__module__, "name": fn.__qualname__, "args": args, "kwargs": kwargs}
        return self._threads.submit(self._ask, json.dumps(request))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers once the calls that were submitted are done, or begun if the others are cancelled."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        if wait:
            self.kill()

    def kill(self) -> None:
        """End every worker now; what they were doing fails, and nothing is begun any more."""
        self._ended = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            running = list(self._running)
        for process in running:
            process.kill()
        self._threads.shutdown(wait=True)  # its threads close what belongs to their processes
        for process in running:
            self._forget(process)

    def _ask(self, request: str) -> Any:
        """In a thread: send the request to this thread's own process and wait for its reply."""
        process, errors = self._process()
        with contextlib.suppress(OSError):  # a process that has died says so below
            assert process.stdin is not None
            process.stdin.write(request + "\n")
            process.stdin.flush()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.endswith("\n"):  # ended, perhaps in the middle of its reply
            raise SolverError(self._obituary(process, errors))
        reply = json.loads(line)
        if "error" in reply:
            raise SolverError(reply["error"])
        return reply["result"]

    def _process(self) -> tuple[subprocess.Popen[str], IO[str]]:
        process: subprocess.Popen[str] | None = getattr(self._own, "process", None)
        if process is None or process.poll() is not None:
            if process is not None:
                self._forget(process)
            with self._lock:
                if self._ended:
                    raise SolverError("the worker processes were ended")
                self._own.errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
                self._own.process = process = _start(self._own.errors)
                self._running.add(process)
        return process, self._own.errors

    def _obituary(self, process: subprocess.Popen[str], errors: IO[str]) -> str:
        code = process.wait()
        self._forget(process)
        errors.seek(0)
        said = errors.read().strip().splitlines()[-1:]
        errors.close()
        ended = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return f"the worker process was ended {ended} before it had an answer" + (f": {said[0]}" if said else "")

    def _forget(self, process: subprocess.Popen[str]) -> None:
        process.wait()
        with self._lock:
            self._running.discard(process)
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


def _start(errors: IO[str]) -> subprocess.Popen[str]:
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "remat_explorer.solvers.process_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
    except OSError as error:
        raise SolverError(f"a worker process could not be started: {error}") from None
