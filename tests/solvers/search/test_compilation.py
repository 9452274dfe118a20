"""The compiled search: compiled once, loaded before any clock begins, and told of only where it takes long."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remat_explorer.instances import linear
from remat_explorer.machine_code import entries
from remat_explorer.solvers import SolveJob, max_batch, max_image, minimum_budget, solve
from remat_explorer.solvers.base import Progress
from remat_explorer.solvers.batches.batch_scaling import scale_batch
from remat_explorer.solvers.jobs.solve_job import COMPILING as PATIENCE
from remat_explorer.solvers.jobs.solve_job import GRACE, STARTING
from remat_explorer.solvers.jobs.worker_process import WorkerProcess
from remat_explorer.solvers.registry import STRATEGIES
from remat_explorer.solvers.search import compilation
from remat_explorer.solvers.search.compilation import COMPILING, warm_up
from remat_explorer.solvers.sweeps.sweep_run import load_solver

UNCOMPILED = """
from remat_explorer.solvers.search import compilation
compilation.is_compiled = lambda: compilation._search_once.cache_info().currsize > 0
"""


@pytest.fixture
def told() -> list[Progress]:
    """What a caller's ``on_progress`` has heard."""
    return []


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Compiling takes a fifth of a second, every time; the moments at which it ended."""
    ended: list[float] = []

    def compile_slowly(tell=None) -> None:
        if tell is not None:
            tell(COMPILING)
        time.sleep(0.2)
        ended.append(time.monotonic())

    monkeypatch.setattr(compilation, "warm_up", compile_slowly)
    return ended


@pytest.fixture
def uncompiled_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are started afterwards find no compiled code, as far as they tell."""
    (tmp_path / "sitecustomize.py").write_text(UNCOMPILED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def asked(code: str, **environment: str) -> str:
    """What a new process prints."""
    command = [sys.executable, "-c", f"from remat_explorer.solvers.search.compilation import *; {code}"]
    return subprocess.check_output(command, env={**os.environ, **environment}, text=True).strip()


def test_processes_of_tests_find_the_code_that_this_session_has_compiled():
    assert asked("print(is_compiled())") == "True"


def test_an_empty_folder_holds_no_compiled_code(tmp_path):
    assert asked("print(is_compiled())", NUMBA_CACHE_DIR=str(tmp_path)) == "False"


def test_some_of_the_code_is_not_enough(tmp_path):
    code = (
        "place = folder() / 'solvers'; place.mkdir(parents=True); "
        "first, *others = entries(); "
        "[(place / f'{name}-1.py311.1.nbc').touch() for name in others]; print(is_compiled()); "
        "(place / f'{first}-1.py311.1.nbc').touch(); print(is_compiled())"
    )
    assert asked(code, NUMBA_CACHE_DIR=str(tmp_path)).split() == ["False", "True"]


def test_a_search_compiles_exactly_the_functions_that_are_looked_for():
    names = asked("print(*{path.name.split('-')[0] for path in folder().glob('*/*.nbc')})")
    assert set(names.split()) == entries()


@pytest.mark.parametrize(("compiled", "sentences"), [(False, [COMPILING]), (True, [])])
def test_warming_up_tells_of_compiling_only_where_nothing_is_compiled(monkeypatch, compiled, sentences):
    monkeypatch.setattr(compilation, "is_compiled", lambda: compiled)
    heard: list[str] = []
    warm_up(heard.append)
    assert heard == sentences


def test_the_clock_of_a_solve_begins_once_the_search_is_compiled(monkeypatch, slow, told):
    strategy, started = STRATEGIES["optimal"], []

    def keeping_time(graph, budget, limits):
        started.append(limits.started)
        return strategy(graph, budget, limits)

    monkeypatch.setitem(STRATEGIES, "optimal", dataclasses.replace(STRATEGIES["optimal"], run=keeping_time))
    begun = time.monotonic()
    solution = solve(linear(8), 4, on_progress=told.append)
    assert started[0] >= slow[0] - 0.05  # the two clocks are read one after the other; compiling takes 0.2 s and more
    assert solution.seconds <= time.monotonic() - begun - 0.2
    assert (told[0].doing, told[0].seconds) == (COMPILING, 0.0)


@pytest.mark.parametrize(
    ("strategy", "budget"), [("checkpoint-all", 10), ("checkmate-ilp", 4), ("optimal", 2)], ids=str
)
def test_a_solve_that_does_not_search_waits_for_no_compiler(slow, strategy, budget):
    solve(linear(8), budget, strategy)
    assert slow == []


def test_an_answer_from_the_cache_waits_for_no_compiler(slow):
    first = solve(linear(8), 7, cache=True)
    compiled = len(slow)
    assert solve(linear(8), 7, cache=True).cost == first.cost
    assert len(slow) == compiled


def test_the_clocks_of_the_largest_batch_and_image_begin_once_the_search_is_compiled(slow, told):
    begun = time.monotonic()
    found = max_batch(linear(8), memory=1000, on_progress=told.append)
    assert found.seconds <= time.monotonic() - begun - 0.2
    assert told[0].doing == COMPILING
    told.clear()
    begun = time.monotonic()
    image = max_image(
        lambda side: scale_batch(linear(8), side * side), memory=50, sides=range(1, 4), on_progress=told.append
    )
    assert image.seconds <= time.monotonic() - begun - 0.2
    assert told[0].doing == COMPILING


def test_the_clock_of_the_smallest_budget_begins_once_the_search_is_compiled(monkeypatch):
    order: list[str] = []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            order.append("clock")
            return time.monotonic()

    monkeypatch.setattr(importlib.import_module("remat_explorer.solvers.memory.lowest_peak"), "time", Clock)
    monkeypatch.setattr(compilation, "warm_up", lambda tell=None: order.append("compiled"))
    minimum_budget(linear(8))
    assert order[:2] == ["compiled", "clock"]


def test_workers_of_a_sweep_are_ready_once_the_search_is_compiled(slow):
    load_solver.cache_clear()
    load_solver("highs")
    assert len(slow) == 1


def test_a_worker_started_ahead_compiles_while_it_waits(uncompiled_worker):
    worker = WorkerProcess(ahead=True)
    assert worker.process.stdout is not None
    assert COMPILING in worker.process.stdout.readline()  # and nothing was asked yet
    worker.kill()
    worker.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_job_is_patient_with_a_worker_that_compiles_and_then_begins_its_time(uncompiled_worker, monkeypatch, ahead):
    deadlines, end_after = [], SolveJob._end_after

    def noting(job, seconds, reason):
        deadlines.append(seconds)
        return end_after(job, seconds, reason)

    monkeypatch.setattr(SolveJob, "_end_after", noting)
    if ahead:
        SolveJob.prepare()
    job = SolveJob.start(linear(8), 4, time_limit=50)
    assert job.wait(120)
    assert job.solution().cost == 26.0
    assert job.poll()[0].doing == COMPILING
    assert deadlines == [STARTING, PATIENCE, 50 + GRACE]


def test_a_job_that_needs_no_search_does_not_compile(uncompiled_worker):
    job = SolveJob.start(linear(8), 10, strategy="checkpoint-all")
    assert job.wait(120)
    assert all(progress.doing != COMPILING for progress in job.poll())
    assert job.solution().cost == 17.0
