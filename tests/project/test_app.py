"""`remat-explorer app`: how Voila is started."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from remat_explorer.app import NOTEBOOK, QUIET, app_command
from remat_explorer.cli import main


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> list[Any]:
    """The command lines that would have been run, with their environments."""
    commands: list[Any] = []

    class Ended:
        returncode = 0

    def run(command: list[str], env: dict[str, str], check: bool) -> Ended:
        commands.append((command, env))
        return Ended()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("remat_explorer.app.subprocess.run", run)
    return commands


def test_it_asks_for_a_token_and_listens_on_this_machine_only(launched: list[Any], tmp_path: Any) -> None:
    assert main(["app", "--no-browser", "--port", "8890", "--theme", "dark"]) == 0
    command, environment = launched[0]
    assert command[:4] == [sys.executable, "-m", "voila", str(NOTEBOOK)]
    assert {"--token", "--Voila.ip=127.0.0.1", "--port=8890", "--theme=dark", "--no-browser"} <= set(command)
    assert environment["REMAT_EXPLORER_FOLDER"] == str(tmp_path)
    assert environment["JUPYTER_PATH"].startswith(str(QUIET))


def test_only_an_option_leaves_the_token_out(launched: list[Any]) -> None:
    main(["app", "--without-token"])
    main(["app"])
    assert ["--token" in command for command, _ in launched] == [False, True]
    assert "--no-browser" not in app_command(8866, "light", browser=True, token=True)


def test_the_notebook_and_the_template_come_with_the_package() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells] == [[]]
    page = QUIET / "voila" / "templates" / "remat_explorer" / "index.html.j2"
    assert "http" not in page.read_text(encoding="utf-8")
