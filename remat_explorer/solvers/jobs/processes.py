"""An executor of worker processes that take text and give text.

A process pool of the standard library runs the caller's script again in every worker, unless that is guarded, and one
worker that dies takes the whole pool with it. Here the workers are fresh interpreters that are told what to call; one
that dies costs its own call, and the next call gets a new one. They can be ended at any time, and end by themselves
when their parent is gone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from remat_explorer.errors import SolverError
from remat_explorer.solvers.jobs.worker_process import WorkerProcess

WORKER = "remat_explorer.solvers.jobs.process_worker"


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
            self._own.worker = worker = WorkerProcess(module=WORKER)
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
