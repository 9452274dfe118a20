"""`remat-explorer report`, `policy` and `cache`: what they write, print, remove and leave with."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from remat_explorer.cli import main
from remat_explorer.runtime.peers import policy_loader
from tests.project.shell import run
from tests.runtime.policies import small_transformer

pytestmark = pytest.mark.usefixtures("kept_workers")

NET = """
import torch

def make_model():
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    return torch.nn.Sequential(*layers), (torch.randn(512, 64),), {}, lambda out: out.square().mean()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and working directory for each test."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_graph_file_is_solved_and_reported_and_a_browser_opened_only_when_asked(capsys, chain, folder, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("remat_explorer.cli.execution.webbrowser.open", opened.append)
    code, out, _ = run(capsys, "report", chain, "--budget", "4", "-o", "report.html")
    assert opened == []
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert code == 0
    assert "written to report.html" in out
    assert all(words in page for words in ("The schedule is proven optimal", "linear8.json", "not executed"))
    assert str(Path(chain).parent) not in page
    assert run(capsys, "report", chain, "--budget", "4", "-o", "report.html", "--open")[0] == 0
    assert opened == [(folder / "report.html").as_uri()]


def test_an_infeasible_budget_is_a_report_and_leaves_with_2(capsys, chain, folder):
    code, out, _ = run(capsys, "report", chain, "--budget", "2", "-o", "report.html", "--json")
    assert (code, json.loads(out)["status"], (folder / "report.html").is_file()) == (2, "infeasible", True)


def test_a_model_is_executed_and_validated(capsys, folder):
    (folder / "net.py").write_text(NET)
    arguments = ["--budget", "90%", "--execute", "--device", "cpu", "--repeats", "1", "-o", "report.html", "--json"]
    code, out, _ = run(capsys, "report", "net.py:make_model", *arguments)
    shown = json.loads(out)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert code == 0
    assert shown["measurement"]["gradients_equal"]
    assert "with the gradients of plain PyTorch bit for bit" in page
    assert "from net import make_model" in page
    assert "measured on cpu" in page


def test_a_sweep_is_made_where_it_is_asked_for(capsys, chain, monkeypatch):
    given = {}
    monkeypatch.setattr("remat_explorer.report", lambda solution, path, **more: given.update(more) or Path(path))
    assert main(["report", chain, "--budget", "4", "--sweep", "3", "-o", "report.html"]) == 0
    assert len(given["frontier"].points) >= 2
    assert given["history"]
    capsys.readouterr()


TRANSFORMER = """
def make():
    import torch
    torch.manual_seed(0)
    return SmallTransformer(blocks=2), (torch.randn(16, 32, 8),)
"""


def test_a_policy_is_written_with_its_price(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text(Path(small_transformer.__file__).read_text() + TRANSFORMER)
    file = tmp_path / "policy.json"
    given = [f"{source}:make", "--budget", "85%", "-o", str(file), "--no-cache", "--time-limit", "20"]
    code, out, err = run(capsys, "policy", *given)
    assert code == 0, err
    assert "above the solution" in out
    document = json.loads(file.read_text())
    assert document["regions"]
    assert document["peak"] <= document["budget"]
    assert document["cost"] >= document["lower_bound"]
    assert run(capsys, "policy", "--loader") == (0, Path(policy_loader.__file__).read_text(), "")


PROFILE = {
    "format": "remat-explorer/profile",
    "version": 1,
    "key": {"graph": "0123456789abcdef", "device": "cpu", "processor": "an abacus"},
    "seconds": [0.5, 0.25],
    "workspace": [0, 0],
}
ALGORITHMS = {
    "format": "remat-explorer/execution-plans",
    "version": 1,
    "key": {
        "problem": {"part": "input", "sizes": [[8, 3, 32, 32], [16, 3, 3, 3], [8, 16, 32, 32]], "dtype": "float16"},
        "device": "a loom",
    },
    "plans": [{}, {}],
}


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    made = tmp_path_factory.mktemp("solved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAT_EXPLORER_CACHE", str(made))
        assert main(["solve", str(data / "graphs" / "linear8.json"), "--budget", "10"]) == 0
    return made


@pytest.fixture
def kept(solved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one solution, one profile that is a day old, one convolution, and a file of somebody else."""
    shutil.copytree(solved, tmp_path / "cache")
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    profile = tmp_path / "cache" / "profile-0.json"
    profile.write_text(json.dumps(PROFILE))
    (tmp_path / "cache" / "cudnn-0.json").write_text(json.dumps(ALGORITHMS))
    yesterday = time.time() - 90_000
    os.utime(profile, (yesterday, yesterday))
    (tmp_path / "cache" / "notes.txt").write_text("mine")
    return tmp_path / "cache"


def listed(capsys, *arguments: str) -> str:
    assert main(["cache", *arguments]) == 0
    return capsys.readouterr().out


def test_list_names_graph_strategy_budget_status_size_and_age(capsys, kept):
    solutions, profiles, convolutions, total = listed(capsys, "list").strip().split("\n\n")
    assert solutions.splitlines()[1].split()[:6] == ["linear8", "optimal", "10", "B", "optimal", "60.0"]
    assert "0123456789ab…" in profiles
    assert "cpu, an abacus" in profiles
    assert "1 day ago" in profiles
    assert convolutions.splitlines()[1].startswith("input of 8x3x32x32 by 16x3x3x3, float16       2  a loom")
    assert total.startswith("1 solution, 1 profile, 1 convolution and 0 looks, ")
    assert total.endswith(str(kept))


def test_an_unreadable_file_is_listed_as_that(capsys, kept):
    for content in ("{", "[]", '{"key": 3}', '{"key": {"graph": 1}}'):
        for name in ("solution-1.json", "profile-1.json", "cudnn-1.json"):
            (kept / name).write_text(content)
        assert listed(capsys, "list").count("(unreadable)") == 3


def test_clear_says_what_it_removed_leaves_what_is_not_ours_and_makes_no_folder(capsys, kept, monkeypatch):
    assert listed(capsys, "clear").startswith("removed 1 solution, 1 profile, 1 convolution and 0 looks, ")
    assert [path.name for path in kept.iterdir()] == ["notes.txt"]
    assert listed(capsys, "list").startswith("0 solutions, 0 profiles, 0 convolutions and 0 looks, 0 B in ")
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(kept / "none"))
    assert listed(capsys, "list").startswith("0 solutions, 0 profiles, 0 convolutions and 0 looks")
    assert listed(capsys, "clear").startswith("removed 0 solutions, 0 profiles, 0 convolutions and 0 looks")
    assert not (kept / "none").exists()


def test_one_kind_is_listed_and_cleared_alone(capsys, kept):
    document = json.loads(listed(capsys, "list", "solutions", "--json"))
    (entry,) = document["solutions"]
    assert document.keys() == {"folder", "solutions"}
    told = (entry["graph"], entry["strategy"], entry["budget"], entry["status"])
    assert told == ("linear8", "optimal", 10, "optimal")
    assert entry["bytes"] == Path(entry["path"]).stat().st_size
    document = json.loads(listed(capsys, "clear", "profiles", "--json"))
    assert (document["profiles"], document["bytes"]) == (1, len(json.dumps(PROFILE)))
    assert listed(capsys, "list").splitlines()[-1].startswith("1 solution, 0 profiles, 1 convolution and 0 looks")
