"""Serve the explorer alone, without code, as a page on this machine, with nothing that calls the outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

QUIET = Path(__file__).parent / "quiet_app"  # the notebook that is served, and the template of its page
NOTEBOOK = QUIET / "explorer.ipynb"
FOLDER = "REMAT_EXPLORER_FOLDER"  # tells the notebook's kernel where the app was started


def open_app(port: int, theme: Literal["light", "dark"] = "light", browser: bool = True, token: bool = True) -> int:
    """Run Voila until it is stopped, and return its exit code. The URL that it prints has Jupyter's token.

    Args:
        port: TCP port; the next free one is taken when it is in use.
        theme: ground of the page.
        browser: whether to open a browser besides printing the URL.
        token: whether who opens the page must have the token; without it, everybody on this machine may.
    """
    paths = [str(QUIET), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    environment = {**os.environ, "JUPYTER_PATH": os.pathsep.join(paths), FOLDER: str(Path.cwd())}
    return subprocess.run(app_command(port, theme, browser, token), env=environment, check=False).returncode


def app_command(port: int, theme: str, browser: bool, token: bool) -> list[str]:
    """The command line of Voila."""
    command = [
        sys.executable,
        "-m",
        "voila",
        str(NOTEBOOK),
        f"--port={port}",
        "--Voila.ip=127.0.0.1",
        "--template=remat_explorer",
        f"--theme={theme}",
        "--VoilaConfiguration.allow_template_override=NO",
        "--show_tracebacks=False",
    ]
    if token:
        command.append("--token")
    if not browser:
        command.append("--no-browser")
    return command
