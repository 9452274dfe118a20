"""The layout of the package does not fall apart again: its figures stay within what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.house import figures

MOST = {
    "modules": 340,
    "modules under 60 lines": 18,
    "modules over 600 lines": 0,
    "modules with one importer": 100,
    "modules imported from another folder": 190,
    "names of files that occur twice or more": 1,
    "files in circles": 2,
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
