"""The errors a person can meet. Each message quotes what was given and says what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def shown(entry: object, limit: int = 160) -> str:
    """What was given, as messages quote it: its `repr`, cut to ``limit`` characters."""
    try:
        text = repr(entry)
    except (ValueError, RecursionError):  # Python refuses to write so many digits, or so many brackets
        return f"something of type {type(entry).__name__} that is too long to be shown"
    return text if len(text) <= limit else text[: limit - 1] + "…"


class RematError(Exception):
    """Base of every error that this package raises on purpose."""


class ArgumentError(RematError, TypeError):
    """An argument of the wrong kind, or a number out of its range; it is a `TypeError`, too."""


class QuantityError(RematError):
    """A number of bytes, a budget or a duration that cannot be read."""


class GraphError(RematError):
    """A graph that breaks a rule, or a graph file that does not hold a graph."""


class ScheduleError(RematError):
    """A schedule that cannot be executed; the message names the first violation."""


class SolutionError(RematError):
    """A solution file that cannot be read, or that belongs to another graph."""


class FileError(RematError, OSError):
    """A file that cannot be read or written; the message names it.

    It is an `OSError`, too, with ``errno``, ``strerror`` (the reason) and ``filename``, where they are known.
    """

    def __init__(self, message: str, reason: str = "", number: int | None = None, filename: str | None = None) -> None:
        super().__init__(message)
        self.strerror, self.errno, self.filename = reason or message, number, filename

    def __str__(self) -> str:
        return str(self.args[0])


class CaptureError(RematError):
    """A model that cannot be captured as a static training graph."""


class ModelError(RematError):
    """A batch, image or sequence that does not suit a model of the zoo, or a file that makes no model."""


class SolverError(RematError):
    """A solver back end that is missing or failed."""


class ExecutionError(RematError):
    """A plan that could not be executed or measured on the chosen device."""


class OutOfMemoryError(ExecutionError):
    """Memory ran out while a plan ran; ``statement`` is the index of the statement in the plan, where it is known."""

    def __init__(self, message: str, statement: int | None = None) -> None:
        super().__init__(message)
        self.statement = statement


class ClosedError(RematError, AttributeError):
    """Something was asked of an explorer that is closed; it is an `AttributeError`, too."""


class UnknownNameError(RematError):
    """A name that is not in a registry; near matches are listed.

    >>> raise UnknownNameError("model", "vg16", ["vgg16", "unet", "mlp"])
    Traceback (most recent call last):
        ...
    remat_explorer.errors.UnknownNameError: unknown model 'vg16'; did you mean 'vgg16'? Known: mlp, unet, vgg16
    """

    def __init__(self, kind: str, name: str, names: Iterable[str]) -> None:
        names = sorted(names)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        super().__init__(f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}")
        self.near = near
