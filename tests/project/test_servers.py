"""Commands and servers in a folder of somebody else's files: what they import, whom they answer, and how they end."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import remat_explorer as rx
from remat_explorer.solvers.jobs.worker_process import Processes
from tests.project.servers import Server, plant, planted, served
from tests.thorough import thorough

UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket"}
UPGRADE |= {"Sec_WebSocket_Version": "13", "Sec_WebSocket_Key": "aGVsbG8="}


NET = """
from torch import nn

import layers  # beside this file

def make_model():
    import sizes
    return nn.Sequential(*layers.make(sizes.WIDTH)), layers.example(sizes.WIDTH)
"""
LAYERS = """
import torch
from torch import nn

def make(width):
    return [nn.Linear(width, width) for _ in range(3)]

def example(width):
    return (torch.ones(4, width),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph file, a model file with two modules in a folder below, and planted modules and configurations."""
    folder = tmp_path_factory.mktemp("servers") / "downloaded"
    (folder / "nets").mkdir(parents=True)
    rx.linear(8).save(str(folder / "chain.json"))
    for name, text in (("net", NET), ("layers", LAYERS), ("sizes", "WIDTH = 8")):
        (folder / "nets" / f"{name}.py").write_text(text)
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
    """Processes of a server that are left after a signal has ended it."""
    family = server.family()
    server.process.send_signal(number)
    server.process.wait(240)
    _, left = psutil.wait_procs(family, timeout=120)
    return left


def test_another_site_is_answered_nothing_a_name_that_was_allowed_is_and_no_path_leads_out(app: Server) -> None:
    name = f"evil.example:{app.port}"
    for path in ("/", "/voila/static/voila.js", "/api/kernels/00000000-0000-0000-0000-000000000000"):
        for headers in ({"Host": name, "Origin": f"http://{name}"}, {"Host": name}, {"Origin": "http://evil.example"}):
            status, text = app.ask(path, **headers)
            assert status == 403
            assert "The app serves its own page only" in text
    assert kernels(app) == []
    assert app.ask("/voila/static/voila.js", Host="lab.example", Origin="https://lab.example")[0] == 200
    for path in ("%2e%2e/static/voila.js", "lab/static/%2e%2e/%2e%2e/conf.json", "lab", "lab//x", "a%00/static/x"):
        assert app.ask(f"/voila/templates/{path}")[0] == 404


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
    deadline = time.monotonic() + 240
    while len(app.family()) < 3:  # server, kernel, and what the kernel solves with
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ended_by(app, signal.SIGTERM) == []


@pytest.mark.thorough
def test_a_kernel_that_nobody_uses_ends(folder: Path) -> None:
    with served(folder, "app", "--port=8941", "--max-kernels=1", "--idle-minutes=0.05") as server:
        assert server.ask("/")[0] == 200
        _, left = psutil.wait_procs(kernels(server), timeout=240)
        assert left == []


def test_the_lab_imports_nothing_from_its_folder_and_takes_its_kernels_with_it(folder: Path) -> None:
    with served(folder, "lab", "--port=8951") as server:
        assert server.ask("/lab")[0] == 200
        assert planted(folder) == []
        assert server.ask("/api/kernels", "POST")[0] == 201
        assert len(kernels(server)) == 1
        assert ended_by(server, signal.SIGTERM) == []


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(rx.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("started", "arguments"),
    [
        thorough("-P -m", "solve chain.json --budget 4 --no-cache"),  # its own process is as that of the command
        thorough("-m", "solve chain.json --budget 4 --no-cache --strategy checkmate-ilp"),
        thorough("-P -m", "sweep chain.json --budgets 5,8 --workers 1 --no-cache"),
        thorough("-m", "max-batch chain.json --memory 40 --overhead-limit none"),
        ("-m", "report chain.json --budget 5 --no-cache -o report.html"),  # it solves, too
        thorough("-m", "doctor"),
    ],
)
def test_no_module_of_the_working_directory_is_run(started: str, arguments: str, folder: Path) -> None:
    assert run(folder, *started.split(), "remat_explorer.cli", *arguments.split())
    assert planted(folder) == []


def test_compiling_the_search_runs_no_module_of_the_working_directory(folder: Path) -> None:
    run(folder, "-m", "remat_explorer.solvers.search.compilation")
    assert planted(folder) == []


def test_a_model_file_imports_what_lies_beside_it_and_nothing_else_of_the_working_directory(folder: Path) -> None:
    out = run(folder, "-P", "-m", "remat_explorer.cli", "solve", "nets/net.py:make_model", "--budget", "100%")
    assert "overhead" in out
    assert planted(folder) == []


def test_a_worker_does_not_take_an_empty_entry_of_pythonpath_for_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f"{Path(rx.__file__).parents[1]}:")
    with Processes(1) as processes:
        assert processes.submit(shlex.quote, "a b").result(240) == "'a b'"
    assert planted(folder) == []
