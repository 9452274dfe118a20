"""The servers of `app` and `lab`, with kernels: what they import, whom they answer, and how they end."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.project.planted import plant, planted
from tests.project.servers import Server, served

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "aGVsbG8=",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the servers are started: somebody has planted modules and configurations there."""
    folder = tmp_path_factory.mktemp("servers") / "downloaded"
    folder.mkdir()
    plant(folder, "voila", "tornado", "ipykernel", "jupyter_server_config", "jupyter_lab_config")
    return folder


@pytest.fixture(scope="module")
def app(folder: Path) -> Iterator[Server]:
    """The app, of which one page may be open."""
    with served(folder, "app", "--port=8931", "--max-kernels=1", "--allow-host=lab.example") as server:
        yield server


def words_of(process: psutil.Process) -> list[str]:
    """The command of a process, empty for one that has just ended, as what the lab asks at its start does."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # and ZombieProcess, which is one
        return []


def kernels(server: Server) -> list[psutil.Process]:
    """Those of a server; what a kernel starts has the kernel's command line for a moment."""
    found = [process for process in server.family() if "ipykernel_launcher" in words_of(process)]
    return [process for process in found if process.ppid() not in {other.pid for other in found}]


def ended_by(server: Server, number: int) -> list[psutil.Process]:
    """Processes of a server that are left some seconds after a signal has ended it."""
    family = server.family()
    server.process.send_signal(number)
    server.process.wait(60)
    _, left = psutil.wait_procs(family, timeout=20)
    return left


@pytest.mark.parametrize("path", ["/", "/voila/static/voila.js", "/api/kernels/00000000-0000-0000-0000-000000000000"])
def test_another_site_is_answered_nothing_though_it_has_the_token(app: Server, path: str) -> None:
    name = f"evil.example:{app.port}"
    for headers in ({"Host": name, "Origin": f"http://{name}"}, {"Host": name}, {"Origin": "http://evil.example"}):
        status, text = app.ask(path, **headers)
        assert status == 403
        assert "The app serves its own page only" in text
    assert kernels(app) == []


@pytest.mark.parametrize(
    "path",
    [
        "%2e%2e/static/voila.js",
        "lab/%2e%2e/voila.js",
        "lab/static/%2e%2e/%2e%2e/conf.json",
        "lab",
        "lab//x",
        "a%00/static/x",
    ],
)
def test_a_path_of_the_template_that_leads_out_of_it_is_not_found(app: Server, path: str) -> None:
    assert app.ask(f"/voila/templates/{path}")[0] == 404


def test_a_name_that_was_allowed_is_served(app: Server) -> None:
    assert app.ask("/voila/static/voila.js", Host="lab.example", Origin="https://lab.example")[0] == 200


def test_a_page_starts_a_kernel_whose_socket_opens_for_that_page_alone(app: Server, folder: Path) -> None:
    status, text = app.ask("/", Origin=f"http://127.0.0.1:{app.port}")
    assert status == 200
    identity = text.partition('"kernelId": "')[2].partition('"')[0]
    assert len(kernels(app)) == 1
    channels = f"/api/kernels/{identity}/channels"
    assert app.ask(channels, **UPGRADE, Origin="http://evil.example")[0] == 403
    assert app.ask(channels, **UPGRADE, Host="evil.example", Origin="http://evil.example")[0] == 403
    assert planted(folder) == []


def test_one_page_more_than_there_may_be_is_told_what_to_do(app: Server) -> None:
    assert len(kernels(app)) == 1
    status, text = app.ask("/")
    assert status == 503
    assert "Close a page that is not needed any more" in text
    assert "--max-kernels 2" in text
    assert len(kernels(app)) == 1


def test_the_end_of_the_app_is_the_end_of_its_kernels(app: Server) -> None:
    deadline = time.monotonic() + 60
    while len(app.family()) < 3:  # server, kernel, and what the kernel solves with
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ended_by(app, signal.SIGTERM) == []


def test_a_kernel_that_nobody_uses_ends(folder: Path) -> None:
    with served(folder, "app", "--port=8941", "--max-kernels=1", "--idle-minutes=0.05") as server:
        assert server.ask("/")[0] == 200
        _, left = psutil.wait_procs(kernels(server), timeout=60)
        assert left == []


def test_the_lab_imports_nothing_from_its_folder_and_takes_its_kernels_with_it(folder: Path) -> None:
    with served(folder, "lab", "--port=8951") as server:
        assert server.ask("/lab")[0] == 200
        assert planted(folder) == []
        assert server.ask("/api/kernels", "POST")[0] == 201
        assert len(kernels(server)) == 1
        assert ended_by(server, signal.SIGTERM) == []
