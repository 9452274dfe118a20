"""How often Python looks for garbage while a step is traced: of its many objects nearly all stay until the end."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

YOUNG = 100_000  # new objects from which on Python looks among them; a trace of 500 operations makes 150,000
_lock = threading.Lock()
_before: list[tuple[int, int, int]] = []  # thresholds, by each trace that runs


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Look for garbage less often than Python would; never where that is switched off.

    >>> before = gc.get_threshold()
    >>> with rarely_collected():
    ...     inside = gc.get_threshold()
    >>> inside[0] >= YOUNG, gc.get_threshold() == before
    (True, True)
    """
    with _lock:
        young, *older = gc.get_threshold()
        _before.append((young, *older))  # type: ignore[reportArgumentType]
        if young:
            gc.set_threshold(max(young, YOUNG), *older)
    try:
        yield
    finally:
        with _lock:
            first = _before[0]
            _before.pop()
            if not _before and gc.get_threshold()[0] == max(first[0], YOUNG):  # else the person has set another
                gc.set_threshold(*first)
