"""The explorer as others may see it: model files by name only, downloads, and files that the browser hands over."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.errors import RematError
from remat_explorer.explorer.work.schedule_comparison import open_solution_file, open_uploaded_solution
from remat_explorer.permissions import Permissions
from tests.explorer.driven import settled

LEAST = Permissions((), saving=False, paths=False)
QUIET: Any = {"measured_costs": False, "sweep": False, "improve": False}
NET = """
open("ran", "w").close()
from torch import nn
import torch

def make_model():
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh()), (torch.ones(2, 4),)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a model file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


@pytest.fixture
def explorer(folder: Path) -> Any:
    """An explorer with the least permissions on a solved chain."""
    explorer = settled(rx.Explorer(graph=rx.linear(8), permissions=LEAST, **QUIET))
    explorer.state.budget = 4
    explorer.solve()
    return settled(explorer)


def test_a_model_file_that_was_not_named_is_neither_listed_nor_run(explorer: Any, folder: Path) -> None:
    model = explorer._views[0]._fields["model"][1]
    assert "net.py:make_model" not in model.options
    for name in ("net.py:make_model", "net.py", str(folder / "net.py:make_model")):
        explorer.state.model = name  # as if the page had sent it
        settled(explorer)
        assert explorer.state.tone == "error"
        assert "may not be loaded here" in explorer.state.status
    with pytest.raises(RematError, match="--allow-model-files"):
        rx.Explorer("net.py:make_model", permissions=LEAST)
    assert not (folder / "ran").exists()


def test_a_model_file_that_was_named_is_listed_and_loaded(folder: Path) -> None:
    permissions = Permissions(("net.py:make_model",))
    explorer = settled(rx.Explorer(graph=rx.linear(8), permissions=permissions, **QUIET))
    explorer._views[0]._fields["model"][1].value = "net.py:make_model"
    settled(explorer)
    assert explorer.state.no_execution == ""
    assert explorer.state.tone != "error"
    assert (folder / "ran").exists()


def test_an_export_is_a_download_whatever_the_page_asks_for(explorer: Any, folder: Path) -> None:
    sent: list[Any] = []
    menu = explorer._export.widget
    assert menu.saving is False
    menu.send = lambda message, buffers=None: sent.append(message["do"])
    for download in (True, False):
        explorer._export._heard(menu, {"did": "choose", "kind": "graph", "download": download}, [])
    explorer._export._heard(menu, {"did": "choose", "kind": "plots-svg", "download": False}, [])
    explorer._export._heard(menu, {"did": "picture", "kind": "plots-svg"}, [b"<svg/>"])  # nobody has asked for it
    assert sent == ["download", "download", "picture"]
    assert [path.name for path in folder.iterdir()] == ["net.py"]


def test_a_solution_is_compared_from_what_the_browser_hands_over_and_not_from_a_path(
    explorer: Any, folder: Path
) -> None:
    path = rx.solve(rx.linear(8), budget=5).save(folder / "five.json")
    open_solution_file(explorer.state, str(path))
    state: Any = explorer.state
    assert state.other is None
    assert "opens no files by their path" in explorer.state.status
    panel = explorer._views[6].views["compare"]
    assert not hasattr(panel, "path")
    panel.upload.value = [
        {"name": "five.json", "type": "", "size": 1, "content": path.read_bytes(), "last_modified": datetime.now()}
    ]
    found: Any = explorer.state.other
    assert found.budget == 5
    assert "from five.json" in explorer.state.status


@pytest.mark.parametrize("content", [b"\xff\x00", b"", b'{"format": 3}'])
def test_a_file_that_is_no_solution_is_refused_by_the_name_that_the_browser_gave(content: bytes, explorer: Any) -> None:
    open_uploaded_solution(explorer.state, "mine.json", content)
    assert explorer.state.other is None
    assert explorer.state.tone == "error"
    assert "mine.json" in explorer.state.status
    assert "/tmp" not in explorer.state.status


SECRET = {"password": "hunter2", "token": "hunter2"}


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(SECRET),
        json.dumps([SECRET]),
        json.dumps({**SECRET, "format": "hunter2"}),
        json.dumps({**SECRET, "format": ["hunter2"]}),
        "hunter2\n",
        json.dumps("hunter2"),
    ],
)
def test_an_error_quotes_nothing_of_a_file_that_is_not_ours(content: str, folder: Path) -> None:
    path = folder / "secret.json"
    path.write_text(content)
    graph = rx.linear(8)
    for load in (
        lambda: rx.Graph.load(str(path)),
        lambda: rx.Solution.load(path, graph),
        lambda: rx.Solution.load_schedule(path, graph),
        lambda: rx.Frontier.load(path, graph),
    ):
        with pytest.raises(RematError, match=r"secret\.json") as refused:
            load()
        assert "hunter2" not in str(refused.value)
