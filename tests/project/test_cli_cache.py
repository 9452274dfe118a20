"""`remat-explorer cache`: what it lists, what it removes."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from remat_explorer.cli import main

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
    """A cache with what a solve leaves there."""
    folder = tmp_path_factory.mktemp("solved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAT_EXPLORER_CACHE", str(folder))
        assert main(["solve", str(data / "graphs" / "linear8.json"), "--budget", "10"]) == 0
    return folder


@pytest.fixture
def folder(solved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_list_names_graph_strategy_budget_status_size_and_age(capsys, folder):
    solutions, profiles, convolutions, total = listed(capsys, "list").strip().split("\n\n")
    assert solutions.splitlines()[1].split()[:6] == ["linear8", "optimal", "10", "B", "optimal", "60.0"]
    assert "0123456789ab…" in profiles
    assert "cpu, an abacus" in profiles
    assert "1 day ago" in profiles
    assert convolutions.splitlines()[1].startswith("input of 8x3x32x32 by 16x3x3x3, float16       2  a loom")
    assert total.startswith("1 solution, 1 profile, 1 convolution and 0 looks, ")
    assert total.endswith(str(folder))


def test_list_of_one_kind_as_json(capsys, folder):
    document = json.loads(listed(capsys, "list", "solutions", "--json"))
    (entry,) = document["solutions"]
    assert document.keys() == {"folder", "solutions"}
    assert (entry["graph"], entry["strategy"], entry["budget"], entry["status"]) == (
        "linear8",
        "optimal",
        10,
        "optimal",
    )
    assert entry["bytes"] == Path(entry["path"]).stat().st_size


@pytest.mark.parametrize("content", ["{", "[]", '{"key": 3}', '{"key": {"graph": 1}}'])
def test_an_unreadable_file_is_listed_as_that(capsys, folder, content):
    for name in ("solution-1.json", "profile-1.json", "cudnn-1.json"):
        (folder / name).write_text(content)
    assert listed(capsys, "list").count("(unreadable)") == 3


def test_clear_says_what_it_removed_and_leaves_what_is_not_ours(capsys, folder):
    assert listed(capsys, "clear").startswith("removed 1 solution, 1 profile, 1 convolution and 0 looks, ")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert listed(capsys, "list").startswith("0 solutions, 0 profiles, 0 convolutions and 0 looks, 0 B in ")


def test_clear_of_one_kind_leaves_the_other(capsys, folder):
    document = json.loads(listed(capsys, "clear", "profiles", "--json"))
    assert (document["profiles"], document["bytes"]) == (1, len(json.dumps(PROFILE)))
    assert (
        listed(capsys, "list").strip().splitlines()[-1].startswith("1 solution, 0 profiles, 1 convolution and 0 looks")
    )


def test_a_cache_that_was_never_made_is_empty(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "none"))
    assert listed(capsys, "list").startswith("0 solutions, 0 profiles, 0 convolutions and 0 looks")
    assert listed(capsys, "clear").startswith("removed 0 solutions, 0 profiles, 0 convolutions and 0 looks")
    assert not (tmp_path / "none").exists()


def test_an_unknown_action_leaves_with_64(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["cache", "empty"])
    assert stop.value.code == 64
    assert "invalid choice: 'empty'" in capsys.readouterr().err
