"""A command as a shell sees it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

import pytest

from remat_explorer import cli


def run(
    capsys: pytest.CaptureFixture[str], *arguments: str, main: Callable[[Sequence[str]], int] = cli.main
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def hear_interrupts() -> None:
    """For a new process, which inherits that its parent ignores Ctrl-C, as processes that share out tests do."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
