"""Runs each part in a process of its own, ends it when its time is over, and starts it again where it broke.

A kernel that fails leaves the device unusable for its process. What a part has done is in its file by then, and the
next process goes on with the rest. Loads no torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpu_parts.catalogue import Part
from gpu_parts.record import PROBLEM, STOPPED, Record

GRACE = 5.0  # seconds for a part that sees itself that its time is over
MOST_STARTS = 8  # of one part in one run
SHOWN = 3  # units that are named where more are not done
RESTART = 75  # the exit code that asks for another process
FOLDER = Path(__file__).parents[1]

Command = Callable[[Part, float], Sequence[str]]


def run_part(part: Part, record: Record, seconds: float, command: Command) -> Record:
    """Run a part until it is done or its time is over, and return what its file then says.

    Args:
        part: which.
        record: what is known of it.
        seconds: that this run may take, at most.
        command: makes the command line of a process that may take a given number of seconds.
    """
    record.words = ""
    begun, before, path, how = time.monotonic(), record.seconds, record.path, ""
    for _ in range(MOST_STARTS):
        left = seconds - (time.monotonic() - begun)
        if left <= 0:
            break
        record.write()
        code = _run(command(part, left), left + GRACE, dict(part.environment))
        record = Record(path)
        ended = time.monotonic() - begun
        broke = record.running
        how = "its time was over" if ended >= seconds else f"its process ended with {_words(code)}"
        if broke:
            _explain(record, how, ended >= seconds)
        if ended >= seconds or not (broke or code == RESTART):
            break
    record.seconds = before + time.monotonic() - begun
    missing = record.missing
    if missing or not record.names:
        record.words = f"stopped after {record.seconds:.0f} s, {how}; not done: {_listed(missing)}"
    record.write()
    return record


def _run(command: Sequence[str], seconds: float, environment: dict[str, str]) -> int:
    """The exit code; with everything that it has started, the process ends when its time is over."""
    process = subprocess.Popen(command, cwd=FOLDER.parent, env=os.environ | environment, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its solvers, too
        process.wait()


def _listed(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return ", ".join([*names[:SHOWN], *more]) or "anything"


def _words(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _explain(record: Record, how: str, late: bool) -> None:
    """What the unit that was at work when the process ended is to say."""
    name, record.running = record.running, ""
    record.units[name] = record.units.get(name, {}) | {STOPPED if late else PROBLEM: how}
    record.write()


def python(*arguments: str) -> list[str]:
    """A command line of this Python that finds the modules of this folder."""
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(FOLDER)!r}); {'; '.join(arguments)}"]
