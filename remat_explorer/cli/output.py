"""What commands print, and the codes they leave with."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from remat_explorer.cli.shell.streams import discard
from remat_explorer.documents import to_json
from remat_explorer.errors import FileError
from remat_explorer.plain_text import one_line
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution, Status

DONE, CONTRADICTED, INFEASIBLE, NOT_IN_TIME, BAD_INPUT, MISSING, INTERRUPTED = 0, 1, 2, 3, 64, 69, 130


def put(options: argparse.Namespace, document: dict[str, Any], text: str) -> None:
    """The result on stdout: one JSON object if that was asked for, else text."""
    try:
        print(to_json(document) if options.json else text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(sys.stdout)
        raise FileError(f"the result cannot be written to standard output: {error.strerror or error}") from None


def say(options: argparse.Namespace, text: str) -> None:
    """Progress for people, on a terminal only, over the line before, and cut where a second line would begin."""
    if sys.stderr.isatty() and not options.json:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        text = text if len(text) < width else f"{text[: width - 2]}…"
        print(f"\r\x1b[2K{text}", end="" if text else "\r", file=sys.stderr, flush=True)


def write_schedule(
    options: argparse.Namespace, name: str, schedule: Schedule, budget: int, seconds: float, solver: str = ""
) -> str:
    """Write a schedule within a budget to ``options.output``, and say so in a line; nothing where none was asked."""
    if not options.output:
        return ""
    Solution(schedule.graph, name, Status.FEASIBLE, budget, schedule, None, seconds, solver).save(options.output)
    return f"\nwritten to {options.output}"


def table(rows: Sequence[Sequence[str]], alignment: str) -> str:
    """Rows as columns of text, the first row as their heads.

    Args:
        rows: cells, as many in each row as ``alignment`` has characters.
        alignment: ``<`` or ``>`` for each column.

    >>> print(table([("name", "bytes"), ("loss", "4 B")], "<>"))
    name  bytes
    loss    4 B
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, alignment, widths, strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
