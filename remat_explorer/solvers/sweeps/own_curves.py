"""The schedules of a method that does not ask for the budget: made once for a sweep, in a worker; JSON on the way back.

Like any answer of a worker they are a claim, which the parent checks.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from remat_explorer.documents import quote
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.runs import pack_runs, unpack_runs
from remat_explorer.solvers.method import Candidate
from remat_explorer.solvers.strategies.registry import STRATEGIES, method_of


@dataclass(frozen=True, eq=False)
class OwnCurve:
    """What a worker says of a method's schedules.

    Attributes:
        candidates: in the order in which the method tries them; not checked.
        complete: whether these are all of them, or the time was up before.
        seconds: wall time that they took.
    """

    candidates: tuple[Candidate, ...]
    complete: bool
    seconds: float


def has_own_curve(strategy: str) -> bool:
    """Whether a method does not ask for the budget.

    One that cannot be loaded is taken to have a curve, so that a sweep hears of it once, from its worker.

    >>> has_own_curve("griewank"), has_own_curve("optimal")
    (True, False)
    """
    method = method_of(strategy)
    return method is None or method.candidates is not None


def write_curve(graph: Graph, strategy: str, limits: Limits) -> str:
    """Make the schedules of a method, at least one and as many as there is time for; the text for `read_curve`.

    Raises:
        SolverError: if the method is not for this graph.
    """
    method = STRATEGIES[strategy]
    assert method.candidates is not None
    begun, candidates, complete = time.monotonic(), [], True
    for candidate in method.candidates(graph):
        candidates.append({"label": candidate.label, "runs": pack_runs(candidate.schedule)})
        if limits.over:
            complete = False
            break
    return json.dumps({"candidates": candidates, "complete": complete, "seconds": time.monotonic() - begun})


def read_curve(text: Any, graph: Graph) -> OwnCurve:
    """The schedules in a worker's text.

    Raises:
        SolverError: with the worker's message if it failed, or if the text holds no schedules of this graph.

    >>> from remat_explorer.instances import linear
    >>> curve = read_curve(write_curve(linear(4), "griewank", Limits()), linear(4))
    >>> [candidate.schedule.cost for candidate in curve.candidates], curve.complete
    ([9.0, 10.0, 11.0, 15.0], True)
    """
    try:
        document = json.loads(text)
        if "error" in document:
            raise SolverError(str(document["error"]))
        entries = [(str(entry["label"]), entry["runs"]) for entry in document["candidates"]]
        candidates = tuple(Candidate(unpack_runs(runs, graph, SolverError), label) for label, runs in entries)
        return OwnCurve(candidates, bool(document["complete"]), float(document["seconds"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SolverError(f"the worker sent schedules that cannot be read: {error!r}: {quote(text)}") from None
