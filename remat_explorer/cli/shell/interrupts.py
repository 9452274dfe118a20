"""Ctrl-C while modules are imported: the command ends at once, since there is nothing to keep yet.

An exception that is raised in the middle of an import may end up anywhere: in code that takes it for a package that is
missing, in a callback that cannot raise, or in a traceback on the terminal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130
IMPORTING = "<frozen importlib"  # how the code of Python's import system calls its file


@contextlib.contextmanager
def leaving_imports() -> Iterator[None]:
    """Within the body, Ctrl-C ends the process where a module is being imported, and else raises as ever.

    Where Ctrl-C is ignored or handled in another way, and outside of the main thread, nothing changes.
    """
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return
    signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _interrupted(number: int, frame: FrameType | None) -> None:
    code = frame
    while code is not None:
        if code.f_code.co_filename.startswith(IMPORTING):
            with contextlib.suppress(OSError):
                os.write(2, b"remat-explorer: interrupted\n")
            os._exit(INTERRUPTED)
        code = code.f_back
    signal.default_int_handler(number, frame)
