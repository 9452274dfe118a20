"""How the app's server is started, and what it and its kernels are told."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from remat_explorer.errors import ModelError
from remat_explorer.permissions import Permissions
from remat_explorer.python_process import become, python_command, python_path

QUIET = Path(__file__).parents[1] / "quiet_app"  # the notebook that is served, and the template of its page
NOTEBOOK = QUIET / "explorer.ipynb"
FOLDER = "REMAT_EXPLORER_FOLDER"  # tells the notebook's kernel where the app was started


@dataclass(frozen=True)
class Serving:
    """Who may reach the app, and how much of the machine its pages take.

    Attributes:
        port: TCP port; the next free one is taken when it is in use.
        theme: ground of the page.
        browser: whether to open a browser besides printing the address.
        token: whether who opens the page must have the token; without it, everybody on this machine may.
        hosts: names besides those of this machine by which the page may be reached, such as that of a proxy.
        kernels: pages that may be open at a time; each has a kernel of some hundred megabytes.
        idle_minutes: after which a kernel that nobody uses ends; 0 for never.
    """

    port: int = 8866
    theme: Literal["light", "dark"] = "light"
    browser: bool = True
    token: bool = True
    hosts: tuple[str, ...] = ()
    kernels: int = 4
    idle_minutes: float = 120


def open_app(serving: Serving, permissions: Permissions) -> NoReturn:
    """Become the app's server until it is stopped: a signal that ends this process ends the server and its kernels.

    What lies in the working directory is imported neither by the server nor by its kernels, and no configuration is
    read from there.

    Args:
        serving: who may reach it, and how much it takes.
        permissions: what those may do who reach it.

    Raises:
        ModelError: if a model file that may be chosen does not exist.
    """
    for name in permissions.models or ():
        file = Path(name.rpartition(":")[0])
        if not file.is_file():
            raise ModelError(f"cannot read {str(file)!r}: there is no such file; give path/to/file.py:function")
    become(app_command(serving), app_environment(permissions))


def app_environment(permissions: Permissions) -> dict[str, str]:
    """The environment of the server and of its kernels."""
    paths = [str(QUIET), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    return {
        **os.environ,
        "JUPYTER_PATH": os.pathsep.join(paths),
        "PYTHONPATH": python_path(),
        "PYTHONSAFEPATH": "1",
        FOLDER: str(Path.cwd()),
        **permissions.to_environment(),
    }


def app_command(serving: Serving) -> list[str]:
    """The command line of the server."""
    command = python_command(
        "-m",
        "remat_explorer.app.server",
        str(NOTEBOOK),
        f"--port={serving.port}",
        "--Voila.ip=127.0.0.1",
        "--template=remat_explorer",
        f"--theme={serving.theme}",
        "--VoilaConfiguration.allow_template_override=NO",
        "--show_tracebacks=False",
        "--VoilaConfiguration.multi_kernel_manager_class=remat_explorer.app.kernels.LimitedKernelManager",
        f"--LimitedKernelManager.most={serving.kernels}",
        f"--LimitedKernelManager.cull_idle_timeout={round(60 * serving.idle_minutes)}",
        *(f"--ExplorerServer.hosts={name}" for name in serving.hosts),
    )
    if serving.token:
        command.append("--token")
    if not serving.browser:
        command.append("--no-browser")
    return command
