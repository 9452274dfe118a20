"""Where two schedules of one graph differ: cells of R and S that both have, or only one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.schedule import Schedule

NEITHER, BOTH, FIRST, SECOND = range(4)
MEANINGS = ("neither", "both", "only the first", "only the second")


@dataclass(frozen=True)
class Difference:
    """Cells by who has them: NEITHER, BOTH, FIRST or SECOND; uint8.

    Attributes:
        R: computations, of shape (stages, operations).
        S: retained values, of shape (stages, values).

    The stages are those of the schedule that has more; where the other has none, it computes and retains nothing.
    """

    R: np.ndarray
    S: np.ndarray


def difference(first: Schedule, second: Schedule) -> Difference:
    """Compare two schedules of one graph, cell by cell.

    Costs and workspace may have been measured anew for one of them; another implementation of an operation is no
    difference.

    Raises:
        ScheduleError: if the schedules belong to graphs of different structure.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> again = Schedule(linear(1), [[1, 0, 0], [1, 1, 0], [1, 0, 1]], [[0, 0, 0], [0, 0, 0], [0, 1, 0]])
    >>> difference(keep, again).R.tolist()
    [[1, 0, 0], [3, 1, 0], [3, 0, 1]]
    >>> difference(keep, Schedule(linear(2), np.eye(5), np.tril(np.ones((5, 5)), -1)))
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ScheduleError: schedules of 'linear1' (3 operations) and 'linear2' (5 operations) cannot be \
compared; choose two schedules of the same graph
    """
    one, two = first.graph, second.graph
    if one is not two and one.structure != two.structure:
        raise ScheduleError(
            f"schedules of {one.name!r} ({one.n} operations) and {two.name!r} ({two.n} operations) cannot be compared; "
            "choose two schedules of the same graph"
        )
    return Difference(_cells(first.R > 0, second.R > 0), _cells(first.S, second.S))


def _cells(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """BOTH, FIRST, SECOND or NEITHER for each cell, with as many rows as the larger matrix."""
    cells = np.zeros((max(len(first), len(second)), first.shape[1]), dtype=np.uint8)
    cells[: len(first)] += FIRST * first.astype(np.uint8)
    cells[: len(second)] += SECOND * second.astype(np.uint8)
    return np.where(cells == FIRST + SECOND, BOTH, cells).astype(np.uint8)
