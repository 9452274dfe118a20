"""A strategy is its one file and its line in the registry, or an entry point of another package."""

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
from remat_explorer.solvers.solver_interface import cores

ROOT = Path(__file__).parents[2]
PACKAGE = Path(remat_explorer.__file__).parent
OWN = PACKAGE / "solvers" / "methods"
METHODS, REGISTRY = "remat_explorer/solvers/methods", "remat_explorer/solvers/registry.py"
LINE = '    "rotor": rotor.METHOD,\n'
METHOD = """
from remat_explorer.solvers import checkpoint_all
from remat_explorer.solvers.solver_interface import Answer
from remat_explorer.solvers.method import Candidate, Method, Support

print("loaded")

def solve(graph, budget, limits, colour="red"):
    return Answer(checkpoint_all(graph))

METHOD = Method(
    solve, "keeps everything, in a colour", "Nobody 1999", Support.YES, Support.NO, Support.NO, options=("colour",)
)
"""
ANYTIME = """
from remat_explorer.solvers.anytime_search.optimal import improve_optimal
from remat_explorer.solvers.solver_interface import Answer
from remat_explorer.solvers.method import BackgroundSweep, Method, Support

def solve(graph, budget, limits):
    limits.tell(f"searching with {limits.threads} threads")
    return improve_optimal(graph, budget, Answer(None), limits)

METHOD = Method(
    solve, "searches again", "a test", Support.YES, Support.YES, Support.YES,
    compiled_search=True, threads=2, improve=improve_optimal, background_sweep=BackgroundSweep.ALWAYS,
)
"""
Shell = Callable[..., str]


@pytest.fixture
def python(tmp_path: Path) -> Shell:
    """Runs Python where a package with strategies, some of them broken, is installed; returns what it printed."""
    (tmp_path / "other_package.py").write_text(METHOD)
    (tmp_path / "another.py").write_text(ANYTIME)
    info = tmp_path / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[remat_explorer.strategies]\n"
        "coloured = other_package:METHOD\n"
        "anytime = another:METHOD\n"
        "broken = no_such_module:METHOD\n"
        "number = math:pi\n"
        "optimal = other_package:METHOD\n"
    )

    def run(*arguments: str) -> str:
        paths = os.pathsep.join([str(tmp_path), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": paths, "REMAT_EXPLORER_CACHE": str(tmp_path / "cache")}
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_listing_names_and_rows_imports_no_torch():
    program = (
        "import sys\n"
        "from remat_explorer.solvers import STRATEGIES\n"
        "from remat_explorer.solvers.method import table_one_row\n"
        "print(len([table_one_row(method) for method in STRATEGIES.values()]) > 5, 'pytorch-budget' in STRATEGIES)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]


def test_an_entry_point_of_another_package_is_a_strategy_is_loaded_on_first_use_and_replaces_none_of_ours(python):
    printed = python(
        "-c",
        "import remat_explorer as rx\n"
        "from remat_explorer.solvers import STRATEGIES, SolveJob\n"
        "print('coloured' in STRATEGIES, rx.solve(rx.linear(8), 4).cost)\n"
        "print(rx.solve(rx.linear(4), 100, 'coloured', colour='blue').cost)\n"
        "print(STRATEGIES['coloured'].source)\n"
        "job = SolveJob.start(rx.linear(4), 100, 'coloured', colour='blue')\n"
        "job.wait(60)\n"
        "print(job.solution().cost)",
    )
    assert printed.splitlines() == ["True 26.0", "loaded", "9.0", "Nobody 1999", "9.0"]
    before = (
        "import other_package; from remat_explorer.solvers import STRATEGIES; print(STRATEGIES['coloured'].options)"
    )
    assert python("-c", before).splitlines() == ["loaded", "('colour',)"]


def test_one_that_cannot_be_loaded_is_explained_when_it_is_used_and_when_it_is_listed(python):
    printed = python(
        "-c",
        "import remat_explorer as rx\n"
        "from remat_explorer.errors import SolverError\n"
        "from remat_explorer.solvers import STRATEGIES\n"
        "from remat_explorer.solvers.method import table_one_row\n"
        "for name in ('broken', 'number'):\n"
        "    try:\n"
        "        rx.solve(rx.linear(4), 100, name)\n"
        "    except SolverError as error:\n"
        "        print(error)\n"
        "    print(table_one_row(STRATEGIES[name]).summary)",
    ).splitlines()
    broken, number = printed[::2]
    assert printed[1::2] == [broken, number]  # used, and listed
    assert "'broken' of other-package, 'no_such_module:METHOD', cannot be loaded: ModuleNotFoundError" in broken
    assert "'number' of other-package, 'math:pi', is no remat_explorer.solvers.method.Method but 3.14" in number


EVERYWHERE = """
import json, sys
from concurrent.futures import ThreadPoolExecutor

import ipywidgets
import remat_explorer as rx
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.controllers.background_searches import Sweeper
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


def compared_names(text: str) -> Iterator[int]:
    """Lines with a comparison with a strategy's name; to look a name up in a table is none."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare | ast.Match):
            parts = list(ast.walk(node))
            names = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            of_status = any(isinstance(part, ast.Attribute) and part.attr == "status" for part in parts)
            if names & STRATEGIES.keys() and not of_status:
                yield node.lineno


def test_nothing_outside_of_their_folder_compares_names_of_strategies():
    for line in ("name == 'optimal'", "'monet' != name", "name in ('dtr', 'rotor')"):
        assert list(compared_names(line))
    paths = [path for path in PACKAGE.rglob("*.py") if OWN not in path.parents]
    assert {str(path): lines for path in paths if (lines := list(compared_names(path.read_text())))} == {}


def test_the_example_of_the_docs_passes_every_check_as_a_file_of_its_own_and_solves(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "remat_explorer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    file, lines = re.findall(r"```(?:python|text)\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL)[:2]
    ((name, line),) = re.findall(r"methods import (\w+)\n\n.*\n( +.*\n)}", lines)
    (tmp_path / METHODS / f"{name}.py").write_text(file)
    before, modules, after = re.split(
        r"(?<=methods import \()\n(.*?)\n(?=\))", (ROOT / REGISTRY).read_text(), flags=re.DOTALL
    )
    modules = "\n".join(sorted([*modules.splitlines(), f"    {name},"]))
    assert LINE in after
    (tmp_path / REGISTRY).write_text(f"{before}\n{modules}\n{after.replace(LINE, LINE + line)}")
    (strategy,) = re.findall('"(.*)":', line)
    for command in (
        ["ruff", "check", METHODS, REGISTRY],
        ["ruff", "format", "--check", METHODS, REGISTRY],
        ["pyright", f"{METHODS}/{name}.py", REGISTRY],
        ["lint-imports"],
        ["python", "-c", f"import remat_explorer as rx; rx.solve(rx.linear(8), 10, {strategy!r}).schedule.cost"],
    ):
        program, paths = Path(sys.executable).with_name(command[0]), os.pathsep.join([str(tmp_path), str(ROOT)])
        environment = os.environ | {"PYTHONPATH": paths}
        done = subprocess.run([program, *command[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_anytime_strategy_is_everywhere(python):
    listed = python("-m", "remat_explorer.cli", "strategies", "--json")
    assert json.loads(listed[listed.index("{") :])["strategies"]["anytime"]["summary"] == "searches again"
    found = json.loads(python("-c", EVERYWHERE).splitlines()[-1])
    assert found["told"] == f"searching with {min(2, cores())} threads"
    assert (found["cost"], found["job"], found["loaded"]) == (26, 26, 1)
    assert found["sweep"] == [26, 21]
    assert found["menu"]
    assert found["background"] == ["anytime", "optimal"]
