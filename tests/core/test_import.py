import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import remat_explorer as rx

HEAVY = ["torch", "plotly", "ipywidgets", "anywidget", "mip", "networkx", "tqdm"]


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import remat_explorer, remat_explorer.cli", set()),
        ("import remat_explorer as rx; rx.solve, rx.minimum_budget, rx.relax", {"mip"}),
    ],
)
def test_neither_the_package_nor_the_command_nor_solving_imports_what_it_does_not_need(statement, allowed):
    code = f"import sys; {statement}; print(*sorted(m for m in {HEAVY} if m in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) <= allowed


def test_every_public_name_is_there():
    assert all(getattr(rx, name) is not None for name in rx.__all__)
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
