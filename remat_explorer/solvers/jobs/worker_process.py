"""Worker processes that take lines of JSON and give lines of JSON: one solve, or calls of an executor.

A worker is started, or forked from one that waits (`prepare_worker`), and then begins in milliseconds, with everything
loaded. Both ends of that protocol are here. The process that waits has one end of a Unix socket, on which it says that
it compiles first, where that is so, and that it has loaded everything. From then on, each message to it carries four
descriptors: input, output and errors of a worker to fork, and a control socket, on which it answers with the worker's
process id. Once the worker has ended, it is asked there for the exit code, by one byte. Only Linux has all that this
needs; it is safe because the process that waits has no other threads.

`Processes` is an executor of such workers. A process pool of the standard library runs the caller's script again in
every worker, unless that is guarded, and one worker that dies takes the whole pool with it. Here the workers are fresh
interpreters that are told what to call; one that dies costs its own call, and the next call gets a new one. They can be
ended at any time, and end by themselves when their parent is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from remat_explorer.errors import SolverError
from remat_explorer.python_process import python_command, python_path

CAN_FORK = hasattr(os, "pidfd_open") and hasattr(socket, "send_fds")
PATIENCE = 5.0  # seconds that the process that waits may take to answer
STANDARD = 3  # descriptors of input, output and errors, which come before that of the control socket
COMPILES, LOADED = b"c", b"l"  # what the process that waits says
UNKNOWN = 1  # exit code of a worker whose parent ended before it could tell


class ForkedProcess:
    """A worker that was forked from one that waits. It is used like `subprocess.Popen`, as far as it goes."""

    def __init__(self, requests: socket.socket, errors: int) -> None:
        self.returncode: int | None = None
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            their_input, our_input = os.pipe()
            self.stdin = ours.enter_context(os.fdopen(our_input, "w", encoding="utf-8"))
            theirs.callback(os.close, their_input)
            our_output, their_output = os.pipe()
            self.stdout = ours.enter_context(os.fdopen(our_output, encoding="utf-8"))
            theirs.callback(os.close, their_output)
            mine, control = socket.socketpair()
            self._control, _ = ours.enter_context(mine), theirs.enter_context(control)
            mine.settimeout(PATIENCE)
            socket.send_fds(requests, [b"f"], [their_input, their_output, errors, control.fileno()])
            theirs.close()  # so that there is an end to read where the process that waits has ended
            self.pid = self._number()
            self._handle = os.pidfd_open(self.pid)
            ours.pop_all()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._code_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once there is one."""
        code = self._code_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked worker", timeout or 0.0)
        return code

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _code_within(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            ending = select.poll()
            ending.register(self._handle, select.POLLIN)
            if ending.poll(None if seconds is None else 1000 * seconds):
                self.returncode = self._exit_code()
                os.close(self._handle)
                self._control.close()
        return self.returncode

    def _exit_code(self) -> int:
        try:
            self._control.sendall(b"?")
            return self._number()
        except OSError:
            return UNKNOWN

    def _number(self) -> int:
        """What the process that waits answers."""
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._control.recv(32)
            if not part:
                raise OSError("the process that waits has ended, or cannot fork")
            answer += part
        return int(answer)


def fork_until_asked(requests: socket.socket) -> bool:
    """In the process that waits: fork workers until a line comes in on its own standard input.

    True in a worker that was forked: its input, output and errors are those that were sent. False in the process
    itself, once it has been asked something or its parent is gone.
    """
    gc.collect()
    gc.freeze()  # so that a worker's collector does not write to, and copy, what is shared
    workers: dict[int, int] = {}  # process ids by the descriptors of their control sockets
    with selectors.DefaultSelector() as selector, requests, contextlib.suppress(BrokenPipeError):
        selector.register(requests, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        requests.sendall(LOADED)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    return False
                if key.fd in workers:
                    selector.unregister(key.fd)
                    _tell_exit_code(key.fd, workers.pop(key.fd))
                    continue
                _, descriptors, _, _ = socket.recv_fds(requests, 1, STANDARD + 1)
                if len(descriptors) <= STANDARD:
                    return False
                control = descriptors[STANDARD]
                process = _fork(descriptors, list(workers))
                if process == 0:
                    return True
                if process is not None:
                    workers[control] = process
                    selector.register(control, selectors.EVENT_READ)
    return False


def _fork(descriptors: list[int], others: list[int]) -> int | None:
    """Fork a worker: 0 in it, its id in the process that waits, None where the system does not allow it."""
    control = descriptors[STANDARD]
    try:
        process = os.fork()
    except OSError:
        process = None
    if process == 0:
        os.setpgid(0, 0)
        for standard, descriptor in enumerate(descriptors[:STANDARD]):
            os.dup2(descriptor, standard)
        for descriptor in (*descriptors, *others):
            os.close(descriptor)
        return 0
    for descriptor in descriptors[:STANDARD]:
        os.close(descriptor)
    if process is None:
        os.close(control)
    else:
        with contextlib.suppress(OSError):  # as the worker does, whoever of the two comes first
            os.setpgid(process, process)
        os.write(control, b"%d\n" % process)
    return process


def _tell_exit_code(control: int, worker: int) -> None:
    """Say how a worker ended to who asks; who has closed the control socket does not want to know."""
    if os.read(control, 1):
        _, status = os.waitpid(worker, 0)
        with contextlib.suppress(OSError):
            os.write(control, b"%d\n" % os.waitstatus_to_exitcode(status))
    os.close(control)


WORKER = "remat_explorer.solvers.jobs.job_worker"
ENDING = 5.0  # seconds that a process may take to end once it closed its output
MEANINGS = {"SIGKILL": ", as the system does when memory runs out", "SIGSEGV": ", a fault in the back end"}
PACKAGE = str(Path(__file__).resolve().parents[3])


class WorkerProcess:
    """One process of `remat_explorer.solvers.jobs.job_worker`, which has been asked nothing yet.

    It is in a process group of its own, so that Ctrl-C in a terminal, or a notebook's interrupt, reaches only its
    parent: that one decides what becomes of the schedule found so far. Started ``ahead``, it loads, while it waits,
    what only a later step of a solve needs; where the system allows it, other workers can then be forked from it. With
    ``calls`` it answers calls of functions, one after the other, in place of a solve.
    """

    def __init__(self, ahead: bool = False, calls: bool = False, parent: WorkerProcess | None = None) -> None:
        self.environment = _environment()
        self._errors = _file_for_errors()
        self._requests: socket.socket | None = None
        self._said: bytes | None = None
        try:
            if parent is not None:
                self.process: subprocess.Popen[str] | ForkedProcess = self._forked(parent)
            else:
                self.process = self._started("calls" if calls else "ahead" if ahead else "")
        except OSError as error:
            raise SolverError(f"the solver process could not be started: {error}") from None

    def _started(self, doing: str) -> subprocess.Popen[str]:
        arguments, passed = [doing] if doing else [], []
        with contextlib.ExitStack() as given:
            if doing == "ahead" and CAN_FORK:
                self._requests, theirs = socket.socketpair()
                passed = [given.enter_context(theirs).fileno()]
                arguments.append(str(passed[0]))
            return subprocess.Popen(
                python_command("-m", WORKER, *arguments),
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
    """Start a worker ahead, unless one waits that still fits: the next solve then begins without loading anything."""
    global _waiting
    with _lock:
        if _waiting is not None and not _fits(_waiting):
            _end(_waiting)
            _waiting = None
        if _waiting is None:
            _waiting = WorkerProcess(ahead=True)


def take_worker() -> WorkerProcess | None:
    """A worker: forked from the one that waits, that one itself if it compiles, or a new one if it does not fit.

    None while the one that waits loads: ask again.
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


class Processes(Executor):
    """Up to ``workers`` processes, started as calls come in."""

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="worker process")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._running: set[WorkerProcess] = set()
        self._deaths: list[str] = []
        self._ended = False

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that run now."""
        with self._lock:
            return [worker.process.pid for worker in self._running]

    @property
    def deaths(self) -> list[str]:
        """How workers ended that were not told to, in words, one for each."""
        with self._lock:
            idle = [worker for worker in self._running if not self._ended and worker.process.poll() is not None]
        for worker in idle:
            self._lost(worker)
        with self._lock:
            return list(self._deaths)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function that can be imported in a worker; arguments and result are what JSON can express."""
        request = {"module": fn.__module__, "name": fn.__qualname__, "args": args, "kwargs": kwargs}
        return self._threads.submit(self._ask, json.dumps(request))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers once the calls that were submitted are done, or begun if the others are cancelled."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        if wait:
            self.kill()

    def kill(self) -> None:
        """End every worker now; what they were doing fails, and nothing is begun any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._ended = True
            running = list(self._running)
        for worker in running:
            worker.kill()
        self._threads.shutdown(wait=True)  # each of its threads closes the process that it waits for
        with self._lock:
            running = list(self._running)
        for worker in running:
            self._close(worker)

    def _ask(self, request: str) -> Any:
        """In a thread: send the request to this thread's own process and wait for its reply."""
        worker = self._worker()
        assert worker.process.stdout is not None
        worker.ask(request)
        line = worker.process.stdout.readline()
        if not line.endswith("\n"):  # ended, perhaps in the middle of its reply
            worker.kill()
            raise SolverError(f"the worker process ended without an answer: {self._lost(worker)}")
        reply = json.loads(line)
        if "error" in reply:
            raise SolverError(reply["error"])
        return reply["result"]

    def _worker(self) -> WorkerProcess:
        worker: WorkerProcess | None = getattr(self._own, "worker", None)
        if worker is not None and worker.process.poll() is None:
            return worker
        if worker in self._running:  # it died between two calls
            self._lost(worker)
        with self._lock:
            if self._ended:
                raise SolverError("the worker processes were ended")
            self._own.worker = worker = WorkerProcess(calls=True)
            self._running.add(worker)
        return worker

    def _lost(self, worker: WorkerProcess) -> str:
        """Close a worker that nobody told to end, and remember what it says of that."""
        with self._lock:
            told, known = self._ended, worker in self._running
            self._running.discard(worker)
        if not known:
            return "it had ended before"  # and another thread says how
        said = worker.close()
        if not told:
            with self._lock:
                self._deaths.append(said)
        return said

    def _close(self, worker: WorkerProcess) -> str:
        with self._lock:
            self._running.discard(worker)
        return worker.close()
