"""Where two schedules of one graph differ, cell by cell."""

from __future__ import annotations

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.schedule import Schedule

NEITHER, BOTH, ONLY_FIRST, ONLY_SECOND = range(4)


def difference(first: Schedule, second: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Which cells of R and of S are set in neither schedule, in both, or in only one of them.

    Args:
        first, second: schedules of graphs with equally many operations and values; the one with fewer stages is
            empty behind its last.

    Returns:
        uint8 arrays of shape (stages, operations) and (stages, values): NEITHER, BOTH, ONLY_FIRST or ONLY_SECOND.

    Raises:
        ScheduleError: if the schedules belong to graphs of different sizes.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> drop = Schedule(linear(1), [[1, 0, 0], [1, 1, 0], [1, 0, 1]], [[0, 0, 0], [0, 0, 0], [0, 1, 0]])
    >>> R, S = difference(keep, drop)
    >>> R.tolist(), S.tolist()
    ([[1, 0, 0], [3, 1, 0], [3, 0, 1]], [[0, 0, 0], [2, 0, 0], [2, 1, 0]])
    """
    if first.R.shape[1] != second.R.shape[1] or first.S.shape[1] != second.S.shape[1]:
        sizes = " and ".join(f"{s.R.shape[1]} operations, {s.S.shape[1]} values" for s in (first, second))
        raise ScheduleError(f"schedules of one graph can be compared; these belong to graphs of {sizes}")
    return _compare(first.R > 0, second.R > 0), _compare(first.S, second.S)


def _compare(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    cells = np.zeros((max(len(first), len(second)), first.shape[1]), dtype=np.uint8)
    cells[: len(first)] = first * np.uint8(ONLY_FIRST)
    cells[: len(second)] += second * np.uint8(ONLY_SECOND)
    cells[cells == ONLY_FIRST + ONLY_SECOND] = BOTH
    return cells
