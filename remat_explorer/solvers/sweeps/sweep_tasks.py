"""What a sweep asks of a worker, and what it gets back: JSON text both ways, whatever carries it.

A request names a strategy, budgets, what is known there, what to do, and a time limit. A worker's answer is a claim:
the parent checks every schedule before anyone sees it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from remat_explorer.documents import quote
from remat_explorer.errors import RematError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime.together import solve_together
from remat_explorer.solvers.backends import BACKENDS
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.bounds.runs import pack_runs, unpack_runs
from remat_explorer.solvers.search.compiled_search import load_search
from remat_explorer.solvers.strategies.registry import STRATEGIES
from remat_explorer.solvers.sweeps.own_curves import write_curve

Kind = Literal["plan", "together", "alone", "curve"]

ABANDONED: set[str] = set()  # sweeps that nobody waits for any more, as far as this process knows


@dataclass(frozen=True)
class SweepTask:
    """Points of one strategy that one worker works on.

    Attributes:
        strategy: a key of `STRATEGIES`.
        budgets: bytes, ascending.
        kind: "plan" for a first answer at each budget, "together" where the budgets share their work, "alone" for a
            full search at one budget, "curve" for all schedules of a method that does not ask for the budget.
        time_limit: seconds for all of them.
        then: of a plan: budgets that are to be solved together afterwards.
        planned: of budgets together: whether they were planned.
    """

    strategy: str
    budgets: tuple[int, ...]
    kind: Kind
    time_limit: float
    then: tuple[int, ...] = ()
    planned: bool = False


def write_request(
    sweep: str, task: SweepTask, starts: Sequence[Schedule], lower_bound: float | None, solver: str, threads: int
) -> str:
    """The request text.

    Args:
        sweep: what `ABANDONED` calls this sweep.
        task: what to do.
        starts: schedules to begin with wherever they fit.
        lower_bound: on the cost at the first budget, or None.
        solver: the back end.
        threads: its threads.
    """
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


def work(graph_text: str, request_text: str) -> str:
    """Do what a request says; the function that executors call.

    Args:
        graph_text: a graph file's text.
        request_text: what `write_request` made.

    Returns:
        What `read_answers` takes, or `read_curve` of a curve; an error is a part of it, since not every exception
        survives the way back.
    """
    try:
        graph, request = _graph(graph_text), json.loads(request_text)
        make_ready(request["solver"])  # which is no part of the first task's time
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
def make_ready(solver: str) -> None:
    """Load what a search needs: the back end's library, and compiled code, which is made where there is none."""
    load_search()
    solve_together(linear(4), (4, 6), [], Limits(solver=solver))


def read_answers(text: Any, graph: Graph, count: int) -> list[tuple[Answer, float]]:
    """The answers in a worker's text, each with the seconds it took.

    Raises:
        SolverError: with the worker's message if it failed, or if the text is no answer to ``count`` budgets.
    """
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
