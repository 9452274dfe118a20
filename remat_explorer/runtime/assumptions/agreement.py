"""One schedule for all processes that hold a sharded model: the first one searches, the others take its answer."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from typing import TypeVar

from remat_explorer import errors
from remat_explorer.capture.captured_program import Program
from remat_explorer.capture.sharded_parameters import COLLECTIVES
from remat_explorer.capture.sharding import FAILED, SOLUTION, STEP, DisagreementError, ProcessGroup
from remat_explorer.documents import to_json
from remat_explorer.errors import ExecutionError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan
from remat_explorer.solution import Solution

Planned = TypeVar("Planned")


def one_solution(processes: ProcessGroup | None, graph: Graph, search: Callable[[], Solution]) -> Solution:
    """What ``search`` gives on the first process, checked again on each; here, if there is only one.

    Args:
        processes: those that take part, or None.
        graph: of the step, the same on each.
        search: finds a solution of ``graph``.

    Raises:
        Exception: on every process, what ``search`` has raised on the first one.
    """
    if processes is None:
        return search()
    found, error = None, None
    if processes.rank == 0:
        try:
            found = search()
        except Exception as raised:  # the others wait for an answer
            error = raised
    entry = {
        "graph": graph.sha256,
        "solution": None if found is None else json.loads(to_json(found.to_document())),
        "error": None if error is None else [type(error).__name__, str(error)],
    }
    told = processes.told(SOLUTION, entry)
    processes.require_same([one["graph"] for one in told], "other costs or sizes of a step")
    if error is not None:
        raise error
    if told[0]["error"] is not None:
        name, text = told[0]["error"]
        raise getattr(errors, name, ExecutionError)(text)
    return found or Solution.from_document(told[0]["solution"], graph)


def digest_of_collectives(plan: Plan, program: Program) -> int:
    """A number that two plans share if they have the same collectives in the same order; never 0."""
    order = []
    for statement in plan.statements:
        if isinstance(statement, Compute):
            calls = program.body(statement).calls
            sent = [str(call.target) for call in calls if call.target in COLLECTIVES]
            order += [[plan.graph.operations[statement.operation].name, *sent]] if sent else []
    return 1 + int.from_bytes(hashlib.sha256(json.dumps(order).encode()).digest()[:7], "big")


def together(processes: ProcessGroup, planning: Callable[[], Planned], digest: Callable[[Planned], int]) -> Planned:
    """The plan of a step, after every process has found one with the same collectives in the same order.

    Args:
        processes: those that take part.
        planning: finds the plan of this process, alone or together with the others.
        digest: of a plan, as `digest_of_collectives` gives it.

    Raises:
        DisagreementError: on every process, if another process has none, or one with other collectives.
        Exception: what ``planning`` raises.
    """
    try:
        planned = planning()
    except DisagreementError:  # which all of them have met
        raise
    except Exception:  # whatever a person's model does while it is traced
        with contextlib.suppress(DisagreementError):
            processes.numbers(FAILED, 0)
        raise
    processes.require_same(processes.numbers(STEP, digest(planned)), "a plan with other collectives")
    return planned
