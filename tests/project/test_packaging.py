"""What the wheel holds, what every notebook says of its packages, and the pages that are shipped for the demo."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks.notebook_runs import NOTEBOOKS
from tests.project.pages import ROOT, links, page
from tools.website.demo_pages import stale

PROJECT = tomllib.loads(page("pyproject.toml"))
BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")  # as PEP 723 has it


def metadata_of(path: Path) -> dict[str, Any]:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    (block,) = [match for cell in cells for match in BLOCK.finditer(cell.source)]
    assert block["type"] == "script"
    lines = (line[2:] if line.startswith("# ") else line[1:] for line in block["content"].splitlines(keepends=True))
    return tomllib.loads("".join(lines))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_says_which_python_and_packages_it_needs(path: Path) -> None:
    found, project = metadata_of(path), PROJECT["project"]
    assert found["requires-python"] == project["requires-python"]
    assert found["dependencies"] == [project["name"]]
    source = found["tool"]["uv"]["sources"][project["name"]]  # editable: it finds `reproduction`, too
    assert (path.parent / source["path"]).resolve() == ROOT
    assert source["editable"]


def test_the_wheel_has_the_package_whole_and_nothing_else() -> None:
    assert PROJECT["tool"]["hatch"]["build"]["targets"] == {"wheel": {"packages": ["remat_explorer"]}}
    package = (ROOT / "remat_explorer").rglob("*")
    files = [str(path) for path in package if path.is_file() and "__pycache__" not in path.parts]
    assert {Path(name).suffix for name in files} >= {".py", ".js", ".css", ".html"}
    assert (
        sum(name.endswith("explorer/controllers/first_look.json") for name in files) == 1
    )  # the first picture comes with it
    ignored = subprocess.run(["git", "check-ignore", *files], cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout == ""  # what git ignores is left out of a wheel


def test_the_pages_of_the_demo_are_shipped_whole() -> None:
    pages = sorted(path.name for path in (ROOT / "docs" / "live").glob("*.html"))
    assert pages == sorted(Path(link).name for link in links(page("docs/teaching.md")) if link.startswith("live/"))
    for name in pages:
        text = page(f"docs/live/{name}")
        assert text.rstrip().endswith("</html>")
        assert not re.search(r"""<(script|link)[^>]+(src|href)=["']https?:""", text)  # it needs no network
    assert stale() == [], "run: python -m tools.website.demo_pages"
