"""Importing the package, or solving with it, stays light."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import remat_explorer as rx

HEAVY = ["torch", "plotly", "ipywidgets", "anywidget", "mip", "networkx", "tqdm"]


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted(m for m in {HEAVY} if m in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_imports_nothing_heavy():
    assert modules_after("import remat_explorer") == set()


def test_the_command_line_starts_without_torch():
    assert modules_after("import remat_explorer.cli") == set()


@pytest.mark.parametrize("name", ["solve", "minimum_budget", "relax"])
def test_solving_imports_neither_torch_nor_plotly_nor_widgets(name):
    assert modules_after(f"import remat_explorer as rx; rx.{name}") <= {"mip"}


def test_every_public_name_is_there():
    names = set(rx.__all__) - {"Explorer"}  # which has tests of its own
    code = f"import remat_explorer as rx; assert all(getattr(rx, name) is not None for name in {names})"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'optimise'"):
        _ = rx.optimise  # pyright: ignore


def test_an_archive_is_no_place_to_run_from_and_the_error_says_so(tmp_path):
    package = Path(rx.__file__).parent
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as archive:
        for path in (package / "__init__.py", package / "errors.py"):
            archive.write(path, f"remat_explorer/{path.name}")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'packages.zip')!r}); import remat_explorer"
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "packages.zip/remat_explorer/__init__.py': it reads files that lie beside its code" in ran.stderr
    assert "unpack the archive into a folder" in ran.stderr
