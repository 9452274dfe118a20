"""What contributors are told is so: targets of make, paths, versions of Python, forms, and what tests load."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import yaml

import remat_explorer as rx
from tests.project.pages import ROOT, blocks, is_target, links, named_files, page

CONTRIBUTING = page("CONTRIBUTING.md")
MAKEFILE = page("Makefile")
PROJECT: dict[str, Any] = tomllib.loads(page("pyproject.toml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
WORKFLOW: dict[str, Any] = yaml.safe_load(page(".github/workflows/test.yml"))["jobs"]["test"]
LISTING = """
import sys, pytest
code = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]])
print("loaded:", sorted({"torch", "numba"} & set(sys.modules)))
sys.exit(code)
"""


def targets(text: str) -> list[str]:
    """What stands behind `make` at the beginning of a line."""
    return re.findall(r"^(?:- run: |run: )?make ([\w-]+)", text, re.MULTILINE)


def pythons() -> list[str]:
    """The versions of Python that pyproject.toml names, such as "3.11"."""
    found = (
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["project"]["classifiers"]
    )
    return [match[1] for match in found if match]


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_file_that_is_named_exists_and_the_readme_links_here(name: str) -> None:
    assert name in links(page("README.md"))
    for path in named_files(page(name)) + links(page(name)):
        assert (ROOT / path).exists(), path


def test_contributing_shows_how_to_set_up_and_to_test() -> None:
    named = targets("\n".join(blocks(CONTRIBUTING, "sh")))
    assert {"setup", "quick", "test"} <= set(named)


def test_quick_lists_paths_that_exist() -> None:
    listed = re.search(r"^QUICK := \$\(addprefix tests/, (.+?)\)$", MAKEFILE, re.MULTILINE | re.DOTALL)
    assert listed
    for path in listed[1].replace("\\\n", " ").split():
        assert (ROOT / "tests" / path).exists(), path


def test_the_vocabulary_has_three_cells_in_every_row_and_each_word_once() -> None:
    rows = [
        row.strip("| ").split(" | ") for row in CONTRIBUTING.partition("## Vocabulary")[2].splitlines() if "|" in row
    ]
    assert rows[0] == ["concept", "word", "what it is not"]
    assert {len(row) for row in rows[2:]} == {3}
    words = [row[1] for row in rows[2:]]
    assert len(words) == len(set(words)) >= 20


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    newest = re.search(r"^## (\S+), \d{4}-\d\d-\d\d$", page("CHANGELOG.md"), re.MULTILINE)
    assert newest
    assert newest[1] == rx.__version__


def test_the_workflow_runs_the_two_commands_on_the_pythons_of_pyproject_and_make_finds_them() -> None:
    assert WORKFLOW["strategy"]["matrix"]["python"] == pythons()
    assert PROJECT["project"]["requires-python"] == f">={pythons()[0]}"
    named = targets("\n".join(step.get("run", "") for step in WORKFLOW["steps"]))
    assert {"explore", "test", "thorough"} <= set(named)
    assert [name for name in named if not is_target(name)] == []
    for version in pythons():
        assert f" python{version}" in MAKEFILE


def test_every_form_has_a_name_and_asks_for_the_doctor() -> None:
    assert len(FORMS) == 2
    for path in FORMS:
        form = yaml.safe_load(path.read_text())
        assert form["name"]
        assert form["description"]
        labels = [part["attributes"]["label"] for part in form["body"]]
        assert "Output of `remat-explorer doctor`" in labels
        assert len({part["id"] for part in form["body"]}) == len(form["body"])


def test_commits_and_checks_are_read_by_the_same_ruff() -> None:
    (repository,) = yaml.safe_load(page(".pre-commit-config.yaml"))["repos"]
    assert f"ruff=={repository['rev'].removeprefix('v')}\n" in page("constraints.txt")
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff-check", "ruff-format"]


def test_tests_of_folders_that_need_neither_torch_nor_numba_load_neither() -> None:
    chosen = ["tests/core", "--ignore=tests/core/test_import.py", "tests/explanations/test_values.py"]
    chosen += ["-m", "not thorough", "-k", "not so_many_stages"]  # which takes seconds, and imports nothing of its own
    command = [sys.executable, "-c", LISTING, *chosen]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert found.returncode == 0, found.stdout
    assert found.stdout.splitlines()[-1] == "loaded: []"
