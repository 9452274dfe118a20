"""Stand-ins for what a command starts beside itself, so that a case takes milliseconds and leaves nothing running."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import remat_explorer.solvers as solvers
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.solvers.solution import Solution
from remat_explorer.solvers.sweeps import sweep_run


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


def _refuse(*arguments: Any, **options: Any) -> Any:
    raise SolverError("nothing is started here")


@contextmanager
def in_process() -> Iterator[None]:
    """Solve and sweep in this process; neither servers nor browsers are started."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(solvers, "SolveJob", SolveHere))
        stack.enter_context(patch.object(sweep_run, "Processes", ThreadHere))
        stack.enter_context(patch("webbrowser.open", lambda address: True))
        stack.enter_context(patch.object(subprocess, "run", _refuse))
        stack.enter_context(patch("os.execve", _refuse))
        yield
