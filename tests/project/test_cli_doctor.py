"""`remat-explorer doctor`: every question is answered, and one that fails is a row that says why."""

import contextlib
import importlib.metadata
import io
import json
import tomllib
from typing import Any

import pytest
import torch

import remat_explorer as rx
from remat_explorer.cli import machine as module
from remat_explorer.cli import main
from remat_explorer.cli.machine import NEEDED, PACKAGES
from remat_explorer.offload import Transfers
from remat_explorer.solvers import BACKENDS
from remat_explorer.solvers.search import compilation
from tests.project.pages import page
from tests.project.shell import run

doctor: Any = module


def broken(*_: Any) -> None:
    raise OSError("it is broken\nin two lines")


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """What it says here, where nothing is missing."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["doctor", "--json"]) == 0
    return json.loads(out.getvalue())


def test_everything_that_is_needed_is_here_and_the_object_says_what(answers: dict[str, Any]) -> None:
    assert answers["missing"] == []
    assert set(answers) == {*doctor.QUESTIONS, "missing"}
    assert answers["versions"]["remat-explorer"] == rx.__version__
    assert answers["versions"]["torch"] == importlib.metadata.version("torch")
    assert answers["devices"]["cpu"]["free_bytes"] <= answers["devices"]["cpu"]["total_bytes"]
    copies = answers["copies"]["cpu"]
    assert all(copies[f"{way}_per_second"] > 1e6 for way in ("out", "back", "out_beside_computing"))
    named = Transfers.of(copies["option"].removeprefix('--offload "').removesuffix('"'))
    assert named.out == pytest.approx(copies["out_beside_computing_per_second"], rel=1e-3)
    assert named.back == pytest.approx(copies["back_beside_computing_per_second"], rel=1e-3)
    assert answers["solvers"]["highs"] == answers["solvers"]["cbc"] == {"loads": True}
    assert set(answers["solvers"]) == set(BACKENDS)
    assert answers["search"]["compiled"]["ahead"] == compilation.is_compiled()
    assert answers["notebooks"]["kernel"]["this_one"]
    for row in NEEDED:
        group, name = row.split(maxsplit=1)
        assert name in answers[group]
    asked = tomllib.loads(page("pyproject.toml"))["project"]["dependencies"]
    assert set(PACKAGES) <= {entry.partition(">=")[0] for entry in asked}


def test_the_text_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str], answers: dict[str, Any]) -> None:
    code, out, _ = run(capsys, "doctor")
    rows = [(group, name.replace("_", " ")) for group in doctor.QUESTIONS for name in answers[group]]
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == len(rows) + 2
    assert all(group in line and name in line for (group, name), line in zip(rows, lines, strict=False))
    assert lines[-1] == "everything that is needed is here"


def test_what_is_needed_and_fails_is_named_and_the_others_are_answered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name == "plotly":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    for place in ("_processor", "_solver", "_compiled"):
        monkeypatch.setattr(doctor, place, broken)
    code, out, _ = run(capsys, "doctor", "--json")
    found = json.loads(out)
    assert code == 69
    assert sorted(found["missing"]) == ["devices cpu", "search compiled", "solvers highs", "versions plotly"]
    for group, name in (("devices", "cpu"), ("search", "compiled"), ("solvers", "highs")):
        assert found[group][name] == {"error": "OSError: it is broken"}
    assert found["versions"]["torch"] == "1.0"
    assert run(capsys, "doctor")[1].splitlines()[-1].startswith("missing: ")


def test_what_only_a_part_needs_may_fail(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("_browser", "_kernel", "_threads", "entries", "cache_folder"):
        monkeypatch.setattr(doctor, place, broken)
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert out.count("OSError: it is broken\n") >= 4


def test_a_build_without_cuda_and_a_machine_without_a_driver_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert doctor._graphics() == {"cuda": {"none": f"PyTorch {torch.__version__} is built without CUDA"}}
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", broken)
    assert doctor._graphics() == {"cuda": {"none": "OSError: it is broken"}}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_is_there_with_its_memory_and_capability(answers: dict[str, Any]) -> None:
    first = answers["devices"]["cuda:0"]
    assert first["name"] == torch.cuda.get_device_name(0)
    assert 0 < first["free_bytes"] <= first["total_bytes"]
    assert first["cuda"] == torch.version.cuda
    copies = answers["copies"]["cuda:0"]
    assert all(1e8 < copies[f"{way}_per_second"] < 1e12 for way in ("out", "back"))


def test_asking_makes_no_folder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "there" / "none"))
    _, out, _ = run(capsys, "doctor", "--json")
    folder = json.loads(out)["cache"]["folder"]
    assert folder == {"path": str(tmp_path / "there" / "none"), "writable": True, "files": 0, "size_bytes": 0}
    assert not list(tmp_path.iterdir())
