"""Which tasks a sweep hands out, in which order, and for how long."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer
from remat_explorer.solvers.method import Together
from remat_explorer.solvers.strategies.registry import method_of
from remat_explorer.solvers.sweeps.own_curves import has_own_curve
from remat_explorer.solvers.sweeps.sweep_points import SweepPoints
from remat_explorer.solvers.sweeps.sweep_tasks import SweepTask

PLANNING = 0.5  # of the time for the budgets of a worker together, at most, for the first answer at each
LEAST_SEARCH = 0.1  # seconds below which a search at one budget is not begun


class SweepQueue:
    """Tasks that wait for a worker.

    Args:
        points: the sweep's points.
        together: seconds for each budget while budgets share their work.
        alone: seconds for each budget that is not settled then.

    Attributes:
        planned: strategies with budgets that have their first answer, and the seconds it took, which are taken off the
            time that follows.

    >>> from remat_explorer.instances import linear
    >>> points = SweepPoints(linear(8))
    >>> points.begin(["optimal"], [4, 5, 6, 10], None)
    >>> queue = SweepQueue(points, 0.5, 0.0)
    >>> queue.begin(["optimal"], workers=2)
    >>> queue.pop().budgets, queue.pop().budgets, queue.pop()
    ((4, 6), (5,), None)
    """

    def __init__(self, points: SweepPoints, together: float, alone: float) -> None:
        self.planned: dict[tuple[str, int], float] = {}
        self._points, self._together, self._alone = points, together, alone
        self._share: dict[str, float] = {}  # seconds for the budgets of a strategy that one worker solves together
        self._tasks: deque[SweepTask] = deque()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def begin(self, strategies: Sequence[str], workers: int) -> None:
        """Queue what every open point needs first."""
        for name in strategies:
            sizes, each = self._points.open(name), self._together + self._alone
            if has_own_curve(name):  # also where nothing is open: its points may lie elsewhere
                self._tasks.append(SweepTask(name, tuple(sizes), "curve", each * max(1, len(sizes))))
                continue
            if together_of(name) is None:
                self._tasks.extend(SweepTask(name, (size,), "alone", each) for size in sizes)
                continue
            chunks = min(workers, len(sizes))
            self._share[name] = self._together * math.ceil(len(sizes) / max(1, chunks))
            for i in range(chunks):  # dealt in turn, since small budgets are the hard ones
                chunk = tuple(sizes[i::chunks])
                unplanned = tuple(size for size in chunk if (name, size) not in self.planned)
                if unplanned:
                    self._tasks.append(SweepTask(name, unplanned, "plan", PLANNING * self._share[name], then=chunk))
                else:
                    self._tasks.append(self._after_planning(name, chunk))

    def pop(self) -> SweepTask | None:
        """The next task, with the budgets that others have not settled meanwhile, or None if there is no other."""
        while self._tasks:
            task = self._tasks.popleft()
            if task.kind == "curve":
                return task
            unsettled = set(self._points.open(task.strategy))
            if open_ones := tuple(size for size in task.budgets if size in unsettled):
                return dataclasses.replace(task, budgets=open_ones)
        return None

    def follow(self, task: SweepTask, answers: Sequence[tuple[Answer, float]]) -> None:
        """Queue what comes after a task that was answered."""
        if task.kind == "plan":
            took = zip(task.budgets, answers, strict=True)
            self.planned |= {(task.strategy, size): seconds for size, (_, seconds) in took}
            self._tasks.append(self._after_planning(task.strategy, task.then))
        elif task.kind == "together" and self._alone >= LEAST_SEARCH:
            unsettled = sorted(set(self._points.open(task.strategy)) & set(task.budgets))
            self._tasks.extend(SweepTask(task.strategy, (size,), "alone", self._alone) for size in unsettled)

    def retry(self, task: SweepTask) -> bool:
        """Queue the budgets of a task without an answer one by one; False if there was one only, or a curve."""
        sizes = () if task.kind == "curve" else task.then or task.budgets
        if len(sizes) > 1:
            self._tasks.extend(SweepTask(task.strategy, (size,), "together", self._together) for size in sizes)
        return len(sizes) > 1

    def waiting(self, in_flight: Sequence[SweepTask]) -> set[tuple[str, int]]:
        """The points for which something is still to be done, with the tasks that are being worked on."""
        return {(task.strategy, size) for task in (*self._tasks, *in_flight) for size in task.then or task.budgets}

    def clear(self) -> None:
        """Give everything up."""
        self._tasks.clear()

    def _after_planning(self, name: str, chunk: tuple[int, ...]) -> SweepTask:
        left = self._share[name] - sum(self.planned.get((name, size), 0.0) for size in chunk)
        return SweepTask(name, chunk, "together", max(0.0, left), planned=True)


def together_of(strategy: str) -> Together | None:
    """How budgets of a strategy share their work, or None where each is solved alone.

    >>> together_of("optimal") is None, together_of("monet") is None
    (False, True)
    """
    method = method_of(strategy)
    return None if method is None else method.together


def patience(graph: Graph) -> float:
    """Seconds that a point may take where no limit is given; walks take time with the square of the operations.

    >>> from remat_explorer.instances import linear
    >>> patience(linear(8)), round(patience(linear(800)), 1)
    (0.5, 4.0)
    """
    return max(0.5, (graph.n / 800) ** 2)
