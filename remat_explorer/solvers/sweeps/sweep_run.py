"""A sweep over budgets: the trade-off curve of a graph, at once (`sweep`) or point by point (`Sweep`).

Tasks go to an executor, as many at a time as it has workers, so that each begins with the best that is known by then.
The optimal strategy's budgets are first planned, so that there is something to see: by this process while workers of
the sweep's own load their libraries, then by the workers. The budgets are dealt out to the workers in turn, each of
which solves its share together (`sweep_search`); what is not settled then, and has time left, is searched one budget at
a time. A method that does not ask for the budget is one task for all of them (`own_points`). After every result the
points take from each other what they may.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from remat_explorer.documents import quote
from remat_explorer.entry_checks import Seconds, Threads, Workers, require_arguments
from remat_explorer.errors import RematError, SolverError, UnknownNameError
from remat_explorer.graph import Graph, dump_graph
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime_search.sweep_search import solve_together
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.jobs.worker_process import Processes
from remat_explorer.solvers.memory.minimum_budget import budgets_of, minimum_budget, require_count, spaced_budgets
from remat_explorer.solvers.method import SharedSearch, Support
from remat_explorer.solvers.milp import BACKENDS, backend
from remat_explorer.solvers.registry import STRATEGIES, method_of
from remat_explorer.solvers.search.planner import load_search
from remat_explorer.solvers.solution import Solution, pack_runs, unpack_runs
from remat_explorer.solvers.solver_interface import Answer, Limits, cores
from remat_explorer.solvers.sweeps.frontier import Frontier
from remat_explorer.solvers.sweeps.own_points import has_own_curve, read_curve, write_curve
from remat_explorer.solvers.sweeps.sweep_points import KeptPoints, SweepPoints, SweepProgress

Kind = Literal["plan", "together", "alone", "curve"]

ABANDONED: set[str] = set()  # sweeps that nobody waits for any more, as far as this process knows


@dataclass(frozen=True)
class SweepTask:
    """Points of one strategy that one worker works on.

    "plan" is a first answer at each budget, "together" where the budgets share their work, "alone" a full search at one
    budget, "curve" all schedules of a method that does not ask for the budget.
    """

    strategy: str
    budgets: tuple[int, ...]  # bytes, ascending
    kind: Kind
    time_limit: float  # seconds for all of them
    then: tuple[int, ...] = ()  # of a plan: budgets that are to be solved together afterwards
    planned: bool = False  # of budgets together: whether they were planned


def write_request(
    sweep: str, task: SweepTask, starts: Sequence[Schedule], lower_bound: float | None, solver: str, threads: int
) -> str:
    """The request text; ``sweep`` is the sweep's name in `ABANDONED`."""
    return json.dumps(
        {
            "sweep": sweep,
            "strategy": task.strategy,
            "budgets": task.budgets,
            "kind": task.kind,
            "time_limit": task.time_limit,
            "planned": task.planned,
            "starts": [pack_runs(schedule) for schedule in starts],
            "lower_bound": lower_bound,
            "solver": solver,
            "threads": threads,
        }
    )


def answer_request(graph_text: str, request_text: str) -> str:
    """Do what a request says; the function that executors call.

    The answer is for `read_answers`, or `read_curve` of a curve; an error is a part of it, since not every exception
    survives the way back.
    """
    try:
        graph, request = _graph(graph_text), json.loads(request_text)
        load_solver(request["solver"])  # which is no part of the first task's time
        if request["kind"] == "curve":
            STRATEGIES[request["strategy"]].load()
            return write_curve(graph, request["strategy"], _limits(request))
        starts = [unpack_runs(runs, graph, SolverError) for runs in request["starts"]]
        begun = time.monotonic()
        answers = _answers(graph, request, starts)
        seconds = (time.monotonic() - begun) / len(answers)
        return json.dumps({"answers": [_pack(answer, seconds) for answer in answers]})
    except (RematError, MemoryError) as error:
        return json.dumps({"error": str(error) or type(error).__name__})


@lru_cache(maxsize=len(BACKENDS))
def load_solver(solver: str) -> None:
    """Load what a search needs: the back end's library, and compiled code, which is made where there is none."""
    load_search()
    solve_together(linear(4), (4, 6), [], Limits(solver=solver))


def read_answers(text: Any, graph: Graph, count: int) -> list[tuple[Answer, float]]:
    """The answers in a worker's text, each with the seconds it took."""
    try:
        document = json.loads(text)
        if "error" in document:
            raise SolverError(str(document["error"]))
        answers = [_unpack(entry, graph) for entry in document["answers"]]
    except (KeyError, TypeError, ValueError) as error:
        raise SolverError(f"the worker sent an answer that cannot be read: {error!r}: {quote(text)}") from None
    if len(answers) != count:
        raise SolverError(f"the worker sent {len(answers)} answers to {count} budgets")
    return answers


def _answers(graph: Graph, request: dict[str, Any], starts: Sequence[Schedule]) -> Sequence[Answer]:
    method, budgets, limits = STRATEGIES[request["strategy"]], request["budgets"], _limits(request)
    if method.together is not None and request["kind"] == "plan":
        answers = method.together.plan(graph, budgets, limits)
    elif method.together is not None and request["kind"] == "together":
        answers = method.together.solve(graph, budgets, starts, limits, request["planned"])
    elif method.improve is not None:
        start = Answer(next(iter(starts), None), request["lower_bound"])
        (budget,) = budgets
        answers = [method.improve(graph, budget, start, limits)]
    else:
        (budget,) = budgets
        answers = [method(graph, budget, limits)]
    return [method.ended(answer, limits) for answer in answers]


def _limits(request: dict[str, Any]) -> Limits:
    sweep = request["sweep"]
    return Limits(request["time_limit"], request["solver"], request["threads"], cancelled=lambda: sweep in ABANDONED)


def _pack(answer: Answer, seconds: float) -> dict[str, Any]:
    return {
        "runs": None if answer.schedule is None else pack_runs(answer.schedule),
        "lower_bound": answer.lower_bound,
        "infeasible": answer.infeasible,
        "solver": answer.solver,
        "limit": answer.limit,
        "seconds": seconds,
    }


def _unpack(entry: dict[str, Any], graph: Graph) -> tuple[Answer, float]:
    schedule = None if entry["runs"] is None else unpack_runs(entry["runs"], graph, SolverError)
    fields = entry["lower_bound"], entry["infeasible"], entry["solver"], str(entry["limit"])
    return Answer(schedule, *fields), float(entry["seconds"])


@lru_cache(maxsize=2)
def _graph(text: str) -> Graph:
    return Graph.from_document(json.loads(text))


PLANNING = 0.5  # of the time for the budgets of a worker together, at most, for the first answer at each
LEAST_SEARCH = 0.1  # seconds below which a search at one budget is not begun


class SweepQueue:
    """Tasks that wait for a worker.

    ``together`` and ``alone`` are seconds for each budget: while budgets share their work, and where one is not settled
    then. ``planned`` has the seconds of first answers, which are taken off the time that follows.
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


def together_of(strategy: str) -> SharedSearch | None:
    """How budgets of a strategy share their work, or None where each is solved alone."""
    method = method_of(strategy)
    return None if method is None else method.together


def default_seconds(graph: Graph) -> float:
    """Seconds that a point may take where no limit is given; walks take time with the square of the operations."""
    return max(0.5, (graph.n / 800) ** 2)


POLL = 0.05  # seconds between two looks at whether the sweep was cancelled
MINIMUM = 1.0  # seconds for the smallest budget, besides those of a point


class Sweep:
    """A sweep as an iterator over solutions in the order in which they arrive; the arguments are those of `sweep`.

    A point comes again whenever its schedule, bound or status got better; the last one counts. A method's own points
    beside the budgets are in `frontier`.

    Attributes:
        workers: tasks with the executor at a time.
        remarks: once it has ended, sentences on why points could not be kept in the cache.

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
        budgets: int | str | Sequence[str | int | float] = 12,
        strategies: str | Sequence[str] = ("optimal",),
        executor: Executor | None = None,
        time_limit: Seconds | None = None,
        workers: Workers | None = None,
        solver: str = "highs",
        threads: Threads = 1,
        cancelled: Callable[[], bool] | None = None,
        cache: bool = False,
    ) -> None:
        require_arguments(Sweep.__init__, locals())
        names = [strategies] if isinstance(strategies, str) else list(dict.fromkeys(strategies))
        if not names:
            raise SolverError(f"there are no strategies to sweep with; give one or several of {', '.join(STRATEGIES)}")
        for name in names:
            if name not in STRATEGIES:
                raise UnknownNameError("strategy", name, STRATEGIES)
        backend(solver)
        self._begun = time.monotonic()
        self._id = uuid.uuid4().hex
        self._stop, self._asked = threading.Event(), cancelled
        self.graph, self._solver, self._threads = graph, solver, threads
        self._executor = executor
        limit = default_seconds(graph) if time_limit is None else time_limit
        self._together = default_seconds(graph) if time_limit is None else min(limit / 2, default_seconds(graph))
        alone = limit - self._together
        self._kept = KeptPoints(graph, solver, limit, threads) if cache else None
        self.remarks: tuple[str, ...] = ()
        if isinstance(budgets, int):
            self._budgets: int | list[int] = require_count(budgets)
        else:
            given = [budgets] if isinstance(budgets, str) else budgets
            self._budgets = budgets_of(graph, given)
        self._strategies = names
        self._count = len(names) * (self._budgets if isinstance(self._budgets, int) else len(self._budgets))
        self.workers = max(1, min(workers or cores(), self._count))
        self._points = SweepPoints(graph)
        self._queue = SweepQueue(self._points, self._together, alone)
        self._in_flight: dict[Future[str], SweepTask] = {}
        self._has_tasks = False
        self._workers: Executor | None = None
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
        waiting = self._queue.waiting(list(self._in_flight.values()))
        if not self._has_tasks:
            waiting = {(name, budget) for name in self._strategies for budget in self._points.open(name)}
        points = len(self._points) or self._count
        done = len(self._points) - len(waiting)
        return SweepProgress(time.monotonic() - self._begun, done, points, self._points.widest_gap())

    @property
    def from_cache(self) -> int:
        """Points that were kept from earlier solves and sweeps."""
        return 0 if self._kept is None else len(self._kept.taken)

    def frontier(self) -> Frontier:
        """What is known now: every point, with what it may take from the others."""
        return self._points.frontier(self._stop.is_set(), time.monotonic() - self._begun, self._deaths())

    def _run(self) -> Generator[Solution, None, None]:
        """Generator: hand tasks out, take results in, and pass on what got better."""
        executor = self._workers = self._executor or Processes(self.workers)
        graph_text, ready = dump_graph(self.graph), []
        try:
            if executor is not self._executor:
                # they load their libraries while the smallest budget is sought, and the first ones are planned
                ready = [executor.submit(load_solver, self._solver) for _ in range(self.workers)]
            self._begin()
            yield from self._points.news()
            yield from self._plan_until(ready)
            self._queue.begin(self._strategies, self.workers)
            self._has_tasks = True
            while (self._queue or self._in_flight) and not self._is_cancelled():
                while len(self._in_flight) < self.workers and (task := self._queue.pop()) is not None:
                    self._submit(executor, graph_text, task)
                done, _ = wait(self._in_flight, timeout=POLL, return_when=FIRST_COMPLETED)
                for future in done:
                    self._receive(self._in_flight.pop(future), future)
                if done or not self._in_flight:
                    yield from self._points.news()
        finally:
            self._end(executor)

    def _begin(self) -> None:
        """Space the budgets if they were not given, and note what is known of them without a search."""
        sizes, first = self._budgets, None
        if isinstance(sizes, int):
            if not any(method.choices is Support.YES for name in self._strategies if (method := method_of(name))):
                CondensedGraph.of(self.graph)  # which refuses choices, and says what to do with them
            load_solver(self._solver)  # in this process, too, before the clock of that search begins
            smallest = minimum_budget(self.graph, MINIMUM + default_seconds(self.graph))
            feasible = smallest.known_feasible < smallest.checkpoint_all_peak  # or the search was too short
            least = smallest.known_feasible if feasible else smallest.lower_bound
            sizes = spaced_budgets(least, smallest.checkpoint_all_peak, sizes)
            first = smallest.schedule if feasible else None
        self._points.begin(self._strategies, sizes, first, self._kept)

    def _plan_until(self, ready: Sequence[Future[None]]) -> Generator[Solution, None, None]:
        """Generator: plan one budget after the other until a worker is ready, or all are planned."""
        for name in self._strategies if ready and not self.graph.has_choices else ():
            together = together_of(name)
            for size in self._points.open(name):
                if together is None or any(future.done() for future in ready) or self._is_cancelled():
                    break
                load_search()
                limits = Limits(PLANNING * self._together, cancelled=self._stop.is_set)
                (answer,) = together.plan(self.graph, [size], limits)
                self._points.take(name, size, answer, limits.elapsed)
                self._queue.planned[name, size] = limits.elapsed
                yield from self._points.news()

    def _submit(self, executor: Executor, graph_text: str, task: SweepTask) -> None:
        starts, bound = self._points.starts(task.strategy, task.budgets)
        request = write_request(self._id, task, starts, bound, self._solver, self._threads)
        try:
            self._in_flight[executor.submit(answer_request, graph_text, request)] = task
        except Exception as error:  # a pool that is broken or shut down
            self._lose(task, error)

    def _receive(self, task: SweepTask, future: Future[str]) -> None:
        try:
            if task.kind == "curve":
                self._points.take_curve(task.strategy, read_curve(future.result(), self.graph))
                return
            answers = read_answers(future.result(), self.graph, len(task.budgets))
            for budget, (answer, seconds) in zip(task.budgets, answers, strict=True):
                self._points.take(task.strategy, budget, answer, seconds)
        except Exception as error:  # whatever the executor raises for a worker that died, or a claim that is refused
            self._lose(task, error)
            return
        self._queue.follow(task, answers)

    def _lose(self, task: SweepTask, error: Exception) -> None:
        """The task has no result: points that were solved together are tried one by one, a single one is given up."""
        what = str(error) if isinstance(error, RematError) else f"{type(error).__name__}: {error}"
        if self._queue.retry(task):
            self._points.search_again(task.strategy, task.then or task.budgets, what)
        elif task.kind == "curve":
            self._points.lose_curve(task.strategy, what)
        else:
            self._points.lose(task.strategy, task.then or task.budgets, what)

    def _deaths(self) -> list[str]:
        return self._workers.deaths if isinstance(self._workers, Processes) else []

    def _is_cancelled(self) -> bool:
        if self._asked is not None and not self._stop.is_set() and self._asked():
            self.cancel()
        return self._stop.is_set()

    def _end(self, executor: Executor) -> None:
        ended = not (self._in_flight or self._queue or self._stop.is_set())
        if self._in_flight:  # cancelled, or nobody listens any more
            ABANDONED.add(self._id)
        for future in self._in_flight:
            future.cancel()
        self._in_flight.clear()
        self._queue.clear()
        self._deaths()  # of those that nobody waited for
        if isinstance(executor, Processes) and executor is not self._executor:
            executor.kill()
        if self._kept is not None:
            self.remarks = tuple(self._points.keep(self._kept, ended))


def sweep(
    graph: Graph,
    budgets: int | str | Sequence[str | int | float] = 12,
    strategies: str | Sequence[str] = ("optimal",),
    executor: Executor | None = None,
    *,
    time_limit: Seconds | None = None,
    workers: Workers | None = None,
    solver: str = "highs",
    threads: Threads = 1,
    on_result: Callable[[Solution], None] | None = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    cache: bool = False,
) -> Frontier:
    """The trade-off between memory and cost: the best schedules found within several budgets.

    Args:
        graph: the training graph.
        budgets: how many, spaced from the smallest budget with a known schedule to the peak of keeping everything; or
            a list of what `solve` takes.
        strategies: keys of `STRATEGIES`.
        executor: any `concurrent.futures.Executor`, such as a thread pool or Dask's ``client.get_executor()``; it is
            not shut down. None for processes of the sweep's own.
        time_limit: seconds that a worker may spend on each point, on average. None for a curve in seconds, with gaps
            that a longer search would close.
        workers: how many tasks are with the executor at a time; None for the number of cores.
        solver: a key of `BACKENDS`.
        threads: threads of the solver in each worker.
        on_result: called in this thread with each solution as it arrives; a point comes again when it got better.
        on_progress: called in this thread when a result has arrived.
        cancelled: asked between results and twenty times a second; once True the sweep returns what it has.
        cache: take points from the user's cache folder whose kept answers, of `solve` or a sweep, had as much time as
            this sweep gives to a point, or are proven, and keep new ones there.

    Returns:
        All points. Of a method that does not ask for the budget also its own, wherever they fall
        (`Frontier.own_points`). A worker that dies costs its points only, a method that refuses the graph its curve;
        `Frontier.messages` says so.

    Raises:
        QuantityError: if a budget cannot be read.
        UnknownNameError: if there is no such strategy or solver.
        SolverError: if ``budgets`` is a number and the graph has operations with several implementations.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from remat_explorer.instances import linear
    >>> print(sweep(linear(8), [4, 6, 8], executor=ThreadPoolExecutor(1), time_limit=30))
    strategy  budget  peak  cost  overhead  gap  status
    optimal      4 B   4 B    26   +52.9 %  0 %  proven best
    optimal      6 B   6 B    21   +23.5 %  0 %  proven best
    optimal      8 B   8 B    19   +11.8 %  0 %  proven best
    """
    require_arguments(sweep, locals())
    run = Sweep(graph, budgets, strategies, executor, time_limit, workers, solver, threads, cancelled, cache)
    with run:
        for solution in run:
            if on_result is not None:
                on_result(solution)
            if on_progress is not None:
                on_progress(run.progress())
    for remark in run.remarks:
        warnings.warn(remark, RuntimeWarning, stacklevel=2)
    return run.frontier()
