import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from remat_explorer import cli


def run(
    capsys: pytest.CaptureFixture[str], *arguments: str, main: Callable[[Sequence[str]], int] = cli.main
) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def customized(folder: Path, code: str) -> str:
    """The PYTHONPATH of a new process that runs this code first."""
    (folder / "sitecustomize.py").write_text(code)
    return os.pathsep.join([str(folder), str(Path(__file__).parents[2])])


def hear_interrupts() -> None:
    """For a new process, which inherits that its parent ignores Ctrl-C, as processes that share out tests do."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
