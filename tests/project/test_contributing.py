"""What contributors are told is so: targets of make, paths, versions, forms, what tests load, what an audit says."""

import itertools
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import remat_explorer as rx
from tests.project.pages import ROOT, blocks, is_target, page

MAKEFILE = page("Makefile")
PROJECT: dict[str, Any] = tomllib.loads(page("pyproject.toml"))["project"]
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
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"])
    return [match[1] for match in found if match]


def test_contributing_shows_how_to_set_up_and_to_test_and_quick_lists_paths_that_exist() -> None:
    assert {"setup", "quick", "test"} <= set(targets("\n".join(blocks(page("CONTRIBUTING.md"), "sh"))))
    listed = re.search(r"^QUICK := \$\(addprefix tests/, (.+?)\)$", MAKEFILE, re.MULTILINE | re.DOTALL)
    assert listed
    for path in listed[1].replace("\\\n", " ").split():
        assert (ROOT / "tests" / path).exists(), path


def test_the_vocabulary_has_three_cells_in_every_row_and_each_word_once() -> None:
    rows = [
        row.strip("| ").split(" | ")
        for row in page("CONTRIBUTING.md").partition("## Vocabulary")[2].splitlines()
        if "|" in row
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
    assert PROJECT["requires-python"] == f">={pythons()[0]}"
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
        labels = [part["attributes"]["label"] for part in form["body"]]
        assert "Output of `remat-explorer doctor`" in labels


def test_commits_and_checks_are_read_by_the_same_ruff() -> None:
    (repository,) = yaml.safe_load(page(".pre-commit-config.yaml"))["repos"]
    assert f"ruff=={repository['rev'].removeprefix('v')}\n" in page("constraints.txt")
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff-check", "ruff-format"]


@pytest.mark.thorough  # it collects tests anew
def test_tests_of_folders_that_need_neither_torch_nor_numba_load_neither() -> None:
    command = [sys.executable, "-c", LISTING, "--collect-only", "tests/core", "tests/explanations"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert found.returncode == 0, found.stdout
    assert found.stdout.splitlines()[-1] == "loaded: []"


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


@pytest.fixture(scope="module")
def constraints() -> dict[str, str]:
    lines = page("constraints.txt").splitlines()
    return {name_of(line): line for line in lines if line and not line.startswith("#")}


def test_environment_yml_asks_for_what_pyproject_asks_for():
    dependencies = yaml.safe_load(page("environment.yml"))["dependencies"]
    assert dependencies[-1]["pip"] == PROJECT["dependencies"]
    assert f"python{PROJECT['requires-python']}" in dependencies


def test_constraints_pin_every_package_that_the_project_names(constraints):
    asked = [*PROJECT["dependencies"], *itertools.chain(*PROJECT["optional-dependencies"].values())]
    assert {name_of(requirement) for requirement in asked} - {PROJECT["name"]} <= set(constraints)
    for line in constraints.values():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line), line  # public, and exact


def test_the_lock_has_the_versions_of_the_constraints_with_their_hashes_but_for_builds_by_device(constraints):
    text = page("requirements.lock")
    lines = re.findall(r"^[A-Za-z0-9._-]+==[^\s;\\]+", text, re.MULTILINE)
    locked = {name_of(line): line.partition("==")[2] for line in lines}
    by_device = {"torch", "triton", "nvidia-cudnn-frontend"}
    assert locked == {name: line.partition("==")[2] for name, line in constraints.items() if name not in by_device}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


GOOD = '{"name": "good", "version": "1", "vulns": []}'
WEAK = '{"name": "weak", "version": "2", "vulns": [{"id": "X-1", "fix_versions": ["3"]}]}'
SKIPPED = '{"name": "skipped", "skip_reason": "not found"}'


def audit(folder: Path, report: str | None) -> tuple[int, str]:
    """Exit code and text of the tool with a pip-audit that writes this report, or fails."""
    program = folder / "pip-audit"
    write = f"echo '{report}' > \"${{out#--output=}}\"" if report else "echo 'ERROR: no network' >&2; exit 1"
    program.write_text(f'#!/bin/sh\nfor a in "$@"; do case "$a" in --output=*) out="$a";; esac; done\n{write}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    command = [sys.executable, str(ROOT / "tools" / "audit.py"), str(program), "constraints.txt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("entries", "code", "said"),
    [
        ([GOOD], 0, "1 of 1 versions were audited; 0 have known weaknesses."),
        ([GOOD, WEAK, SKIPPED], 1, "weak 2: X-1, mended in ['3']"),
        ([GOOD, SKIPPED], 2, "1 could NOT be audited, so nothing is known of them: skipped"),
    ],
)
def test_what_was_not_asked_about_is_not_called_safe(entries: list[str], code: int, said: str, tmp_path: Path) -> None:
    found, text = audit(tmp_path, f'{{"dependencies": [{", ".join(entries)}]}}')
    assert found == code
    assert said in text


def test_without_a_network_it_says_that_nothing_was_audited(tmp_path: Path) -> None:
    code, text = audit(tmp_path, None)
    assert code == 2
    assert text.startswith("Nothing was audited: ERROR: no network.")
