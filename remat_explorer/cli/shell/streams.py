"""Standard streams as a shell may leave them: closed, full, read by nobody, or for ASCII only.

Almost nothing of the package is imported here, since this comes before everything else.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO

from remat_explorer.plain_text import printable


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
