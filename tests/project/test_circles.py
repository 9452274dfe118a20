"""Files of a package import each other in one direction only, imports within functions and for types included."""

from __future__ import annotations

from pathlib import Path

import grimp
import networkx
import pytest

DEFERRED = "def first():\n    from planted.second import Second\n    return Second()\n"
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.second import Second\n"


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


@pytest.mark.parametrize(
    ("init", "first", "second", "found"),
    [
        ("", "import planted.second\n", "class Second: ...\n", []),
        ("", DEFERRED, "import planted.first\nclass Second: ...\n", [["planted.first", "planted.second"]]),
        ("", FOR_TYPES, "import planted.first\nclass Second: ...\n", [["planted.first", "planted.second"]]),
        ("from planted.first import X\n", "from planted import X\n", "", [["planted", "planted.first"]]),
    ],
    ids=["one direction", "within a function", "for types", "from its own package"],
)
def test_a_planted_circle_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: str, first: str, second: str, found: list[list[str]]
) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    for name, text in (("__init__", init), ("first", first), ("second", second)):
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert circles("planted") == found
