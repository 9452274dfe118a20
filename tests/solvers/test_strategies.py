"""A strategy is its one file and one line: nothing else asks for names, and a new one is everywhere at once."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import remat_explorer
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.threads import cores

ROOT = Path(__file__).parents[2]
PACKAGE = Path(remat_explorer.__file__).parent
OWN = PACKAGE / "solvers" / "strategies"
LAST_LINE = "from remat_explorer.solvers.strategies.rotor import METHOD as rotor\n"

ANYTIME = '''
"""The optimal search under another name."""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.method import BackgroundSweep, Method, Support
from remat_explorer.solvers.strategies.optimal import improve_optimal


def solve(graph: Graph, budget: int, limits: Limits) -> Answer:
    limits.tell(f"searching with {limits.threads} threads")
    return improve_optimal(graph, budget, Answer(None), limits)


METHOD = Method(
    solve,
    "searches again",
    "a test",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    compiled_search=True,
    threads=2,
    improve=improve_optimal,
    background_sweep=BackgroundSweep.ALWAYS,
)
'''

# in every process of the test: modules of this folder of strategies come from the test's own folder first
FINDER = """
import importlib.abc, importlib.util, pathlib, sys

class Planted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        folder, _, module = name.rpartition(".")
        file = pathlib.Path({folder!r}) / f"{{module}}.py"
        if folder == "remat_explorer.solvers.strategies" and file.exists():
            return importlib.util.spec_from_file_location(name, file)
        return None

sys.meta_path.insert(0, Planted())
"""

EVERYWHERE = """
import json, sys
from concurrent.futures import ThreadPoolExecutor

import ipywidgets
import remat_explorer as rx
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.background_searches import Sweeper
from remat_explorer.solvers import SolveJob

chain, found = rx.linear(8), {}
module, loaded = sys.modules["remat_explorer.solvers.solve"], []
load_search = module.load_search
module.load_search = lambda report: loaded.append(report) or load_search(report)
told = []
found["cost"] = rx.solve(chain, 4, "anytime", on_progress=lambda progress: told.append(progress.doing)).cost
found["told"], found["loaded"] = told[0], len(loaded)
job = SolveJob.start(chain, 4, "anytime")
job.wait(60)
found["job"] = job.solution().cost
with ThreadPoolExecutor(1) as one:
    curve = rx.sweep(chain, [4, 6], ["anytime"], one)
found["sweep"] = [point.cost for point in curve.points]
found["in processes"] = [point.cost for point in rx.sweep(chain, [4, 6], ["anytime"]).points]
explorer = rx.Explorer(graph=chain, budget=4, improve=False, sweep=False)
menus = [menu.options for menu in ipywidgets.Widget.widgets.values() if isinstance(menu, ipywidgets.Dropdown)]
found["menu"] = any("anytime" in str(options) for options in menus)
state = State()
sweeper = Sweeper(state)
state.graph = chain
assert sweeper.wait(120)
found["background"] = sorted({point.strategy for point in state.frontier.points} & {"anytime", "optimal"})
print(json.dumps(found))
"""


def compared_names(tree: ast.Module) -> Iterator[int]:
    """Lines with a comparison with a strategy's name, or with a constant of the module that has one in it.

    To look a name up in a table is no comparison.
    """

    def names(node: ast.AST) -> set[str]:
        texts = {
            part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        return texts & STRATEGIES.keys()

    constants = {
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign) and names(statement.value) and not isinstance(statement.value, ast.Dict)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Match) and names(node):
            yield node.lineno
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            of_status = any(isinstance(side, ast.Attribute) and side.attr == "status" for side in sides)
            constant = any(isinstance(side, ast.Name) and side.id in constants for side in sides)
            if constant or (names(node) and not of_status):
                yield node.lineno


@pytest.mark.parametrize(
    "line",
    ["name == 'optimal'", "'monet' != name", "name in ('dtr', 'rotor')", "FEW = ('dtr',)\nname in FEW"],
)
def test_comparisons_with_names_are_noticed(line):
    assert list(compared_names(ast.parse(line)))


def test_nothing_outside_of_their_folder_compares_names_of_strategies():
    found = []
    for path in PACKAGE.rglob("*.py"):
        if OWN not in path.parents:
            found += [f"{path.relative_to(PACKAGE)}:{line}" for line in compared_names(ast.parse(path.read_text()))]
    assert found == []


def example() -> tuple[str, str]:
    """The file of the example in docs/extending.md, and its line in the registry."""
    text = (ROOT / "docs" / "extending.md").read_text()
    file, line = re.findall(r"```(?:python|text)\n(.*?)```", text, re.DOTALL)[:2]
    return file, line


def plant(folder: Path, name: str, text: str, line: str) -> None:
    """Put a strategy's file and its line of the registry into a folder."""
    (folder / f"{name}.py").write_text(text)
    registry = (OWN / "registry.py").read_text()
    assert LAST_LINE in registry
    (folder / "registry.py").write_text(registry.replace(LAST_LINE, LAST_LINE + line))


def test_the_example_of_the_docs_passes_every_check_as_a_file_of_its_own(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "remat_explorer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    file, line = example()
    plant(tmp_path / "remat_explorer" / "solvers" / "strategies", "every_nth", file, line)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    programs = Path(sys.executable).parent
    strategies = "remat_explorer/solvers/strategies"
    for command in (
        ["ruff", "check", strategies],
        ["ruff", "format", "--check", strategies],
        ["pyright", f"{strategies}/every_nth.py", f"{strategies}/registry.py"],
        ["lint-imports"],
    ):
        done = subprocess.run(
            [str(programs / command[0]), *command[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_anytime_strategy_is_its_file_and_its_line(tmp_path):
    strategies = tmp_path / "strategies"
    strategies.mkdir()
    plant(strategies, "anytime", ANYTIME.lstrip(), LAST_LINE.replace("rotor", "anytime"))
    (tmp_path / "sitecustomize.py").write_text(FINDER.format(folder=str(strategies)))
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": paths, "REMAT_EXPLORER_CACHE": str(tmp_path / "cache")}

    def python(*arguments: str) -> str:
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = json.loads(python("-m", "remat_explorer.cli", "strategies", "--json"))["strategies"]
    assert listed["anytime"]["summary"] == "searches again"
    found = json.loads(python("-c", EVERYWHERE).splitlines()[-1])
    assert found["told"] == f"searching with {min(2, cores())} threads"
    assert (found["cost"], found["job"], found["loaded"]) == (26, 26, 1)
    assert found["sweep"] == found["in processes"] == [26, 21]
    assert found["menu"]
    assert found["background"] == ["anytime", "optimal"]
