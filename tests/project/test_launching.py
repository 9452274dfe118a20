"""`remat-explorer app` and `lab`: how their servers are started, whom the app answers, and when it ends kernels."""

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.session import utcnow

from remat_explorer.app import server
from remat_explorer.app.server import NOTEBOOK, QUIET, LimitedKernelManager, refusal
from remat_explorer.lab import lab_command, open_lab
from remat_explorer.permissions import Permissions
from tests.project.shell import run


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The command lines that would have been run, with their environments."""
    commands: list[Any] = []

    def become(command: list[str], environment: dict[str, str], *folder: Any) -> None:
        commands.append((command, environment))
        raise SystemExit(0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(tmp_path / "workspaces"))
    for module in ("app.server", "lab"):
        monkeypatch.setattr(f"remat_explorer.{module}.become", become)
    return commands


def test_it_asks_for_a_token_and_listens_on_this_machine_only_unless_options_say_more(
    launched: list[Any], tmp_path: Any, capsys: Any
) -> None:
    assert run(capsys, "app", "--no-browser", "--port", "8890", "--theme", "dark")[0] == 0
    more = ("--allow-host", "lab.example", "--max-kernels", "2", "--idle-minutes", "0.5")
    run(capsys, "app", "--without-token", *more)
    (command, environment), (open_to_all, _) = launched
    assert command[:5] == [sys.executable, "-P", "-m", "remat_explorer.app.server", str(NOTEBOOK)]
    assert {"--token", "--Voila.ip=127.0.0.1", "--port=8890", "--theme=dark", "--no-browser"} <= set(command)
    assert environment["REMAT_EXPLORER_FOLDER"] == str(tmp_path)
    assert environment["JUPYTER_PATH"].startswith(str(QUIET))
    assert environment["PYTHONSAFEPATH"] == "1"
    assert not {"--token", "--no-browser"} & set(open_to_all)
    assert {
        "--ExplorerServer.hosts=lab.example",
        "--LimitedKernelManager.most=2",
        "--LimitedKernelManager.cull_idle_timeout=30",
    } <= set(open_to_all)


def test_who_is_at_the_page_may_do_the_least_unless_options_say_more(
    launched: list[Any], tmp_path: Any, capsys: Any
) -> None:
    (tmp_path / "net.py").write_text("def make_model(): ...")
    run(capsys, "app")
    run(capsys, "app", "net.py", "--allow-saving")
    run(capsys, "app", "--allow-model-files", "--allow-paths")
    allowed = [Permissions.from_environment(environment) for _, environment in launched]
    assert allowed == [
        Permissions((), saving=False, paths=False),
        Permissions(("net.py:make_model",), saving=True, paths=False),
        Permissions(None, saving=False, paths=True),
    ]


HERE, PORT = "localhost:8866", "127.0.0.1:8866"


@pytest.mark.parametrize(
    ("headers", "served"),
    [
        ({"Host": PORT}, True),
        ({"Host": "LOCALHOST:8866", "Origin": "http://localhost:8866"}, True),
        ({"Host": "lab.example", "Origin": "https://lab.example"}, True),  # behind a proxy
        ({"Host": HERE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True),  # a link
        ({}, False),
        ({"Host": "evil.example:8866", "Origin": "http://evil.example:8866"}, False),  # it resolves to this machine
        ({"Host": "localhost.evil.example"}, False),
        ({"Host": HERE, "Origin": f"http://{PORT}"}, False),  # another origin, if the same machine
        ({"Host": HERE, "Origin": "null"}, False),
        ({"Host": HERE, "Sec-WebSocket-Origin": "http://evil.example"}, False),
        ({"Host": HERE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False),  # an image
        ({"Host": HERE, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "iframe"}, False),
    ],
)
def test_the_page_itself_is_served_and_not_what_another_page_makes_a_browser_ask_for(
    headers: dict[str, str], served: bool
) -> None:
    assert (refusal(headers, ["lab.example"]) == "") is served


def test_the_notebook_and_the_template_come_with_the_package() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells] == [[]]
    page = QUIET / "voila" / "templates" / "remat_explorer" / "index.html.j2"
    assert "http" not in page.read_text(encoding="utf-8")


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> LimitedKernelManager:
    """A manager that may have two kernels, and forgets those that it ends."""
    monkeypatch.setattr(server, "ENDING", 0.2)
    made = LimitedKernelManager(most=2, cull_idle_timeout=7200)

    async def ended(kernel_id: str, **_: Any) -> None:
        del made._kernels[kernel_id]

    monkeypatch.setattr(made, "shutdown_kernel", ended)
    return made


def planted(manager: LimitedKernelManager, name: str, minutes: float, state: str = "idle", pages: int = 0) -> None:
    """A kernel that last said something so long ago."""
    kernel = SimpleNamespace(
        last_activity=utcnow() - timedelta(minutes=minutes),
        execution_state=state,
        kernel_name="python3",
        kernel_spec=SimpleNamespace(metadata={}),
    )
    manager._kernels[name] = kernel  # type: ignore[assignment]
    manager._kernel_connections[name] = pages


def test_a_new_page_takes_the_place_of_the_one_left_for_longest(manager: LimitedKernelManager) -> None:
    planted(manager, "left", 2)
    planted(manager, "left for longer", 3)
    assert asyncio.run(manager.make_room())
    assert manager.list_kernel_ids() == ["left"]


@pytest.mark.parametrize("given", [{"minutes": 0.5}, {"minutes": 90, "pages": 1}, {"minutes": 90, "state": "busy"}])
def test_a_kernel_that_is_new_shown_or_at_work_keeps_its_place(
    manager: LimitedKernelManager, given: dict[str, Any]
) -> None:
    for name in ("one", "other"):
        planted(manager, name, **given)
    assert not asyncio.run(manager.make_room())
    assert manager.list_kernel_ids() == ["one", "other"]


def test_a_new_page_waits_for_a_kernel_that_is_ending(
    manager: LimitedKernelManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ENDING", 240)
    planted(manager, "one", 0)
    planted(manager, "other", 0)

    async def ending() -> bool:
        asyncio.get_running_loop().call_later(0.05, manager._kernels.pop, "other")
        return await manager.make_room()

    assert asyncio.run(ending())
    assert manager.list_kernel_ids() == ["one"]


@pytest.mark.parametrize(
    ("minutes", "pages", "ends"), [(14, 0, False), (16, 0, True), (16, 1, False), (119, 1, False), (121, 1, True)]
)
def test_a_kernel_ends_after_a_quarter_of_an_hour_without_a_page_and_after_the_given_time_with_one(
    manager: LimitedKernelManager, minutes: float, pages: int, ends: bool
) -> None:
    planted(manager, "one", minutes, pages=pages)
    asyncio.run(manager.cull_kernel_if_idle("one"))
    assert ("one" not in manager.list_kernel_ids()) is ends


OPENED = "--LabApp.default_url=/lab/workspaces/remat-explorer/tree"


def test_where_there_is_no_notebook_a_new_one_is_made_and_later_kept(launched, tmp_path, capsys):
    assert run(capsys, "lab", "--no-browser", "--port", "8890")[0] == 0
    made = tmp_path / "remat_explorer.ipynb"
    assert "rx.Explorer()" in json.loads(made.read_text())["cells"][0]["source"]
    made.write_text("{}")
    assert run(capsys, "lab")[0] == 0
    assert made.read_text() == "{}"
    (first, _), (second, _) = launched
    assert first[:4] == [sys.executable, "-P", "-m", "jupyterlab"]
    assert {"--port=8890", "--no-browser", f"{OPENED}/remat_explorer.ipynb"} <= set(first)
    assert "--no-browser" not in second


def test_the_repository_s_notebook_is_opened_where_there_is_one_and_another_from_its_own_folder(
    launched, tmp_path, capsys
):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_explorer.ipynb").write_text("{}")
    run(capsys, "lab")
    assert f"{OPENED}/notebooks/01_explorer.ipynb" in launched[0][0]
    assert not (tmp_path / "remat_explorer.ipynb").exists()
    command = lab_command(tmp_path.parent / "my notes.ipynb", 8888, browser=True)
    assert f"--ServerApp.root_dir={tmp_path.parent.resolve()}" in command
    assert f"{OPENED}/my%20notes.ipynb" in command


def test_a_server_that_cannot_be_started_leaves_the_working_directory_as_it_was(monkeypatch, tmp_path):
    def refuse(*arguments):
        raise OSError("no such program")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(tmp_path / "workspaces"))
    monkeypatch.setattr(os, "execve", refuse)
    with pytest.raises(OSError, match="no such program"):
        open_lab(None, 8888)
    assert Path.cwd() == tmp_path


def test_the_side_bars_are_closed_at_first_and_later_as_they_were_left(launched, tmp_path, capsys, monkeypatch):
    run(capsys, "lab")
    (workspace,) = (tmp_path / "workspaces").iterdir()
    kept = json.loads(workspace.read_text())
    assert kept["data"]["layout-restorer:data"]["left"]["collapsed"]
    kept["data"]["layout-restorer:data"]["left"]["collapsed"] = False
    workspace.write_text(json.dumps(kept))
    run(capsys, "lab")
    assert json.loads(workspace.read_text()) == kept
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(tmp_path / "file" / "workspaces"))  # cannot be written
    run(capsys, "lab")
    assert len(launched) == 3
