"""A capture that nobody waits for any more ends at its next operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ABANDONED: ContextVar[Callable[[], bool] | None] = ContextVar("abandoned", default=None)


class CaptureCancelled(BaseException):
    """Ends a capture as Ctrl-C does: a model that catches every Exception does not catch this."""


@contextmanager
def cancellable(abandoned: Callable[[], bool]) -> Iterator[None]:
    """Captures of this thread inside are given up once ``abandoned`` is true.

    Raises:
        Abandoned: then, from inside.

    >>> with cancellable(lambda: True):
    ...     raise_if_cancelled()
    Traceback (most recent call last):
        ...
    remat_explorer.cancellation.CaptureCancelled
    """
    before = _ABANDONED.set(abandoned)
    try:
        yield
    finally:
        _ABANDONED.reset(before)


def raise_if_cancelled() -> None:
    """Called before each operator; raises `Abandoned` if nobody waits for the capture."""
    abandoned = _ABANDONED.get()
    if abandoned is not None and abandoned():
        raise CaptureCancelled
