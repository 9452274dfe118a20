"""Strategies of outer layers and of other packages: known by name, loaded on first use, and no danger to the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

METHOD = """
from remat_explorer.solvers import checkpoint_all
from remat_explorer.solvers.base import Answer
from remat_explorer.solvers.method import Candidate, Method, Support

print("loaded")

def solve(graph, budget, limits, colour="red"):
    return Answer(checkpoint_all(graph))

METHOD = Method(
    solve, "keeps everything, in a colour", "Nobody 1999", Support.YES, Support.NO, Support.NO, options=("colour",)
)
"""
Shell = Callable[[str], str]


@pytest.fixture
def python(tmp_path: Path) -> Shell:
    """Runs Python where a package with two strategies, one of them broken, is installed; returns what it printed."""
    (tmp_path / "other_package.py").write_text(METHOD)
    info = tmp_path / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[remat_explorer.strategies]\n"
        "coloured = other_package:METHOD\n"
        "broken = no_such_module:METHOD\n"
        "number = math:pi\n"
        "optimal = other_package:METHOD\n"
    )

    def run(program: str) -> str:
        paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
        environment = {**os.environ, "PYTHONPATH": paths, "REMAT_EXPLORER_CACHE": str(tmp_path / "cache")}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_listing_names_and_rows_imports_no_torch():
    program = (
        "import sys\n"
        "from remat_explorer.solvers import STRATEGIES\n"
        "from remat_explorer.solvers.table_one import row\n"
        "print(len([row(method) for method in STRATEGIES.values()]) > 5, 'pytorch-budget' in STRATEGIES)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]


def test_an_entry_point_of_another_package_is_a_strategy_and_is_loaded_on_first_use(python):
    printed = python(
        "import remat_explorer as rx\n"
        "from remat_explorer.solvers import STRATEGIES\n"
        "print('coloured' in STRATEGIES)\n"
        "print(rx.solve(rx.linear(4), 100, 'coloured', colour='blue').cost)\n"
        "print(STRATEGIES['coloured'].source)"
    )
    assert printed.splitlines() == ["True", "loaded", "9.0", "Nobody 1999"]


def test_it_may_be_imported_before_this_package(python):
    program = (
        "import other_package\nfrom remat_explorer.solvers import STRATEGIES\nprint(STRATEGIES['coloured'].options)"
    )
    assert python(program).splitlines() == ["loaded", "('colour',)"]


def test_the_worker_of_a_job_knows_it_too(python):
    printed = python(
        "import remat_explorer as rx\n"
        "from remat_explorer.solvers import SolveJob\n"
        "job = SolveJob.start(rx.linear(4), 100, 'coloured', colour='blue')\n"
        "job.wait(60)\n"
        "print(job.solution().cost)"
    )
    assert printed.splitlines() == ["loaded", "9.0"]  # here, for its threads; what the worker prints is its own


def test_a_strategy_of_this_package_is_not_replaced(python):
    printed = python("import remat_explorer as rx\nprint(rx.solve(rx.linear(8), 4).cost)")
    assert printed.splitlines() == ["26.0"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "'broken' of other-package, 'no_such_module:METHOD', cannot be loaded: ModuleNotFoundError"),
        ("number", "'number' of other-package, 'math:pi', is no remat_explorer.solvers.method.Method but 3.14"),
    ],
)
def test_one_that_cannot_be_loaded_is_explained_when_it_is_used_and_when_it_is_listed(python, name, reason):
    printed = python(
        "import remat_explorer as rx\n"
        "from remat_explorer.errors import SolverError\n"
        "from remat_explorer.solvers import STRATEGIES\n"
        "from remat_explorer.solvers.table_one import row\n"
        "try:\n"
        f"    rx.solve(rx.linear(4), 100, {name!r})\n"
        "except SolverError as error:\n"
        "    print(error)\n"
        f"print(row(STRATEGIES[{name!r}]).summary)"
    )
    used, listed = printed.splitlines()
    assert reason in used
    assert used == listed
