"""`remat-explorer lab`: which notebook it opens, and how."""

import json
import os
import sys
from pathlib import Path

import pytest

from remat_explorer.lab import lab_command, open_lab
from tests.project.shell import run


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """The command lines that would have been run, in an empty working directory."""
    commands: list[list[str]] = []

    def become(command, environment, folder):
        commands.append(command)
        raise SystemExit(0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("remat_explorer.lab.become", become)
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(tmp_path / "workspaces"))
    return commands


def test_where_there_is_no_notebook_a_new_one_is_made_and_later_kept(launched, tmp_path, capsys):
    assert run(capsys, "lab", "--no-browser", "--port", "8890")[0] == 0
    made = tmp_path / "remat_explorer.ipynb"
    assert "rx.Explorer()" in json.loads(made.read_text())["cells"][0]["source"]
    made.write_text("{}")
    assert run(capsys, "lab")[0] == 0
    assert made.read_text() == "{}"
    first, second = launched
    assert first[:4] == [sys.executable, "-P", "-m", "jupyterlab"]
    assert {
        "--port=8890",
        "--no-browser",
        "--LabApp.default_url=/lab/workspaces/remat-explorer/tree/remat_explorer.ipynb",
    } <= set(first)
    assert "--no-browser" not in second


def test_the_repository_s_notebook_is_opened_where_there_is_one(launched, tmp_path, capsys):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_explorer.ipynb").write_text("{}")
    run(capsys, "lab")
    assert "--LabApp.default_url=/lab/workspaces/remat-explorer/tree/notebooks/01_explorer.ipynb" in launched[0]
    assert not (tmp_path / "remat_explorer.ipynb").exists()


def test_a_notebook_elsewhere_is_served_from_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = tmp_path.parent / "my notes.ipynb"
    command = lab_command(other, 8888, browser=True)
    assert f"--ServerApp.root_dir={tmp_path.parent.resolve()}" in command
    assert "--LabApp.default_url=/lab/workspaces/remat-explorer/tree/my%20notes.ipynb" in command


def test_a_server_that_cannot_be_started_leaves_the_working_directory_as_it_was(monkeypatch, tmp_path):
    def refuse(*arguments):
        raise OSError("no such program")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(tmp_path / "workspaces"))
    monkeypatch.setattr(os, "execve", refuse)
    with pytest.raises(OSError, match="no such program"):
        open_lab(None, 8888)
    assert Path.cwd() == tmp_path


def test_a_notebook_that_is_not_there_leaves_with_64(launched, capsys):
    code, _, said = run(capsys, "lab", "missing.ipynb")
    assert code == 64
    assert "'missing.ipynb'" in said
    assert launched == []


def test_the_side_bars_are_closed_at_first_and_later_as_they_were_left(launched, tmp_path, capsys):
    run(capsys, "lab")
    (workspace,) = (tmp_path / "workspaces").iterdir()
    kept = json.loads(workspace.read_text())
    assert kept["data"]["layout-restorer:data"]["left"]["collapsed"]
    kept["data"]["layout-restorer:data"]["left"]["collapsed"] = False
    workspace.write_text(json.dumps(kept))
    run(capsys, "lab")
    assert json.loads(workspace.read_text()) == kept


def test_where_no_workspace_can_be_written_jupyterlab_opens_all_the_same(launched, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(tmp_path / "file" / "workspaces"))
    run(capsys, "lab")
    assert len(launched) == 1
