"""A strategy is its one file and its line in the registry, or an entry point of another package."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import remat_explorer
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.base import cores

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
        "from remat_explorer.solvers.method import row\n"
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
        "from remat_explorer.solvers.method import row\n"
        "try:\n"
        f"    rx.solve(rx.linear(4), 100, {name!r})\n"
        "except SolverError as error:\n"
        "    print(error)\n"
        f"print(row(STRATEGIES[{name!r}]).summary)"
    )
    used, listed = printed.splitlines()
    assert reason in used
    assert used == listed


ROOT = Path(__file__).parents[2]
PACKAGE = Path(remat_explorer.__file__).parent
OWN = PACKAGE / "solvers" / "methods"
REGISTRY = PACKAGE / "solvers" / "registry.py"
LINE = '    "rotor": rotor.METHOD,\n'

ANYTIME = '''
"""The optimal search under another name."""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.method import BackgroundSweep, Method, Support
from remat_explorer.solvers.anytime.optimal import improve_optimal


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

# in every process of the test: the registry and the new strategy come from the test's own folder
FINDER = """
import importlib.abc, importlib.util, sys

FILES = {files!r}

class Planted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_file_location(name, FILES[name]) if name in FILES else None

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


def example() -> tuple[str, str, str]:
    """The file of the example in docs/extending.md, its import in the registry, and its line there."""
    text = (ROOT / "docs" / "extending.md").read_text()
    file, lines = re.findall(r"```(?:python|text)\n(.*?)```", text, re.DOTALL)[:2]
    ((name, line),) = re.findall(r"methods import (\w+)\n\n.*\n( +.*\n)}", lines)
    return file, name, line


def registry_with(name: str, line: str) -> str:
    """The registry with one more module among its imports, and one more line in its table."""
    text = REGISTRY.read_text()
    assert LINE in text
    start = text.index("methods import (\n") + len("methods import (\n")
    end = text.index(")", start)
    modules = sorted([*text[start:end].splitlines(keepends=True), f"    {name},\n"])
    return (text[:start] + "".join(modules) + text[end:]).replace(LINE, LINE + line)


def test_the_example_of_the_docs_passes_every_check_as_a_file_of_its_own(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "remat_explorer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    file, name, line = example()
    solvers = tmp_path / "remat_explorer" / "solvers"
    (solvers / "methods" / f"{name}.py").write_text(file)
    (solvers / "registry.py").write_text(registry_with(name, line))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    programs = Path(sys.executable).parent
    files = ["remat_explorer/solvers/methods", "remat_explorer/solvers/registry.py"]
    for command in (
        ["ruff", "check", *files],
        ["ruff", "format", "--check", *files],
        ["pyright", f"{files[0]}/{name}.py", files[1]],
        ["lint-imports"],
    ):
        done = subprocess.run(
            [str(programs / command[0]), *command[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_anytime_strategy_is_its_file_and_its_line(tmp_path):
    planted = {
        "remat_explorer.solvers.methods.another": ANYTIME.lstrip(),
        "remat_explorer.solvers.registry": registry_with("another", '    "anytime": another.METHOD,\n'),
    }
    files = {name: str(tmp_path / f"planted_{i}.py") for i, name in enumerate(planted)}
    for name, text in planted.items():
        Path(files[name]).write_text(text)
    (tmp_path / "sitecustomize.py").write_text(FINDER.format(files=files))
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
