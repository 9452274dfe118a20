"""Machine code is kept by the contents of all that it was made from, so that code that is found is never stale."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from remat_explorer import machine_code

DECORATORS = {"entry", "counting_nothing"}
SOURCES = sorted(path for folder in machine_code.SOURCES for path in folder.glob("*.py"))
ROOMS = ("remat_explorer.solvers.search.", "remat_explorer.offsets.")


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a folder of compiled functions, which the machine code is named after, beside the others."""
    copied = Path(shutil.copytree(machine_code.SOURCES[0], tmp_path / "search"))
    monkeypatch.setattr(machine_code, "SOURCES", (copied, *machine_code.SOURCES[1:]))
    return copied


def taken_from_elsewhere(source: str) -> set[str]:
    """Modules of the package, outside the folders, from which compiled functions or constants of a file take a name."""
    tree = ast.parse(source)
    imports = [statement for statement in ast.walk(tree) if isinstance(statement, ast.ImportFrom)]
    origin = {name.asname or name.name: str(statement.module) for statement in imports for name in statement.names}
    read: list[ast.stmt | ast.expr] = []
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            read.append(node.value)
        elif isinstance(node, ast.FunctionDef) and DECORATORS.intersection(map(ast.unparse, node.decorator_list)):
            read += node.body
    used = {name.id for part in read for name in ast.walk(part) if isinstance(name, ast.Name)}
    modules = {origin[name] for name in used & origin.keys()}
    return {module for module in modules if module.startswith("remat_explorer") and not module.startswith(ROOMS)}


def test_a_new_compiled_source_changes_the_folder_of_the_machine_code(copied):
    before = machine_code.folder()
    assert machine_code.folder() == before
    (copied / "swaps.py").write_text("@counting_nothing\ndef swap(x):\n    x[0] = 0\n")
    assert machine_code.folder() != before


def test_a_changed_constant_changes_the_folder_of_the_machine_code(copied):
    before, path = machine_code.folder(), copied / "exact_space.py"
    time = path.stat().st_mtime
    path.write_text(path.read_text() + "MOST_STAGES = 2000\n")
    os.utime(path, (time, time))
    assert machine_code.folder() != before


def test_a_new_function_that_python_calls_is_looked_for(copied):
    before = machine_code.entries()
    (copied / "swaps.py").write_text("@entry\ndef swap(x):\n    x[0] = 0\n")
    assert machine_code.entries() - before == {"swaps.swap"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_compiled_functions_and_constants_take_nothing_from_other_folders(path: Path):
    assert taken_from_elsewhere(path.read_text()) == set()


@pytest.mark.parametrize("use", ["@entry\ndef swap(x):\n    x[0] = LIMIT + BITS\n", "MOST = LIMIT + BITS\n"])
def test_a_constant_from_another_folder_is_seen(use: str):
    source = (
        "from remat_explorer.solvers.base import LIMIT\nfrom remat_explorer.solvers.search.exact_space import BITS\n"
    )
    assert taken_from_elsewhere(source + use) == {"remat_explorer.solvers.base"}


def test_a_file_of_the_working_directory_does_not_say_where_machine_code_is_read_from(tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path}\n")
    code = "from remat_explorer.machine_code import folder; print(folder())"
    environment = {key: text for key, text in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(machine_code.PACKAGE.parent), "REMAT_EXPLORER_CACHE": "/somewhere"}
    command = [sys.executable, "-P", "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("/somewhere/compiled/")
