"""How a case may end: with a result, a `RematError`, or an exit code that is documented, in little time and memory."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from hypothesis import HealthCheck

from remat_explorer.cli import main
from remat_explorer.errors import RematError

ALL_CHECKS: list[Any] = list(HealthCheck)  # of hypothesis: what is slow or large here is meant to be
CODES = {0: "done", 1: "contradicted", 2: "infeasible", 3: "not in time", 64: "exit 64", 69: "missing"}
MOST_SECONDS = 10.0
MOST_MEMORY = 2 * 2**30  # bytes beyond what there was at the beginning


class Unbounded(BaseException):
    """A case took too long; no `Exception`, so that nobody catches it on the way."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fails where the body takes more than 10 seconds of processor time or 2 GB of memory.

    Processor time says the same on a machine with other work; what waits for ever is ended after ten times as long.
    """

    def too_long(number: int, frame: FrameType | None) -> None:
        raise Unbounded(f"still at work after {MOST_SECONDS} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    usual = {number: signal.signal(number, too_long) for number in (signal.SIGPROF, signal.SIGALRM)}
    begun = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 10 * MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in usual.items():
            signal.signal(number, handler)
    assert time.process_time() - begun < MOST_SECONDS
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_MEMORY


def of_call(call: Callable[[], object]) -> str:
    """How a call of the Python interface ends."""
    with bounded():
        try:
            call()
        except RematError as error:
            refusal = error
        else:
            return "result"
    assert str(refusal), "an error without a message"
    return type(refusal).__name__


def of_command(arguments: Sequence[str]) -> str:
    """How a command ends; what it prints must be text, and with --json one object that every program can read."""
    out, err = io.StringIO(), io.StringIO()
    with bounded(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
    assert code in CODES, f"exit code {code}"
    assert "Traceback" not in err.getvalue(), err.getvalue()
    if code == 64:
        assert err.getvalue().strip(), "exit code 64 without a word"
    elif "--json" in arguments and out.getvalue().startswith("{"):
        json.loads(out.getvalue(), parse_constant=_refuse)
    for word in ("+nan", "-nan", "nan %", "+inf %"):
        assert word not in out.getvalue(), out.getvalue()
    return CODES[code]


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} in the output")
