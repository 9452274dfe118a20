"""The terminal: standard streams, Ctrl-C while modules are imported, and a browser.

Streams may be closed, full, read by nobody, or for ASCII only. An exception in the middle of an import may end up
anywhere, so Ctrl-C then ends the command at once: there is nothing to keep yet. This comes before everything else, so
almost nothing of the package is imported here.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

from remat_explorer.plain_text import printable

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
REMEDY = "apt-get install -y chromium (or, without root: playwright install chromium)"


def find_chromium() -> str | None:
    """Chromium or Chrome on the PATH, else the one that Playwright has installed, else None.

    Raises:
        ModuleNotFoundError: if none is on the PATH, and Playwright is not installed.
    """
    for name in NAMES:
        if path := shutil.which(name):
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


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


def prepare_streams() -> None:
    """Make the standard streams fit for any text, and open those that are closed on nothing.

    What an encoding does not have is written with escapes. The numbers 0 to 2 of closed streams would else be given to
    the next files that are opened, and whoever writes an error would write it into them.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it has the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a notebook or a test may have put something else in its place
            stream.reconfigure(errors="backslashreplace")


def complain(text: str) -> None:
    """A line on standard error that begins with the program's name, if anybody can be told at all."""
    tell(f"remat-explorer: {text}")


def tell(text: str) -> None:
    """Lines on standard error, if anybody can be told at all; else that is led to nothing."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Lead a stream that cannot be written to nothing, or Python complains again when it flushes it at the end."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
