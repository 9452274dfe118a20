"""How many cores there are, and how many threads a solve has where nobody chose."""

from __future__ import annotations

import os


def cores() -> int:
    """The number of cores that this process may use.

    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of(strategy: str, chosen: int | None = None) -> int:
    """The threads of a solve: those that were chosen, else two for strategies that search where there are two cores.

    The second thread of "optimal" and "monet" searches beside the bounds. A back end gains little from more threads,
    so all others have one.

    >>> threads_of("checkmate-ilp"), threads_of("optimal", 3)
    (1, 3)
    """
    if chosen is not None:
        return int(chosen)
    return min(2, cores()) if strategy in ("optimal", "monet") else 1
