"""Serve JupyterLab opened on a notebook of the explorer, with nothing that calls the outside."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from remat_explorer.documents import write_text
from remat_explorer.errors import RematError
from remat_explorer.python_process import become, python_command

WORKSPACE = "remat-explorer"  # of JupyterLab: what is open in it, and where
CLOSED = {"collapsed": True, "visible": True, "widgets": []}

HOME_NOTEBOOK = Path("notebooks/01_explorer.ipynb")
QUIET = Path(__file__).parent / "quiet_lab"  # configuration: no question about news, no look for updates
NEW_NOTEBOOK = Path("remat_explorer.ipynb")


def open_lab(notebook: str | None, port: int, browser: bool = True) -> NoReturn:
    """Become JupyterLab, until it is stopped: a signal that ends this process ends the server and its kernels.

    The server imports nothing from the working directory. The notebooks' kernels do, as Jupyter has it everywhere.
    Without a path, the notebook is the repository's explorer notebook, else a new one in the working directory. The
    next free port is taken when ``port`` is in use.
    """
    path = Path(notebook) if notebook else HOME_NOTEBOOK if HOME_NOTEBOOK.is_file() else new_notebook()
    if not path.is_file():
        raise RematError(f"there is no notebook {str(path)!r}; give the path of one, or none to start afresh")
    paths = [str(QUIET), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    close_side_bars()
    environment = {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(paths)}
    command = lab_command(path, port, browser)
    # In a folder of ours: Voila, as an extension of the server, would run a file voila.py of the working directory.
    become(command, environment, QUIET)


def lab_command(path: Path, port: int, browser: bool) -> list[str]:
    """The command line of JupyterLab, whose printed URL opens the notebook."""
    here, target = Path.cwd(), path.resolve()
    root = here if target.is_relative_to(here) else target.parent
    command = python_command(
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url=/lab/workspaces/{WORKSPACE}/tree/{quote(target.relative_to(root).as_posix())}",
        f"--port={port}",
    )
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return command


def close_side_bars() -> None:
    """A workspace of JupyterLab for the explorer, whose side bars are closed at first: the explorer needs the width.

    JupyterLab keeps in it how it was left, and opens like that the next time. Where it cannot be written, JupyterLab
    opens as it does everywhere.
    """
    from jupyter_core.paths import jupyter_config_dir
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    folder = os.environ.get("JUPYTERLAB_WORKSPACES_DIR") or str(Path(jupyter_config_dir()) / "lab" / "workspaces")
    sides = {"left": CLOSED, "right": CLOSED, "relativeSizes": [0, 1, 0]}
    layout = {"data": {"layout-restorer:data": sides}, "metadata": {"id": WORKSPACE}}
    with suppress(OSError):
        kept = WorkspacesManager(folder)
        if not kept.load(WORKSPACE)["data"]:
            kept.save(WORKSPACE, json.dumps(layout))


def new_notebook() -> Path:
    """A notebook with the explorer in its first cell, in the working directory; an existing one is kept."""
    if not NEW_NOTEBOOK.exists():
        cell = {
            "cell_type": "code",
            "id": "explorer",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": "import remat_explorer as rx\n\nexplorer = rx.Explorer()\nexplorer",
        }
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        document = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        write_text(NEW_NOTEBOOK, json.dumps(document, indent=1) + "\n")
    return NEW_NOTEBOOK
