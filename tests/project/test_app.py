"""`remat-explorer app`: how its server is started, and what it and its kernels are told."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from remat_explorer.app import Serving
from remat_explorer.app.server import NOTEBOOK, QUIET, app_command, refusal
from remat_explorer.permissions import Permissions
from tests.project.shell import run


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> list[Any]:
    """The command lines that would have been run, with their environments."""
    commands: list[Any] = []

    def become(command: list[str], environment: dict[str, str]) -> None:
        commands.append((command, environment))
        raise SystemExit(0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("remat_explorer.app.server.become", become)
    return commands


def test_it_asks_for_a_token_and_listens_on_this_machine_only(launched: list[Any], tmp_path: Any, capsys: Any) -> None:
    assert run(capsys, "app", "--no-browser", "--port", "8890", "--theme", "dark")[0] == 0
    command, environment = launched[0]
    assert command[:5] == [sys.executable, "-P", "-m", "remat_explorer.app.server", str(NOTEBOOK)]
    assert {"--token", "--Voila.ip=127.0.0.1", "--port=8890", "--theme=dark", "--no-browser"} <= set(command)
    assert environment["REMAT_EXPLORER_FOLDER"] == str(tmp_path)
    assert environment["JUPYTER_PATH"].startswith(str(QUIET))
    assert environment["PYTHONSAFEPATH"] == "1"


def test_only_an_option_leaves_the_token_out(launched: list[Any], capsys: Any) -> None:
    run(capsys, "app", "--without-token")
    run(capsys, "app")
    assert ["--token" in command for command, _ in launched] == [False, True]
    assert "--no-browser" not in app_command(Serving())


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


def test_what_is_named_at_the_start_must_be_model_files_that_exist(launched: list[Any], capsys: Any) -> None:
    for name, said in (("vgg16", "'vgg16' is no model file"), ("missing.py:make_model", "cannot read 'missing.py'")):
        code, _, error = run(capsys, "app", name)
        assert code == 64
        assert said in error
    assert launched == []


def test_hosts_kernels_and_minutes_reach_the_server(launched: list[Any], capsys: Any) -> None:
    run(capsys, "app", "--allow-host", "lab.example", "--max-kernels", "2", "--idle-minutes", "0.5")
    assert {
        "--ExplorerServer.hosts=lab.example",
        "--LimitedKernelManager.most=2",
        "--LimitedKernelManager.cull_idle_timeout=30",
    } <= set(launched[0][0])


@pytest.mark.parametrize("minutes", ["-1", "inf", "soon"])
def test_a_time_that_is_none_is_refused(minutes: str, launched: list[Any], capsys: Any) -> None:
    code, _, error = run(capsys, "app", "--idle-minutes", minutes)
    assert code == 64
    assert f"{minutes!r} is not a number of minutes" in error or minutes == "-1"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8866"},
        {"Host": "LOCALHOST:8866", "Origin": "http://localhost:8866"},
        {"Host": "[::1]:8866", "Origin": "http://[::1]:8866"},
        {"Host": "lab.example", "Origin": "https://lab.example"},  # behind a proxy
        {"Host": "localhost:8866", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},  # a link
        {"Host": "localhost:8866", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_the_page_itself_is_served(headers: dict[str, str]) -> None:
    assert refusal(headers, ["lab.example"]) == ""


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": ""},
        {"Host": "evil.example:8866", "Origin": "http://evil.example:8866"},  # a name that resolves to this machine
        {"Host": "localhost.evil.example"},
        {"Host": "localhost@evil.example"},
        {"Host": "localhost:8866", "Origin": "http://127.0.0.1:8866"},  # another origin, if the same machine
        {"Host": "localhost:8866", "Origin": "http://localhost:8888"},
        {"Host": "localhost:8866", "Origin": "null"},
        {"Host": "localhost:8866", "Sec-WebSocket-Origin": "http://evil.example"},
        {"Host": "localhost:8866", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},  # an image
        {"Host": "localhost:8866", "Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_what_another_page_makes_a_browser_ask_for_is_not_served(headers: dict[str, str]) -> None:
    assert refusal(headers, ["lab.example"]) != ""


def test_the_notebook_and_the_template_come_with_the_package() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells] == [[]]
    page = QUIET / "voila" / "templates" / "remat_explorer" / "index.html.j2"
    assert "http" not in page.read_text(encoding="utf-8")
