"""The compiled search: compiled once, kept where it is safe, and loaded before any clock begins."""

import dataclasses
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from remat_explorer import machine_code
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.machine_code import entries
from remat_explorer.solvers import SolveJob, max_batch, max_image, minimum_budget, solve
from remat_explorer.solvers.batches.batch_scaling import scale_batch
from remat_explorer.solvers.jobs.solve_job import COMPILING as PATIENCE
from remat_explorer.solvers.jobs.solve_job import GRACE, STARTING
from remat_explorer.solvers.jobs.worker_process import WorkerProcess
from remat_explorer.solvers.registry import STRATEGIES
from remat_explorer.solvers.search import compilation
from remat_explorer.solvers.search.compilation import COMPILING, warm_up
from remat_explorer.solvers.solver_interface import Progress
from remat_explorer.solvers.sweeps.sweep_run import load_solver
from tests.solvers.helpers import present

UNCOMPILED = """
from remat_explorer.solvers.search import compilation
compilation.is_compiled = lambda: compilation._search_once.cache_info().currsize > 0
"""


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
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


def asked(code: str, **environment: str) -> str:
    """What a new process prints."""
    command = [sys.executable, "-c", f"from remat_explorer.solvers.search.compilation import *; {code}"]
    return subprocess.check_output(command, env={**os.environ, **environment}, text=True).strip()


def test_code_is_found_only_where_all_of_what_a_search_compiles_is_there(tmp_path):
    names = asked("print(is_compiled(), *{path.name.split('-')[0] for path in folder().glob('*/*.nbc')})").split()
    assert names[0] == "True"
    assert set(names[1:]) == entries()
    code = (
        "print(is_compiled()); place = folder() / 'solvers'; place.mkdir(parents=True); "
        "first, *others = entries(); "
        "[(place / f'{name}-1.py311.1.nbc').touch() for name in others]; print(is_compiled()); "
        "(place / f'{first}-1.py311.1.nbc').touch(); print(is_compiled())"
    )
    assert asked(code, NUMBA_CACHE_DIR=str(tmp_path)).split() == ["False", "False", "True"]


@pytest.mark.parametrize(("compiled", "sentences"), [(False, [COMPILING]), (True, [])])
def test_warming_up_tells_of_compiling_only_where_nothing_is_compiled(monkeypatch, compiled, sentences):
    monkeypatch.setattr(compilation, "is_compiled", lambda: compiled)
    heard: list[str] = []
    warm_up(heard.append)
    assert heard == sentences


def test_the_clock_of_a_solve_begins_once_the_search_is_compiled(monkeypatch, slow):
    strategy, started, told = STRATEGIES["optimal"], [], []

    def keeping_time(graph, budget, limits):
        started.append(limits.started)
        return strategy(graph, budget, limits)

    monkeypatch.setitem(STRATEGIES, "optimal", dataclasses.replace(STRATEGIES["optimal"], run=keeping_time))
    begun = time.monotonic()
    solution = solve(linear(11), 5, cache=True, on_progress=told.append)
    assert started[0] >= slow[0] - 0.05  # the two clocks are read one after the other; compiling takes 0.2 s and more
    assert solution.seconds <= time.monotonic() - begun - 0.2
    assert (told[0].doing, told[0].seconds) == (COMPILING, 0.0)
    assert solve(linear(11), 5, cache=True).cost == solution.cost
    assert len(slow) == 1  # what is kept waits for no compiler


@pytest.mark.parametrize(("strategy", "budget"), [("checkpoint-all", 6), ("checkmate-ilp", 4), ("optimal", 2)], ids=str)
def test_a_solve_that_does_not_search_waits_for_no_compiler(slow, strategy, budget):
    solve(linear(4), budget, strategy)
    assert slow == []


def test_other_clocks_begin_once_the_search_is_compiled(slow, monkeypatch):
    def squares(side: int) -> Graph:
        return scale_batch(linear(8), side * side)

    for find in (
        lambda tell: max_batch(linear(8), memory=1000, on_progress=tell),
        lambda tell: max_image(squares, memory=50, sides=range(1, 4), on_progress=tell),
    ):
        told: list[Progress] = []
        begun = time.monotonic()
        assert find(told.append).seconds <= time.monotonic() - begun - 0.2
        assert told[0].doing == COMPILING
    load_solver.cache_clear()
    load_solver("highs")  # in a worker of a sweep
    assert len(slow) == 3
    order: list[str] = []
    clock = SimpleNamespace(monotonic=lambda: order.append("clock") or time.monotonic())
    monkeypatch.setattr(importlib.import_module("remat_explorer.solvers.memory.lowest_peak"), "time", clock)
    monkeypatch.setattr(compilation, "warm_up", lambda tell=None: order.append("compiled"))
    minimum_budget(linear(8))
    assert order[:2] == ["compiled", "clock"]


def test_a_worker_started_ahead_compiles_while_it_waits(uncompiled_worker):
    worker = WorkerProcess(ahead=True)
    assert COMPILING in present(worker.process.stdout).readline()  # and nothing was asked yet
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


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import doubled
print(doubled.double(21), sum(doubled.double.stats.cache_hits.values()))
"""
FUNCTION = """
from remat_explorer.machine_code import entry

@entry
def double(x):
    return 2 * x
"""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"  # bytes, as if the disk were full


def doubled(folder: Path, before: str = "") -> tuple[int, int]:
    """Result and cache hits of a small function in a process of its own."""
    if not (folder / "doubled.py").exists():  # a newer file is compiled anew
        (folder / "doubled.py").write_text(FUNCTION)
    code = before + PROGRAM.format(folder=str(folder))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "kept"), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    result, hits = map(int, ran.stdout.split())
    return result, hits


def kept(folder: Path, ending: str) -> list[Path]:
    return list((folder / "kept" / "compiled").glob(f"*/*/doubled.*{ending}"))


def test_damaged_machine_code_is_compiled_again_and_a_disk_without_room_costs_nothing_but_time(tmp_path: Path) -> None:
    if sys.platform == "linux":  # whose limits of file sizes these are
        assert doubled(tmp_path, LIMITED) == (42, 0)
    assert doubled(tmp_path) == (42, 0)
    for ending, content in ((".nbi", b"\x80\x04half"), (".nbc", b"")):
        (file,) = kept(tmp_path, ending)
        file.write_bytes(content)
        assert doubled(tmp_path) == (42, 0), (ending, content)
    assert doubled(tmp_path) == (42, 1)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users are those of Unix")
def test_a_folder_that_others_can_write_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doubled(tmp_path)
    (index,) = kept(tmp_path, ".nbi")
    place = index.parents[1]
    assert machine_code.is_own(place)
    for folder in (place, place.parent):
        mode = folder.stat().st_mode
        folder.chmod(0o777)
        assert not machine_code.is_own(place)
        if folder == place:
            assert doubled(tmp_path) == (42, 0)
        folder.chmod(mode)
    assert doubled(tmp_path) == (42, 1)
    state = os.stat

    def owned(path: Path, others: Path) -> os.stat_result | SimpleNamespace:
        """What `os.stat` says, but for the owner of one path."""
        found = state(path)
        return SimpleNamespace(st_mode=found.st_mode, st_uid=os.geteuid() + 1) if path == others else found

    for others in (place, place.parent, index):  # a file in a folder of one's own, too
        with monkeypatch.context() as patch:
            patch.setattr(Path, "stat", lambda path, others=others, **given: owned(path, others))
            assert not machine_code.is_own(place), others
    assert machine_code.is_own(place)


def test_machine_code_is_kept_where_the_user_wants_it_and_nowhere_if_that_is_no_folder(tmp_path):
    """Importing the solvers does not import the compiler."""
    (tmp_path / "file").write_text("")
    where = "import sys, remat_explorer.solvers; loaded = 'numba' in sys.modules; "
    where += "from remat_explorer.machine_code import folder; print(folder(), loaded)"
    load = "import remat_explorer.solvers.search.annealing, remat_explorer.solvers.search.walk; print()"
    for name, place, code in (
        ("NUMBA_CACHE_DIR", tmp_path, where),
        ("REMAT_EXPLORER_CACHE", tmp_path, where),
        ("NUMBA_CACHE_DIR", tmp_path / "file", load),
    ):
        environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
        environment[name] = str(place)
        ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert code == load or (ran.stdout.startswith(str(tmp_path)) and ran.stdout.endswith("False\n"))
