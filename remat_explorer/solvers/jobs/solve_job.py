"""A solve in the background that can be watched and stopped, for notebooks and other programs with an event loop."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.errors import ScheduleError, SolverError
from remat_explorer.graph import Graph, dump_graph
from remat_explorer.quantities import format_seconds
from remat_explorer.schedule import Computations, Retained, Schedule
from remat_explorer.solvers.cache import Question, known_answer, load_solution, no_worse, store_solution
from remat_explorer.solvers.jobs.worker_process import WorkerProcess, prepare_worker, take_worker
from remat_explorer.solvers.registry import threads_of
from remat_explorer.solvers.solution import Solution, pack_runs
from remat_explorer.solvers.solve import judge
from remat_explorer.solvers.solver_interface import INTERRUPTION, Answer, Progress, time_limit_of


def pack_progress(progress: Progress, with_schedule: bool) -> dict[str, Any]:
    """A progress message; ``with_schedule`` is False when the parent has this schedule already."""
    message: dict[str, Any] = {
        "seconds": progress.seconds,
        "doing": progress.doing,
        "lower_bound": progress.lower_bound,
    }
    if progress.schedule is not None and with_schedule:
        schedule = progress.schedule
        message |= {"stages": schedule.stages, "computations": schedule.computations.rows()}
        message |= {"retained": schedule.retained.rows()}
    return message


def unpack_progress(message: dict[str, Any], graph: Graph, budget: int, progress: Progress) -> Progress:
    """What is known once a message was heard: the cheaper schedule, checked, and the higher bound."""
    try:
        schedule, bounds = progress.schedule, [progress.lower_bound, message["lower_bound"]]
        if "stages" in message:
            computations, retained = Computations.of(message["computations"]), Retained.of(message["retained"])
            sent = Schedule.of_runs(graph, int(message["stages"]), computations, retained)
            heard = check_schedule(sent, budget).schedule
            schedule = heard if schedule is None or heard.cost <= schedule.cost else schedule
        bound = max((float(entry) for entry in bounds if entry is not None), default=None)
        return Progress(float(message["seconds"]), str(message["doing"]), schedule, bound)
    except ScheduleError as error:
        raise SolverError(f"the strategy's schedule is refused: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise SolverError(f"the worker sent a progress message that cannot be read: {error!r}") from None


GRACE = 0.75  # seconds that a worker may take beyond its time limit before it is ended
LOOK = 0.02  # seconds between two looks at whether the worker that waits has loaded everything
STARTING = 60.0  # seconds that a worker may take to begin
COMPILING = 600.0  # the same once it has said that it compiles first
SLOW = "the solver process did not begin within {}"
KEPT = "the best schedule found until then is kept"


class SolveJob:
    """A running solve: `start` it, `poll` it now and then, `cancel` it, and read its `solution`.

    A thread reads the worker's messages, so every method returns at once, except `wait`. Whatever becomes of the
    worker, the best schedule that it told of, checked, and its bound remain.

    Attributes:
        from_cache: whether the solution was kept from an earlier solve, and nothing was run.

    >>> from remat_explorer.instances import linear
    >>> job = SolveJob.start(linear(8), budget=4)
    >>> job.wait(timeout=60)
    True
    >>> job.solution().cost
    26.0
    """

    def __init__(self, question: Question, cache: bool = False) -> None:
        self.graph, self.budget, self.strategy = question.graph, question.budget, question.strategy
        self.from_cache = False
        self._question, self._cache = question, cache
        self._worker: WorkerProcess | None = None
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self._news: list[Progress] = []
        self._known: Schedule | None = None
        self._last = Progress(0.0, "starting")
        self._solution: Solution | None = None
        self._error: str | None = None
        self._remarks: list[str] = []
        self._began = self._cancelled = False
        self._overdue = ""  # what did not happen in time, if the worker was ended for that
        self._finished = threading.Event()

    @staticmethod
    def start(
        graph: Graph,
        budget: int,
        strategy: str = "optimal",
        time_limit: float = 60.0,
        solver: str = "highs",
        threads: int | None = None,
        cache: bool = False,
        known: Answer | None = None,
        **options: Any,
    ) -> SolveJob:
        """Start a worker process; the arguments are those of `solve`, the budget in bytes.

        With ``known``, a schedule and a lower bound, a strategy that claims to find the cheapest schedule begins with
        them, if the schedule is within the budget, and so it does with what the cache has; its answer, and everything
        that it reports, is never worse, however it ends.

        The worker is ended `GRACE` seconds after its time limit if its back end ignores that; the time begins once the
        worker has loaded what it needs. With ``cache``, an answer that is kept from an earlier solve needs no worker.

        Raises:
            SolverError: if the process cannot be started.
        """
        threads = threads_of(strategy, threads)
        question = Question(graph, int(budget), strategy, solver, float(time_limit), threads, options)
        job = SolveJob(question, cache)
        if cache and (kept := load_solution(question)) is not None:
            given = known_answer(question, known, cache=False).schedule
            job._solution = kept = no_worse(kept, given)
            job._news.append(Progress(0.0, "found in the cache", kept.schedule, kept.lower_bound))
            job.from_cache = True
            job._finished.set()
            return job
        start = known_answer(question, known, cache)
        job._know(start)
        request = {
            "graph": json.loads(dump_graph(graph)),
            "budget": question.budget,
            "strategy": strategy,
            "time_limit": question.time_limit,
            "solver": solver,
            "threads": question.threads,
            "options": question.options,
            "known": None if start.schedule is None else pack_runs(start.schedule),
            "lower_bound": start.lower_bound,
        }
        job._worker = take_worker()
        threading.Thread(target=job._run, args=(json.dumps(request),), daemon=True).start()
        return job

    @staticmethod
    def prepare() -> None:
        """Start a worker ahead, unless one waits already, so that the next job begins without its start-up time.

        Raises:
            SolverError: if the process cannot be started.
        """
        prepare_worker()

    def poll(self) -> list[Progress]:
        """What is new since the last call, oldest first; each carries the best schedule and bound known by then."""
        with self._lock:
            news, self._news = self._news, []
        return news

    @property
    def done(self) -> bool:
        """Whether `solution` has its final answer."""
        return self._finished.is_set()

    @property
    def was_known(self) -> bool:
        """Whether the answer's schedule is the one that the job began with."""
        return self._known is not None and self._solution is not None and self._solution.schedule is self._known

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on what went wrong although there is a solution: a worker that died, a cache that is full."""
        return tuple(self._remarks)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until done, at most ``timeout`` seconds; returns `done`."""
        return self._finished.wait(timeout)

    def cancel(self) -> None:
        """End the worker; `solution` is then the best schedule so far with its last valid bound."""
        with self._lock:
            if self._finished.is_set():
                return
            self._cancelled = True
            if self._worker is not None:
                self._worker.kill()
        self._finished.wait(5)

    def solution(self) -> Solution:
        """The answer; of a job that ended early the best schedule so far, status feasible or unknown.

        Raises:
            SolverError: if the worker failed before it told of a schedule, or if the job is still running.
        """
        if not self.done:
            raise SolverError("this solve is still running; wait for it or cancel it first")
        if self._error is not None:
            raise SolverError(self._error)
        assert self._solution is not None
        return self._solution

    def _know(self, start: Answer) -> None:
        """Begin with what is known: it is heard first, and whatever becomes of the worker, it remains."""
        if start.schedule is not None:
            self._known = start.schedule
            words = "beginning with the best known schedule"
            self._last = Progress(0.0, words, start.schedule, start.lower_bound)
            self._news.append(self._last)

    def _run(self, request: str) -> None:
        """Thread: send the request, read messages until the answer or the worker's end, and settle the answer."""
        failure, ending = "", ""
        try:
            if (worker := self._worker or self._wait_for_worker()) is not None:
                try:
                    failure = self._converse(worker, request)
                finally:
                    ending = worker.close()
        except SolverError as error:
            failure = str(error)
        finally:
            try:
                self._settle(failure, ending)
            except Exception as error:  # who waits for this job must not wait for ever
                self._error = f"the answer of the solver process could not be used: {error}"
            self._finished.set()

    def _wait_for_worker(self) -> WorkerProcess | None:
        """A worker, once there is one; None if nobody waits for the answer any more."""
        ends = time.monotonic() + STARTING
        while not self._cancelled:
            if time.monotonic() > ends:
                raise SolverError(SLOW.format(format_seconds(STARTING)))
            worker = take_worker()
            if worker is not None:
                with self._lock:
                    self._worker = worker
                    if self._cancelled:
                        worker.kill()
                return worker
            time.sleep(LOOK)
        return None

    def _converse(self, worker: WorkerProcess, request: str) -> str:
        """Read what the worker says until its answer or its end; returns why it failed, if it said so."""
        assert worker.process.stdout is not None
        limit = self._question.time_limit
        deadline = self._end_after(STARTING, SLOW.format(format_seconds(STARTING)))
        try:
            worker.ask(request)
            for line in worker.process.stdout:
                if not line.endswith("\n"):
                    break  # the worker was ended in the middle of a message
                message = json.loads(line)
                if "begun" in message:
                    deadline.cancel()
                    self._began, self._since = True, time.monotonic()
                    late = f"the solver did not stop at its time limit of {format_seconds(limit)} and was ended"
                    deadline = self._end_after(limit + GRACE, late)
                elif "progress" in message:
                    if not self._began:
                        deadline.cancel()
                        deadline = self._end_after(COMPILING, SLOW.format(format_seconds(COMPILING)))
                    self._hear(message["progress"])
                elif "solution" in message:
                    self._solution = no_worse(Solution.from_document(message["solution"], self.graph), self._known)
                    worker.kill()  # rather than wait until it has tidied up
                    return ""
                else:
                    worker.kill()
                    return str(message["error"])
        except Exception as error:  # whatever a broken worker can say
            worker.kill()
            return f"the solver process sent what cannot be used: {error}"
        finally:
            deadline.cancel()
        return ""

    def _end_after(self, seconds: float, reason: str) -> threading.Timer:
        def end() -> None:
            assert self._worker is not None
            self._overdue = reason
            self._worker.kill()

        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), end)
        timer.daemon = True
        timer.start()
        return timer

    def _hear(self, message: dict[str, Any]) -> None:
        progress = unpack_progress(message, self.graph, self.budget, self._last)
        with self._lock:
            self._last = progress
            self._news.append(progress)

    def _settle(self, failure: str, ending: str) -> None:
        """Decide the answer once the worker is gone: what it said went wrong, or "", and how the process ended."""
        question, seconds = self._question, time.monotonic() - self._since
        if self._solution is None:
            last, searched_to_the_end = self._last, bool(not failure and self._overdue and self._began)
            known = self._known if failure else None  # of itself it is no reason to pass over what went wrong
            found = last.schedule is not None and (known is None or last.schedule.cost < known.cost)
            failure = failure or self._overdue
            if not failure and not self._cancelled:
                failure = f"the solver process ended without an answer: {ending}"
            if failure and not found and not searched_to_the_end:
                self._error = failure
                return
            if failure:
                self._remarks.append(failure if last.schedule is None else f"{failure}; {KEPT}")
            limit = f"a failure ({failure})" if failure else INTERRUPTION
            limit = time_limit_of(question.time_limit) if searched_to_the_end else limit
            answer = Answer(last.schedule, last.lower_bound, solver=question.solver, limit=limit)
            self._solution = no_worse(judge(self.graph, self.budget, self.strategy, answer, seconds), self._known)
            question = question if searched_to_the_end else question.within(seconds)
        if self._cache and (problem := store_solution(question, self._solution)):
            self._remarks.append(problem)
