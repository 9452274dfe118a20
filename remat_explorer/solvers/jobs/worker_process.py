"""The worker process of a solve: started, or forked from one that waits where that was asked for."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

from remat_explorer.errors import SolverError
from remat_explorer.python_process import python_command, python_path
from remat_explorer.solvers.jobs.forking import CAN_FORK, COMPILES, LOADED, ForkedProcess

ENDING = 5.0  # seconds that a process may take to end once it closed its output
MEANINGS = {"SIGKILL": ", as the system does when memory runs out", "SIGSEGV": ", a fault in the back end"}
PACKAGE = str(Path(__file__).resolve().parents[3])


class WorkerProcess:
    """One process of `remat_explorer.solvers.jobs.worker`, or of a module like it, which has been asked nothing yet.

    It is in a process group of its own, so that Ctrl-C in a terminal, or a notebook's interrupt, reaches only its
    parent: that one decides what becomes of the schedule found so far.

    Args:
        ahead: whether it has time, while it waits, to load what only a later step of a solve needs; where the system
            allows it, other workers can then be forked from it.
        module: what it runs: reads lines of JSON from its standard input, and writes lines of JSON.
        parent: a worker that was started ahead and `forks`, to be forked from.

    Raises:
        SolverError: if the process cannot be started.
    """

    def __init__(
        self,
        ahead: bool = False,
        module: str = "remat_explorer.solvers.jobs.worker",
        parent: WorkerProcess | None = None,
    ) -> None:
        self.environment = _environment()
        self._errors = _file_for_errors()
        self._requests: socket.socket | None = None
        self._said: bytes | None = None
        try:
            if parent is not None:
                self.process: subprocess.Popen[str] | ForkedProcess = self._forked(parent)
            else:
                self.process = self._started(module, ahead)
        except OSError as error:
            raise SolverError(f"the solver process could not be started: {error}") from None

    def _started(self, module: str, ahead: bool) -> subprocess.Popen[str]:
        arguments, passed = ["ahead"] if ahead else [], []
        with contextlib.ExitStack() as given:
            if ahead and CAN_FORK:
                self._requests, theirs = socket.socketpair()
                passed = [given.enter_context(theirs).fileno()]
                arguments.append(str(passed[0]))
            return subprocess.Popen(
                python_command("-m", module, *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors or subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                env=self.environment,
                process_group=0,
                pass_fds=passed,
            )

    def _forked(self, parent: WorkerProcess) -> ForkedProcess:
        assert parent._requests is not None
        with contextlib.ExitStack() as opened:
            errors = self._errors or opened.enter_context(open(os.devnull, "w"))
            return ForkedProcess(parent._requests, errors.fileno())

    @property
    def forks(self) -> bool | None:
        """Whether workers can be forked from it now; None while it loads, before it compiles if it must."""
        if self._requests is None:
            return False
        with contextlib.suppress(BlockingIOError):
            said = self._requests.recv(8, socket.MSG_DONTWAIT)
            self._said = said[-1:] if said else COMPILES  # nothing: it has ended
        return None if self._said is None else self._said == LOADED

    def ask(self, line: str) -> None:
        """Send the request; a process that died meanwhile is noticed by who reads its answers."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """End the process at once, if it still runs."""
        self.process.kill()

    def close(self) -> str:
        """Wait for the end of a process that closed its output or was killed, release its pipes, say how it ended."""
        try:
            code = self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._requests):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        said = []
        if self._errors is not None:
            self._errors.seek(0)
            said = self._errors.read().strip().splitlines()
            self._errors.close()
        if code < 0:
            name = signal.Signals(-code).name
            return f"it was ended by the signal {name}{MEANINGS.get(name, '')}"
        return said[-1] if said else f"its exit code was {code}"


_waiting: WorkerProcess | None = None
_lock = threading.Lock()


def prepare_worker() -> None:
    """Start a worker ahead, unless one waits that still fits: the next solve then begins without loading anything.

    Raises:
        SolverError: if the process cannot be started.
    """
    global _waiting
    with _lock:
        if _waiting is not None and not _fits(_waiting):
            _end(_waiting)
            _waiting = None
        if _waiting is None:
            _waiting = WorkerProcess(ahead=True)


def take_worker() -> WorkerProcess | None:
    """A worker: forked from the one that waits, that one itself if it compiles, or a new one if it does not fit.

    Returns:
        None while the one that waits loads: ask again.

    Raises:
        SolverError: if the process cannot be started.
    """
    global _waiting
    with _lock:
        ahead = _waiting
        if ahead is not None and _fits(ahead):
            if ahead.forks is None:
                return None
            if not ahead.forks:
                _waiting = None
                return ahead
            with contextlib.suppress(SolverError):  # it does not answer
                return WorkerProcess(parent=ahead)
        _waiting = None
    if ahead is not None:
        _end(ahead)
    return WorkerProcess()


def _fits(worker: WorkerProcess) -> bool:
    """Whether a worker is alive, and is what one that is started now would be."""
    return worker.process.poll() is None and worker.environment == _environment()


def _end(worker: WorkerProcess) -> None:
    worker.kill()
    worker.close()


@atexit.register
def _release() -> None:
    global _waiting
    with _lock:
        ahead, _waiting = _waiting, None
    if ahead is not None:
        _end(ahead)


def _file_for_errors() -> IO[str] | None:
    """Where the worker's last words go: a file, since nobody reads them while it works; none where the disk is full."""
    try:
        return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
    except OSError:
        return None


def _environment() -> dict[str, str]:
    # threads for linear algebra take a third of the start-up time, and a solve has hardly any
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": python_path(PACKAGE)}
