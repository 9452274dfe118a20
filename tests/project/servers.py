"""Servers as commands start them, requests to them, and files called like modules: each notes that it was run."""

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

import remat_explorer as rx

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/[-\w/.]*\?token=(\w{20,})")
PATIENCE = 240  # seconds until a server has to be there


@dataclass(frozen=True)
class Server:
    """A running server: where it is, its token, and its process."""

    port: int
    token: str
    process: subprocess.Popen[bytes]

    def ask(self, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, str]:
        """Status and text of an answer; the token is sent, and headers are written Like_This."""
        address = f"http://127.0.0.1:{self.port}{path}"
        sent = {"Authorization": f"token {self.token}", **{key.replace("_", "-"): headers[key] for key in headers}}
        request = urllib.request.Request(address, method=method, headers=sent, data=b"" if method == "POST" else None)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def family(self) -> list[psutil.Process]:
        """The server's process, its kernels, and what these have started."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Server]:
    """The server that `remat-explorer` starts in a folder with these arguments; it is ended afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(Path(rx.__file__).parents[1])}
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        environment[f"JUPYTER_{name}"] = str(folder.parent / f"{folder.name}-{name}")
    command = [sys.executable, "-m", "remat_explorer.cli", *arguments, "--no-browser"]
    log = folder.parent / f"{folder.name}.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not (found := ADDRESS.search(log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield Server(int(found[1]), found[2], process)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(240)


NAMES = ("json", "numpy", "torch", "mip", "highspy", "numba", "logging")


def plant(folder: Path, *more: str) -> None:
    for name in (*NAMES, *more):
        (folder / f"{name}.py").write_text(f"open({str(folder / f'ran-{name}')!r}, 'w').close()\n")


def planted(folder: Path) -> list[str]:
    return sorted(path.name.removeprefix("ran-") for path in folder.glob("ran-*"))
