"""How other Python processes are started: what lies in the working directory is not imported by them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn


def python_command(*arguments: str) -> list[str]:
    """The command line of this Python with arguments; it does not look for modules in the working directory."""
    return [sys.executable, "-P", *arguments]


def python_path(*folders: str, environment: Mapping[str, str] | None = None) -> str:
    """What PYTHONPATH is to be: folders, and behind them those that it has.

    Its empty entries are left out: Python takes them for the working directory.
    """
    inherited = (os.environ if environment is None else environment).get("PYTHONPATH", "")
    return os.pathsep.join([*folders, *filter(None, inherited.split(os.pathsep))])


def become(command: list[str], environment: Mapping[str, str], folder: str | Path = ".") -> NoReturn:
    """Run a command in place of this process: signals for this one then reach it, and its exit code is this one's."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with contextlib.chdir(folder):
        os.execve(command[0], command, dict(environment))
