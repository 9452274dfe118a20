"""A solve in the background that can be watched and stopped, for notebooks and other programs with an event loop."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from remat_explorer.errors import RematError, ScheduleError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.graph_file import dump_graph
from remat_explorer.solution import Solution
from remat_explorer.solvers.base import Answer, Progress
from remat_explorer.solvers.messages import unpack_progress
from remat_explorer.solvers.solve import judge

GRACE = 5.0  # seconds that a worker may take beyond its time limit before it is ended


class SolveJob:
    """A running solve: `start` it, `poll` it now and then, `cancel` it, and read its `solution`.

    A thread reads the worker's messages, so every method returns at once, except `wait`.

    >>> from remat_explorer.instances import linear
    >>> job = SolveJob.start(linear(8), budget=4)
    >>> job.wait(timeout=60)
    True
    >>> job.solution().cost
    26.0
    """

    def __init__(self, graph: Graph, budget: int, strategy: str, solver: str, process: subprocess.Popen[str]) -> None:
        self.graph, self.budget, self.strategy, self.solver = graph, budget, strategy, solver
        self.started = time.monotonic()
        self._process = process
        self._lock = threading.Lock()
        self._news: list[Progress] = []
        self._last = Progress(0.0, "starting")
        self._solution: Solution | None = None
        self._error: str | None = None
        self._cancelled = False
        self._finished = threading.Event()

    @staticmethod
    def start(
        graph: Graph,
        budget: int,
        strategy: str = "optimal",
        time_limit: float = 60.0,
        solver: str = "highs",
        threads: int = 1,
    ) -> SolveJob:
        """Start a worker process; the arguments are those of `solve`, the budget in bytes.

        Raises:
            SolverError: if the process cannot be started.
        """
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115, the thread closes it
        package = str(Path(__file__).resolve().parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "remat_explorer.solvers.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        except OSError as error:
            raise SolverError(f"the solver process could not be started: {error}") from None
        request = {
            "graph": json.loads(dump_graph(graph)),
            "budget": int(budget),
            "strategy": strategy,
            "time_limit": float(time_limit),
            "solver": solver,
            "threads": int(threads),
        }
        job = SolveJob(graph, int(budget), strategy, solver, process)
        threading.Thread(target=job._converse, args=(request, errors), daemon=True).start()
        return job

    def poll(self) -> list[Progress]:
        """What is new since the last call, oldest first; each carries the best schedule known by then."""
        with self._lock:
            news, self._news = self._news, []
        return news

    @property
    def done(self) -> bool:
        """Whether `solution` has its final answer."""
        return self._finished.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until done, at most ``timeout`` seconds; returns `done`."""
        return self._finished.wait(timeout)

    def cancel(self) -> None:
        """End the worker; `solution` is then the best schedule so far with its last valid bound."""
        with self._lock:
            if self._finished.is_set():
                return
            self._cancelled = True
        self._process.kill()
        self._finished.wait(5)

    def solution(self) -> Solution:
        """The answer; of a cancelled job the best schedule so far, status feasible or unknown.

        Raises:
            SolverError: with the worker's message if it failed, or if the job is still running.
        """
        if not self.done:
            raise SolverError("this solve is still running; wait for it or cancel it first")
        if self._error is not None:
            raise SolverError(self._error)
        assert self._solution is not None
        return self._solution

    def _converse(self, request: dict[str, Any], errors: Any) -> None:
        """Thread: send the request, read messages until the worker ends, and settle the answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):  # a worker that died at once is reported below
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        deadline = threading.Timer(request["time_limit"] + GRACE, process.kill)
        deadline.daemon = True
        deadline.start()
        try:
            for line in process.stdout:
                if not line.endswith("\n"):
                    break  # the worker was ended in the middle of a message
                self._hear(json.loads(line))
        except (ValueError, RematError) as error:
            self._error = f"the solver process sent a message that cannot be read: {error}"
        finally:
            deadline.cancel()
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    stream.close()
            self._settle(errors)

    def _hear(self, message: dict[str, Any]) -> None:
        if "progress" in message:
            progress = unpack_progress(message["progress"], self.graph, self._last.schedule)
            with self._lock:
                self._last = progress
                self._news.append(progress)
        elif "solution" in message:
            self._solution = Solution.from_document(message["solution"], self.graph)
        else:
            self._error = str(message["error"])

    def _settle(self, errors: Any) -> None:
        """Decide the answer once the worker is gone."""
        with self._lock:
            ran_out = time.monotonic() - self.started
            if self._solution is None and self._error is None:
                if self._cancelled or self._last.schedule is not None:
                    answer = Answer(self._last.schedule, self._last.lower_bound, solver=self.solver)
                    try:
                        self._solution = judge(self.graph, self.budget, self.strategy, answer, ran_out)
                    except ScheduleError as error:
                        self._error = f"the solver process ended, and the schedule it left is refused: {error}"
                else:
                    errors.seek(0)
                    said = errors.read().strip().splitlines()[-1:] or [f"exit code {self._process.returncode}"]
                    self._error = f"the solver process ended without an answer: {said[0]}"
            errors.close()
            self._finished.set()
