"""JupyterLab or Notebook 7 in Chromium: serve a folder, open a notebook, run its cells. All stays on 127.0.0.1."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOCAL = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:", "file://")


def code_cells(sources: Sequence[str]) -> nbformat.NotebookNode:
    """A notebook of code cells for the Python that runs this."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    """A file with a notebook of code cells."""
    nbformat.write(code_cells(cells), path)


@contextmanager
def serve(folder: Path, dark: bool = False, program: str = "jupyterlab") -> Iterator[str]:
    """JupyterLab, or another ``program`` (notebook), on ``folder`` with settings of its own; yields its address."""
    root = folder / "root"
    root.mkdir(exist_ok=True)
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every kernel would compile all that it imports
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        environment[f"JUPYTER_{name}"] = str(folder / name)
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(folder / "workspaces")
    environment["IPYTHONDIR"] = str(folder / "ipython")
    _settings(folder / "settings", dark)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", program, "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={root}"]
    command += [f"--{app}.expose_app_in_browser=True" for app in ("LabApp", "JupyterNotebookApp")]
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            _await(f"http://127.0.0.1:{port}/api", server, folder / "lab.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)


def _settings(folder: Path, dark: bool) -> None:
    own = folder / "@jupyterlab" / "apputils-extension"
    own.mkdir(parents=True)
    (own / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    if dark:
        (own / "themes.jupyterlab-settings").write_text('{"theme": "JupyterLab Dark"}')


def _await(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.poll() is None:
        try:
            opener.open(address, timeout=1)
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not answer: {log.read_text()[-2000:]}")


@contextmanager
def browse(
    playwright: Any, folder: Path, chromium: str, width: int = 1280, height: int = 800, dark: bool = False
) -> Iterator[Any]:
    """A page in a fresh ``chromium``; ``page.leaks`` and ``page.failures`` list outside requests and page errors."""
    context = playwright.chromium.launch_persistent_context(
        folder,
        executable_path=chromium,
        headless=True,
        args=list(FLAGS),
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
    )
    page = context.pages[0]
    page.leaks, page.failures = [], []
    context.on("request", lambda request: page.leaks.append(request.url) if outside(request.url) else None)
    context.route(outside, lambda route: route.abort())
    page.on("pageerror", lambda error: page.failures.append(str(error)))
    try:
        yield page
    finally:
        context.close()


def outside(address: str) -> bool:
    """Whether a request would leave this machine."""
    return not address.startswith(LOCAL)


def open_notebook(page: Any, address: str, name: str, place: str = "doc/tree") -> None:
    """Open a notebook, which Notebook 7 has in the ``place`` notebooks, and wait until its kernel has answered."""
    page.goto(f"{address}/{place}/{name}?reset")
    page.wait_for_function(  # not an async one: its promise would count as true
        """() => {
            const widget = window.jupyterapp && window.jupyterapp.shell.currentWidget;
            const session = widget && widget.context && widget.context.isReady && widget.sessionContext;
            const kernel = session && session.isReady && session.session && session.session.kernel;
            return kernel && kernel.connectionStatus === "connected" && kernel.status === "idle";
        }""",
        timeout=90_000,
    )


def cell(page: Any, number: int) -> Any:
    """A code cell of the open notebook."""
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").nth(number)


def run_cell(page: Any, number: int, timeout: float = 90) -> None:
    """Run a cell with Ctrl+Enter and wait for its end.

    While a session is still attaching JupyterLab sometimes drops the execution and shows ``[ ]:`` again: press again.
    """
    prompt = cell(page, number).locator(".jp-InputArea-prompt").first
    before, deadline = prompt.inner_text(), time.monotonic() + timeout
    while time.monotonic() < deadline:
        question = page.locator(".jp-Dialog .jp-mod-accept")  # on a busy machine it sometimes asks for the kernel
        if question.count():
            question.first.click()
        if "*" not in prompt.inner_text():
            cell(page, number).locator(".cm-content").click()
            page.keyboard.press("Control+Enter")
        for waited in range(40):
            page.wait_for_timeout(100)
            shown = prompt.inner_text()
            if re.fullmatch(r"\[\d+\]:", shown) and shown != before:
                return
            if shown == "[ ]:" and waited >= 20:
                break
    raise AssertionError(f"cell {number} never finished; its prompt is {prompt.inner_text()!r}")


def run_until_printed(page: Any, number: int, text: str, timeout: float = 60) -> None:
    """Run a cell until it prints ``text``: what a page changes reaches the kernel after cells that are run at once."""
    deadline = time.monotonic() + timeout
    while text not in (printed := _printed(page, number)):
        if time.monotonic() > deadline:
            raise AssertionError(f"cell {number} never printed {text!r}; the last it printed is {printed!r}")
        run_cell(page, number)
        page.wait_for_timeout(200)
    page.keyboard.press("Escape")


def save(page: Any, path: Path, text: str, timeout: float = 30) -> None:
    """Save the open notebook, which is at ``path``, and wait until ``text`` is in the file."""
    page.keyboard.press("Control+s")
    deadline = time.monotonic() + timeout
    while text not in path.read_text():
        if time.monotonic() > deadline:
            raise AssertionError(f"{path.name} was saved without {text!r}")
        page.wait_for_timeout(100)


def _printed(page: Any, number: int) -> str:
    return "\n".join(cell(page, number).locator(".jp-OutputArea-output").all_inner_texts())
