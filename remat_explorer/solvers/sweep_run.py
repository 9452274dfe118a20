"""A sweep over budgets: the trade-off curve of a graph, point by point as results arrive.

Tasks go to an executor, as many at a time as it has workers, so that each begins with the best that is known by then.
The optimal strategy's budgets are first dealt out to the workers in turn, each of which solves its share together (see
`sweep_optimal`); what is not settled then, and has time left, is searched one budget at a time. After every result the
points take from each other what they may (see `sharing`).
"""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from remat_explorer.errors import RematError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.graph_file import dump_graph
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.backends import backend
from remat_explorer.solvers.base import Answer
from remat_explorer.solvers.budgets import read_budgets, require_count, spaced_budgets
from remat_explorer.solvers.checkpoint_all import checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.frontier import Frontier
from remat_explorer.solvers.minimum_budget import largest_operation, minimum_budget
from remat_explorer.solvers.processes import Processes
from remat_explorer.solvers.sharing import best_within, bound_at, empty, merged, shared
from remat_explorer.solvers.solve import STRATEGIES, judge, smallest_budget
from remat_explorer.solvers.sweep_tasks import ABANDONED, Task, make_ready, read_answers, work, write_request

POLL = 0.05  # seconds between two looks at whether the sweep was cancelled
MINIMUM = 1.0  # seconds for the smallest budget, besides those of a point
LEAST_SEARCH = 0.1  # seconds below which a search at one budget is not begun
Point = tuple[str, int]  # strategy and budget in bytes


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is.

    Attributes:
        seconds: since it began.
        done: points that nothing will be tried for any more.
        points: all points.
        widest_gap: the largest gap of the points that have one, or None.
    """

    seconds: float
    done: int
    points: int
    widest_gap: float | None


class Sweep:
    """A sweep as an iterator over solutions in the order in which they arrive; the arguments are those of `sweep`.

    A point comes again whenever its schedule, bound or status got better; the last one counts.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from remat_explorer.instances import linear
    >>> run = Sweep(linear(8), [4, 10], executor=ThreadPoolExecutor(1), time_limit=30)
    >>> for solution in run:
    ...     latest = solution
    >>> [(point.budget, point.cost) for point in run.frontier().points]
    [(4, 26.0), (10, 17.0)]
    """

    def __init__(
        self,
        graph: Graph,
        budgets: int | Sequence[str | int | float] = 12,
        strategies: str | Sequence[str] = ("optimal",),
        executor: Executor | None = None,
        time_limit: float | None = None,
        workers: int | None = None,
        solver: str = "highs",
        threads: int = 1,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        names = [strategies] if isinstance(strategies, str) else list(dict.fromkeys(strategies))
        for name in names:
            if name not in STRATEGIES:
                raise UnknownNameError("strategy", name, STRATEGIES)
        backend(solver)
        self._begun = time.monotonic()
        self._id = uuid.uuid4().hex
        self._stop, self._asked = threading.Event(), cancelled
        self.graph, self._solver, self._threads = graph, solver, threads
        self._executor = executor
        self.workers = max(1, workers or os.cpu_count() or 1)
        limit = patience(graph) if time_limit is None else time_limit
        self._together = min(limit / 2, patience(graph))
        self._alone = limit - self._together
        self._peak = checkpoint_all_peak(graph)
        if isinstance(budgets, int):
            self._budgets: int | list[int] = require_count(budgets)
        else:
            self._budgets = read_budgets([budgets] if isinstance(budgets, str) else budgets, self._peak)
        self._names = names
        self._known: dict[Point, Solution] = {}
        self._messages: dict[Point, str] = {}
        self._shown: dict[Point, Solution] = {}
        self._queue: deque[Task] = deque()
        self._in_flight: dict[Future[str], Task] = {}
        self._results = self._run()

    def __iter__(self) -> Iterator[Solution]:
        return self

    def __next__(self) -> Solution:
        return next(self._results)

    def cancel(self) -> None:
        """Stop, from any thread: the iterator ends, `frontier` is what was found.

        Workers of the sweep's own are ended at once. Of an executor that was given, waiting tasks are taken back; those
        that run end by themselves, at once where threads run them, else with their time limit.
        """
        self._stop.set()
        ABANDONED.add(self._id)

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *raised: object) -> None:
        """End the workers, whether or not the iterator was exhausted."""
        self._results.close()

    def progress(self) -> SweepProgress:
        """How far it is."""
        waiting = {point for task in (*self._queue, *self._in_flight.values()) for point in _points(task)}
        gaps = [solution.gap for solution in self._shown.values() if solution.gap is not None]
        seconds = time.monotonic() - self._begun
        return SweepProgress(seconds, len(self._known) - len(waiting), len(self._known), max(gaps, default=None))

    def frontier(self) -> Frontier:
        """What is known now: every point, with what it may take from the others."""
        found = shared(list(self._known.values()))
        messages = {
            (s.strategy, s.budget): self._messages.get((s.strategy, s.budget), "")
            or ("" if s.schedule else self._why_none(s))
            for s in found
        }
        messages = {point: message for point, message in messages.items() if message}
        return Frontier(self.graph, tuple(found), messages, time.monotonic() - self._begun)

    def _begin(self) -> None:
        """Space the budgets if they were not given, say what is known without a search, and queue the tasks."""
        sizes, first = self._budgets, None
        if isinstance(sizes, int):
            smallest = minimum_budget(self.graph, MINIMUM + patience(self.graph))
            sizes, first = spaced_budgets(smallest.known_feasible, self._peak, sizes), smallest.schedule
        for name, size in itertools.product(self._names, sizes):
            self._known[name, size] = empty(self.graph, name, size)
        self._know_without_search(first)
        self._queue.extend(self._first_tasks(sizes))

    def _know_without_search(self, first: Schedule | None) -> None:
        """Impossible budgets, those that fit everything, and the smallest schedule."""
        impossible, cost = smallest_budget(self.graph), self.graph.total_cost
        for (name, size), solution in self._known.items():
            if size < impossible:
                answer = Answer(None, infeasible=True)
            elif name == "optimal" and size >= self._peak:
                answer = Answer(checkpoint_all(self.graph), cost)
            else:
                answer = Answer(None, cost)
            self._known[name, size] = judge(self.graph, size, name, answer, solution.seconds)
        smallest = min((size for _, size in self._known), default=0)
        if first is not None and ("optimal", smallest) in self._known and smallest < self._peak:
            answer = Answer(first, cost)
            self._known["optimal", smallest] = judge(self.graph, smallest, "optimal", answer, 0.0)

    def _first_tasks(self, sizes: list[int]) -> Iterator[Task]:
        open_sizes = {name: [size for size in sizes if not self._settled((name, size))] for name in self._names}
        for name in self._names:
            if name == "optimal":
                chunks = min(self.workers, len(open_sizes[name]))
                for i in range(chunks):  # in turn, since small budgets are the hard ones
                    chunk = tuple(open_sizes[name][i::chunks])
                    yield Task(name, chunk, True, self._together * len(chunk))
        for name in self._names:
            if name != "optimal":
                yield from (Task(name, (size,), False, self._together + self._alone) for size in open_sizes[name])

    def _settled(self, point: Point) -> bool:
        return self._known[point].status in (Status.OPTIMAL, Status.INFEASIBLE)

    def _run(self) -> Generator[Solution, None, None]:
        """Generator: hand tasks out, take results in, and pass on what got better."""
        executor = self._executor or Processes(self.workers)
        graph_text = dump_graph(self.graph)
        try:
            if executor is not self._executor:
                for _ in range(self.workers):  # they load their libraries while the smallest budget is sought
                    executor.submit(make_ready, self._solver)
            self._begin()
            yield from self._news()
            while (self._queue or self._in_flight) and not self._is_cancelled():
                while self._queue and len(self._in_flight) < self.workers:
                    self._submit(executor, graph_text, self._queue.popleft())
                done, _ = concurrent.futures.wait(
                    self._in_flight, timeout=POLL, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    self._receive(self._in_flight.pop(future), future)
                if done or not self._in_flight:
                    yield from self._news()
        finally:
            self._end(executor)

    def _end(self, executor: Executor) -> None:
        if self._in_flight:  # cancelled, or nobody listens any more
            ABANDONED.add(self._id)
        for future in self._in_flight:
            future.cancel()
        if isinstance(executor, Processes) and executor is not self._executor:
            executor.kill()

    def _is_cancelled(self) -> bool:
        if self._asked is not None and not self._stop.is_set() and self._asked():
            self.cancel()
        return self._stop.is_set()

    def _submit(self, executor: Executor, graph_text: str, task: Task) -> None:
        if not task.together and self._settled_by_others(task):
            return
        known = Answer(self._start(task), bound_at(task.budgets[0], shared(list(self._known.values()))))
        request = write_request(self._id, task, known, self._solver, self._threads)
        try:
            self._in_flight[executor.submit(work, graph_text, request)] = task
        except Exception as error:  # a pool that is broken or shut down
            self._lose(task, error)

    def _settled_by_others(self, task: Task) -> bool:
        """Whether sharing has settled the task's only point in the meantime; what it gave is kept."""
        (point,) = _points(task)
        for solution in shared(list(self._known.values())):
            if (solution.strategy, solution.budget) == point and solution.status is Status.OPTIMAL:
                self._known[point] = solution
        return self._settled(point)

    def _start(self, task: Task) -> Schedule | None:
        same = [solution for (name, _), solution in self._known.items() if name == task.strategy]
        found = best_within(task.budgets[0], same)
        return None if found is None else found.schedule

    def _receive(self, task: Task, future: Future[str]) -> None:
        try:
            answers = read_answers(future.result(), self.graph, len(task.budgets))
            for point, (answer, seconds) in zip(_points(task), answers, strict=True):
                found = judge(self.graph, point[1], task.strategy, answer, seconds)
                self._known[point] = merged(self._known[point], found)
        except Exception as error:  # whatever the executor raises for a worker that died, or a claim that is refused
            self._lose(task, error)
            return
        if task.together and self._alone >= LEAST_SEARCH:
            alone = [Task(task.strategy, (size,), False, self._alone) for size in task.budgets]
            self._queue.extend(task for task in alone if not self._settled(_points(task)[0]))

    def _lose(self, task: Task, error: Exception) -> None:
        """The task has no result: points that were solved together are tried one by one, a single one is given up."""
        if len(task.budgets) > 1:
            self._queue.extend(Task(task.strategy, (size,), True, self._together) for size in task.budgets)
            return
        what = str(error) if isinstance(error, RematError) else f"{type(error).__name__}: {error}"
        for size in task.budgets:
            self._messages[task.strategy, size] = f"a search within {format_bytes(size)} was lost: {what}"

    def _news(self) -> Iterator[Solution]:
        for solution in shared(list(self._known.values())):
            point = (solution.strategy, solution.budget)
            before = self._shown.get(point)
            if _is_news(before, solution):
                self._shown[point] = solution
                yield solution

    def _why_none(self, solution: Solution) -> str:
        """Why a point has no schedule."""
        budget = format_bytes(solution.budget)
        if not self.graph.has_choices and solution.budget < (largest := largest_operation(self.graph))[1]:
            name, needs = self.graph.operations[largest[0]].name, format_bytes(largest[1])
            return f"no schedule fits into {budget}: {name!r} alone needs {needs} while it runs"
        if solution.status is Status.INFEASIBLE:
            return f"{solution.strategy!r} has no schedule within {budget}"
        if self._stop.is_set():
            return f"the sweep was cancelled before {solution.strategy!r} had a schedule within {budget}"
        return f"{solution.strategy!r} found no schedule within {budget} in time; give it more time or memory"


def patience(graph: Graph) -> float:
    """Seconds that a point may take where no limit is given; walks take time with the square of the operations.

    >>> from remat_explorer.instances import linear
    >>> patience(linear(8)), round(patience(linear(800)), 1)
    (0.5, 4.0)
    """
    return max(0.5, (graph.n / 800) ** 2)


def _points(task: Task) -> list[Point]:
    return [(task.strategy, size) for size in task.budgets]


def _is_news(before: Solution | None, now: Solution) -> bool:
    if before is None:
        return now.schedule is not None or now.status is Status.INFEASIBLE
    return (before.cost, before.lower_bound, before.status) != (now.cost, now.lower_bound, now.status)
