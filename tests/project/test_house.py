"""The layout of the package does not fall apart again: its figures do not grow, and no import is round."""

from __future__ import annotations

from pathlib import Path

import grimp
import networkx
import pytest

from tools.house import figures

MOST = {
    "modules": 340,
    "modules under 60 lines": 18,
    "modules over 600 lines": 0,
    "modules with one importer": 110,
    "modules imported from another folder": 136,
    "modules imported from another top-level folder": 17,  # exceptions of the contracts in pyproject.toml
    "names of files that occur twice or more": 1,
    "files in circles": 0,
}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return figures()


@pytest.mark.parametrize("figure", MOST)
def test_a_figure_of_the_layout_does_not_grow(found: dict[str, list[str]], figure: str) -> None:
    count = len(found[figure])
    assert count <= MOST[figure], (
        f"{count} {figure}, {MOST[figure]} at most: move what serves one file into that file, and siblings of one "
        f"subject into one; python tools/house.py --list {figure!r} names them"
    )


def test_every_kind_of_import_counts(tmp_path: Path) -> None:
    package = tmp_path / "planted"
    (package / "room").mkdir(parents=True)
    texts = {
        "__init__": "",
        "first": "def load():\n    from importlib import import_module\n    return import_module('planted.second')\n",
        "second": "def load():\n    from planted.room import inner, shown\n    from .first import load\n",
        "room/__init__": "from planted.room.outer import shown\n",
        "room/inner": "import planted.first\n",
        "room/outer": "shown = 1\n",
    }
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text)
    found = figures(package)
    assert found["files in circles"] == ["planted.first", "planted.room.inner", "planted.second"]
    assert found["modules imported from another folder"] == ["planted.first", "planted.room.inner"]
    assert found["modules with one importer"] == ["planted.room.inner", "planted.room.outer", "planted.second"]


def circles(package: str) -> list[list[str]]:
    """The groups of modules of ``package`` of which each imports every other one, by way of others or not."""
    found = grimp.build_graph(package, cache_dir=None)
    imports = networkx.DiGraph()
    for module in found.modules:
        imports.add_edges_from((module, imported) for imported in found.find_modules_directly_imported_by(module))
    groups = networkx.strongly_connected_components(imports)
    return sorted(sorted(group) for group in groups if len(group) > 1)


@pytest.mark.parametrize("package", ["remat_explorer", "reproduction"])
def test_no_files_of_a_package_import_each_other_in_a_circle(package: str) -> None:
    assert circles(package) == []


def test_a_circle_of_imports_within_functions_and_for_types_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "turning"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "first.py").write_text("def first():\n    from turning.second import Second\n    return Second()\n")
    (package / "second.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from turning.first import first\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert circles("turning") == [["turning.first", "turning.second"]]
