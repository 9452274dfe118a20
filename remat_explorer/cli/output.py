"""What commands print, and the codes they leave with."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remat_explorer.cli.terminal import complain, discard
from remat_explorer.documents import to_json
from remat_explorer.errors import FileError
from remat_explorer.files import is_same_file, require_writable
from remat_explorer.model_source import is_model_file
from remat_explorer.plain_text import one_line, printable
from remat_explorer.quantities import format_seconds
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import Solution, Status

DONE, CONTRADICTED, INFEASIBLE, NOT_IN_TIME, BAD_INPUT, MISSING, INTERRUPTED = 0, 1, 2, 3, 64, 69, 130


LONG = 0.5  # seconds of a part of the work that are worth a word
OUTPUTS = {"output": "-o", "figure": "--figure", "graph": "--graph", "trace": "--trace", "snapshot": "--snapshot"}


def require_outputs(options: argparse.Namespace) -> None:
    """Refuse an output that cannot be written, before any time goes into what is to be written there.

    Raises:
        FileError: naming it; also where it would take the place of what the command reads, or of another output, and
            for "-", which shells' commands take for standard output.
    """
    taken = [(path, "which the command reads") for path in _inputs(options)]
    for name, flag in OUTPUTS.items():
        path = getattr(options, name, None)
        if path is None:
            continue
        if path == "-":
            raise FileError(
                f"{flag} - is not written to standard output, where the result is printed, as one object with --json; "
                f"name a file, such as {flag} ./- for one of that name"
            )
        require_writable(path)
        for other, what in taken:
            if is_same_file(path, other):
                raise FileError(f"{flag} {path!r} would replace {other!r}, {what}; name another file")
        taken.append((path, f"the file of {flag}"))


def _inputs(options: argparse.Namespace) -> list[str]:
    """The files that were named to be read."""
    model = getattr(options, "model", None)
    if model is not None and is_model_file(model):
        model = model if model.endswith(".py") else model.rpartition(":")[0]
    return [path for path in (model, getattr(options, "larger", None)) if path is not None and os.path.isfile(path)]


def put(options: argparse.Namespace, document: dict[str, Any], text: str) -> None:
    """The result on stdout: one JSON object if that was asked for, else text, in which no name steers the terminal."""
    try:
        print(to_json(document) if options.json else printable(text), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(sys.stdout)
        raise FileError(f"the result cannot be written to standard output: {error.strerror or error}") from None


def say(options: argparse.Namespace, text: str) -> None:
    """Progress for people, on a terminal only, over the line before, and cut where a second line would begin."""
    if sys.stderr.isatty() and not options.json:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        text = one_line(text)
        text = text if len(text) < width else f"{text[: width - 2]}…"
        print(f"\r\x1b[2K{text}", end="" if text else "\r", file=sys.stderr, flush=True)


@contextmanager
def beside_search(options: argparse.Namespace, doing: str) -> Iterator[None]:
    """A part of the work that --time-limit does not cover: how long it takes is kept, for `tell_what_took_longer`."""
    begun = time.monotonic()
    try:
        yield
    finally:
        taken = vars(options).setdefault("beside_search", {})
        taken[doing] = taken.get(doing, 0.0) + time.monotonic() - begun


def tell_what_took_longer(options: argparse.Namespace, seconds: float) -> None:
    """On standard error, if a command has outlasted the --time-limit of its one search: what else took the time."""
    limit, taken = getattr(options, "time_limit", None), getattr(options, "beside_search", {})
    parts = [f"{doing} ({format_seconds(part)})" for doing, part in taken.items() if part > LONG]
    of_each_point = hasattr(options, "budgets")
    if limit is not None and not of_each_point and parts and seconds > limit + 1:
        complain(
            f"{format_seconds(seconds)} in all: --time-limit {limit:g} is of the search, and not of {', '.join(parts)}"
        )


def written_to(path: str | Path) -> str:
    """That a file was written, on one line whatever its name is."""
    return f"written to {one_line(str(path))}"


def retype_command(options: argparse.Namespace, given: dict[str, str]) -> str:
    """The command as it was typed, for a shell, with other values of some options; "" leaves one out.

    >>> words = ["solve", "my net.json", "--budget=60%", "--option", "segments=2", "--json"]
    >>> retype_command(argparse.Namespace(words=words), {"--budget": "60% of the way", "--option": ""})
    "remat-explorer solve 'my net.json' --json --budget '60% of the way'"
    """
    words, kept = iter(options.words), ["remat-explorer"]
    for word in words:
        flag, joined, _ = word.partition("=")
        if any(name == flag or (len(flag) > 3 and name.startswith(flag)) for name in given):
            if not joined:
                next(words)
        else:
            kept.append(word)
    return shlex.join([*kept, *(word for name, value in given.items() if value for word in (name, value))])


def write_schedule(
    options: argparse.Namespace, name: str, schedule: Schedule, budget: int, seconds: float, solver: str = ""
) -> str:
    """Write a schedule within a budget to ``options.output``, and say so in a line; nothing where none was asked."""
    if not options.output:
        return ""
    Solution(schedule.graph, name, Status.FEASIBLE, budget, schedule, None, seconds, solver).save(options.output)
    return f"\n{written_to(options.output)}"


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
