"""How many cores there are."""

from __future__ import annotations

import os


def cores() -> int:
    """The number of cores that this process may use.

    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
