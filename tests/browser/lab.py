"""JupyterLab or Notebook 7 in Chromium: serve a folder, open a notebook, run its cells. All stays on 127.0.0.1."""

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
RUN = """async (code) => {
    const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session;
    const asked = kernel.requestExecute({code, store_history: false});
    let printed = '';
    asked.onIOPub = ({header, content}) => { if (content.name === 'stdout') printed += content.text; };
    const {content} = await asked.done;
    if (content.status !== 'ok') throw new Error((content.traceback ?? [content.status]).join('\\n'));
    return printed;
}"""
HAS_KERNEL = """() => {
    const kernel = window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel;
    return kernel?.connectionStatus === 'connected';
}"""
# Explorers end their work, widgets leave the page, and names are forgotten.
FORGET = """
import sys, ipywidgets
from ipywidgets.widgets.widget import _instances
if module := sys.modules.get("remat_explorer.explorer"):
    for explorer in [kept for kept in list(_instances.values()) if isinstance(kept, module.Explorer)]:
        explorer.close()
ipywidgets.Widget.close_all()
get_ipython().reset(new_session=False)
"""
# JupyterLab's splash screen must be gone before the next change: it is removed twice otherwise, which is an error.
THEME = """async (theme) => {
    await window.jupyterapp.commands.execute('apputils:change-theme', {theme: `JupyterLab ${theme}`});
    const light = String(theme === 'Light');
    while (document.body.dataset.jpThemeLight !== light || document.getElementById('jupyterlab-splash'))
        await new Promise((go) => setTimeout(go, 50));
}"""
END = """async () => {
    const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session;
    if (kernel.status === 'busy') await kernel.interrupt(); // a test has ended before its cell
}"""
REPLACE = """(notebook) => window.jupyterapp.shell.currentWidget.context.model.fromJSON(notebook)"""
SECONDS = 120  # until something is to be on a page, however busy the machine is
LOCAL = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:", "file://")


def code_cells(sources: Sequence[str]) -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    nbformat.write(code_cells(cells), path)


@contextmanager
def serve(folder: Path, dark: bool = False, program: str = "jupyterlab") -> Iterator[str]:
    """JupyterLab, or another ``program`` (notebook), on ``folder`` with settings of its own; yields its address."""
    root = folder / "root"
    root.mkdir(exist_ok=True)
    environment = own_environment(folder)
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(folder / "workspaces")
    _settings(folder / "settings", dark)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", program, "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={root}"]
    command += [f"--{app}.expose_app_in_browser=True" for app in ("LabApp", "JupyterNotebookApp")]
    log = folder / "lab.log"
    with running(command, log, env=environment) as server:
        _await(f"http://127.0.0.1:{port}/api", server, log)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def running(command: Sequence[str], log: Path, **given: Any) -> Iterator[subprocess.Popen[Any]]:
    """A server whose output goes to a file, until it is no longer needed."""
    with log.open("w") as stream:
        server = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True, **given)
    try:
        yield server
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def own_environment(folder: Path) -> dict[str, str]:
    """Of Jupyter with settings and files of its own."""
    names = {f"JUPYTER_{name}": str(folder / name) for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")}
    found = {**os.environ, **names, "IPYTHONDIR": str(folder / "ipython")}
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # else every kernel would compile all that it imports
    return found


def _settings(folder: Path, dark: bool) -> None:
    own = folder / "@jupyterlab" / "apputils-extension"
    own.mkdir(parents=True)
    (own / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    if dark:
        (own / "themes.jupyterlab-settings").write_text('{"theme": "JupyterLab Dark"}')


def _await(address: str, server: subprocess.Popen[Any], log: Path) -> None:
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
    context.set_default_timeout(SECONDS * 1000)
    page = context.pages[0]
    page.leaks, page.failures = [], []
    context.on("request", lambda request: page.leaks.append(request.url) if outside(request.url) else None)
    context.route(outside, lambda route: route.abort())
    page.on("pageerror", lambda error: page.failures.append(error.stack or str(error)))
    try:
        yield page
    finally:
        context.close()


def outside(address: str) -> bool:
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
    )


def cell(page: Any, number: int) -> Any:
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


def run(page: Any, code: str) -> str:
    """Run code in the kernel of the open notebook, without a cell, to its end; what it prints.

    Not what the kernel says of itself on stderr: it tells of each subshell whose tasks a collection found pending.
    """
    return page.evaluate(RUN, code)


def run_until(page: Any, code: str, text: str, timeout: float = 60) -> None:
    """Run code until it prints ``text``: what a page changes reaches the kernel a moment later."""
    deadline = time.monotonic() + timeout
    while text not in (printed := run(page, code)):
        assert time.monotonic() < deadline, f"it never printed {text!r}; the last it printed is {printed!r}"
        page.wait_for_timeout(100)


def save(page: Any, path: Path, text: str, timeout: float = 30) -> None:
    """Save the open notebook, which is at ``path``, and wait until ``text`` is in the file."""
    page.keyboard.press("Control+s")
    deadline = time.monotonic() + timeout
    while text not in path.read_text():
        if time.monotonic() > deadline:
            raise AssertionError(f"{path.name} was saved without {text!r}")
        page.wait_for_timeout(100)


class LastingNotebook:
    """A page of JupyterLab with an open notebook and its kernel, which runs in the folder ``root``."""

    def __init__(self, page: Any, address: str, root: Path) -> None:
        self.page = page
        self.root = root
        self.file = root / "lasting.ipynb"
        self._address = address

    def begin(self, *cells: str) -> Any:
        """The page with a notebook of other cells, as if nobody had been there: 1280 x 800, light, nothing run."""
        self.page.set_viewport_size({"width": 1280, "height": 800})
        self.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        if self.page.evaluate(HAS_KERNEL):
            self.clear()
        else:
            write_notebook(self.file, [])
            open_notebook(self.page, self._address, self.file.name)
        self.page.evaluate("() => localStorage.removeItem('remat-explorer.more')")
        self.page.evaluate(REPLACE, code_cells(cells))
        self.page.wait_for_timeout(500)  # what widgets that are gone had still to do
        self.page.failures.clear()
        self.page.leaks.clear()
        return self.page

    def reopen(self) -> None:
        """The notebook as it was saved, with another kernel."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        open_notebook(self.page, self._address, self.file.name)

    def clear(self) -> None:
        """No widgets, no cells, no names, and no work in the background."""
        if self.page.evaluate(HAS_KERNEL):
            self.page.evaluate(THEME, "Light")
            self.page.evaluate(END)
            run(self.page, FORGET)
            self.page.evaluate(REPLACE, code_cells([""]))
