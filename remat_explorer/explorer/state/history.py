"""How a solve went: the moments at which its best schedule or its bound changed."""

from __future__ import annotations

from remat_explorer.explorer.state.state import HistoryPoint
from remat_explorer.solvers.base import Progress

MOST = 400  # moments that are kept of one solve


def with_progress(history: tuple[HistoryPoint, ...], progress: Progress) -> tuple[HistoryPoint, ...]:
    """The history with one more report.

    Of a stretch in which nothing changed the first and the last moment stay; beyond `MOST` every other one goes, but
    for the first and the last.

    >>> history = ()
    >>> for second in range(5):
    ...     history = with_progress(history, Progress(second, "searching", lower_bound=3.0 if second > 3 else 2.0))
    >>> [(moment.seconds, moment.lower_bound) for moment in history]
    [(0, 2.0), (3, 2.0), (4, 3.0)]
    """
    moment = HistoryPoint(progress.seconds, progress.cost, progress.lower_bound)
    last = history[-2:]
    if len(last) == 2 and all((m.cost, m.lower_bound) == (moment.cost, moment.lower_bound) for m in last):
        history = history[:-1]
    if len(history) >= MOST:
        history = (history[0], *history[2:-1:2], history[-1])
    return (*history, moment)
