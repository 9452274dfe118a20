"""The three places that name packages agree: pyproject.toml, environment.yml and constraints.txt."""

import itertools
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


@pytest.fixture(scope="module")
def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {name_of(line): line for line in lines if line and not line.startswith("#")}


def test_environment_yml_asks_for_what_pyproject_asks_for():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert dependencies[-1]["pip"] == PROJECT["dependencies"]
    assert f"python{PROJECT['requires-python']}" in dependencies


def test_constraints_pin_every_package_that_the_project_names(constraints):
    asked = [*PROJECT["dependencies"], *itertools.chain(*PROJECT["optional-dependencies"].values())]
    assert {name_of(requirement) for requirement in asked} - {PROJECT["name"]} <= set(constraints)


def test_constraints_are_exact_public_versions(constraints):
    for line in constraints.values():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line), line
    assert constraints["torch"] == "torch==2.13.0"


def test_the_lock_has_the_versions_of_the_constraints_with_their_hashes_but_for_builds_by_device(constraints):
    text = (ROOT / "requirements.lock").read_text()
    lines = re.findall(r"^[A-Za-z0-9._-]+==[^\s;\\]+", text, re.MULTILINE)
    locked = {name_of(line): line.partition("==")[2] for line in lines}
    by_device = {"torch", "triton", "nvidia-cudnn-frontend"}
    assert locked == {name: line.partition("==")[2] for name, line in constraints.items() if name not in by_device}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
