"""Commands in a folder of somebody else's files: none of them is run, unless it is named."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import remat_explorer as rx
from remat_explorer.solvers.jobs.worker_process import Processes
from tests.project.planted import plant, planted
from tests.thorough import thorough

NET = """
from torch import nn

import layers  # beside this file

def make_model():
    import sizes
    return nn.Sequential(*layers.make(sizes.WIDTH)), layers.example(sizes.WIDTH)
"""
LAYERS = """
import torch
from torch import nn

def make(width):
    return [nn.Linear(width, width) for _ in range(3)]

def example(width):
    return (torch.ones(4, width),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph file, a model file with two modules in a folder below, and what somebody has planted."""
    folder = tmp_path_factory.mktemp("downloaded")
    rx.linear(8).save(str(folder / "chain.json"))
    (folder / "nets").mkdir()
    for name, text in (("net", NET), ("layers", LAYERS), ("sizes", "WIDTH = 8")):
        (folder / "nets" / f"{name}.py").write_text(text)
    plant(folder)
    return folder


def run(folder: Path, *command: str) -> str:
    """What a command that is started there prints."""
    environment = {**os.environ, "PYTHONPATH": str(Path(rx.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("started", "arguments"),
    [
        ("-P -m", "solve chain.json --budget 4 --no-cache"),  # its own process is as that of the command
        thorough("-m", "solve chain.json --budget 4 --no-cache --strategy checkmate-ilp"),
        ("-P -m", "sweep chain.json --budgets 5,8 --workers 1 --no-cache"),
        thorough("-m", "max-batch chain.json --memory 40 --overhead-limit none"),
        ("-m", "report chain.json --budget 5 --no-cache -o report.html"),
        thorough("-m", "doctor"),
    ],
)
def test_no_module_of_the_working_directory_is_run(started: str, arguments: str, folder: Path) -> None:
    assert run(folder, *started.split(), "remat_explorer.cli", *arguments.split())
    assert planted(folder) == []


def test_compiling_the_search_runs_no_module_of_the_working_directory(folder: Path, tmp_path: Path) -> None:
    run(folder, "-m", "remat_explorer.solvers.search.compilation")
    assert planted(folder) == []


def test_a_model_file_imports_what_lies_beside_it_and_nothing_else_of_the_working_directory(folder: Path) -> None:
    out = run(folder, "-P", "-m", "remat_explorer.cli", "solve", "nets/net.py:make_model", "--budget", "100%")
    assert "overhead" in out
    assert planted(folder) == []


def test_a_worker_does_not_take_an_empty_entry_of_pythonpath_for_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f"{Path(rx.__file__).parents[1]}:")
    with Processes(1) as processes:
        assert processes.submit(shlex.quote, "a b").result(60) == "'a b'"
    assert planted(folder) == []
