"""How a case may end: with a result, a `RematError`, or an exit code that is documented, in little time and memory.

Stand-ins take the place of what a command starts beside itself, so that a case takes milliseconds and leaves nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck

import remat_explorer.solvers as solvers
from remat_explorer.cli import main
from remat_explorer.errors import RematError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.solvers.solution import Solution
from remat_explorer.solvers.sweeps import sweep_run

ALL_CHECKS: list[Any] = list(HealthCheck)  # of hypothesis: what is slow or large here is meant to be
CODES = {0: "done", 1: "contradicted", 2: "infeasible", 3: "not in time", 64: "exit 64", 69: "missing"}
MOST_SECONDS = 10.0
MOST_MEMORY = 2 * 2**30  # bytes beyond what there was at the beginning


class Unbounded(BaseException):
    """A case took too long; no `Exception`, so that nobody catches it on the way."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fails where the body takes more than 10 seconds of processor time or 2 GB of memory.

    Processor time says the same on a machine with other work; what waits for ever is ended after ten times as long.
    """

    def too_long(number: int, frame: FrameType | None) -> None:
        raise Unbounded(f"still at work after {MOST_SECONDS} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    usual = {number: signal.signal(number, too_long) for number in (signal.SIGPROF, signal.SIGALRM)}
    begun = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 10 * MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in usual.items():
            signal.signal(number, handler)
    assert time.process_time() - begun < MOST_SECONDS
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_MEMORY


def of_call(call: Callable[[], object]) -> str:
    with bounded():
        try:
            call()
        except RematError as error:
            refusal = error
        else:
            return "result"
    assert str(refusal), "an error without a message"
    return type(refusal).__name__


def of_command(arguments: Sequence[str]) -> str:
    """How a command ends; what it prints must be text, and with --json one object that every program can read."""
    out, err = io.StringIO(), io.StringIO()
    with bounded(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
    assert code in CODES, f"exit code {code}"
    assert "Traceback" not in err.getvalue(), err.getvalue()
    if code == 64:
        assert err.getvalue().strip(), "exit code 64 without a word"
    elif "--json" in arguments and out.getvalue().startswith("{"):
        json.loads(out.getvalue(), parse_constant=_refuse)
    for word in ("+nan", "-nan", "nan %", "+inf %"):
        assert word not in out.getvalue(), out.getvalue()
    return CODES[code]


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} in the output")


class SolveHere:
    """A `SolveJob` that has solved by the time it is started."""

    remarks, from_cache = (), False

    def __init__(self, solution: Solution) -> None:
        self._solution = solution

    @staticmethod
    def start(graph: Graph, budget: int, strategy: str = "optimal", **options: Any) -> SolveHere:
        options["time_limit"] = min(options["time_limit"], 0.2)
        return SolveHere(solvers.solve(graph, budget, strategy, **options))

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def poll(self) -> list[Any]:
        return []

    def solution(self) -> Solution:
        return self._solution


class ThreadHere(ThreadPoolExecutor):
    """One thread in place of the processes of a sweep."""

    deaths = ()

    def __init__(self, workers: int) -> None:
        super().__init__(1)

    def kill(self) -> None:
        self.shutdown(cancel_futures=True)


def _nothing(*arguments: Any, **options: Any) -> Any:
    raise SolverError("nothing is started here")


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Solve and sweep in this process; neither servers nor browsers are started."""
    here = patch.object(solvers, "SolveJob", SolveHere), patch.object(sweep_run, "Processes", ThreadHere)
    servers = patch.object(subprocess, "run", _nothing), patch("os.execve", _nothing)
    with here[0], here[1], servers[0], servers[1], patch("webbrowser.open", lambda address: True):
        yield
