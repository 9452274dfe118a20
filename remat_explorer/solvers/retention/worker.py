"""The process in which CP-SAT runs: ortools has a HiGHS of its own, and no process can load that beside highspy's.

It reads requests, one line of JSON each, and answers each with lines of JSON: how large the program is, every better
solution, and in the end what is proven. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import Any

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.retention.program import RetentionProgram


def main() -> None:
    from ortools.sat.python import cp_model

    requests: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(line)
        os._exit(0)  # whoever asked has ended, or wants no answer

    threading.Thread(target=listen, daemon=True).start()
    while True:
        answer(cp_model, json.loads(requests.get()))


def answer(cp_model: Any, request: dict[str, Any]) -> None:
    """Build and solve one program."""
    begin = time.monotonic()
    graph = Graph.from_document(request["graph"])
    program = RetentionProgram(cp_model, Condensed.of(graph), request["budget"], request["most_runs"])
    if not program.build(Limits(time_limit=request["time_limit"])):
        tell(status="unknown", bound=None, exact=False)
        return
    hint = request["hint"]
    schedule = None if hint is None else Schedule.leanest(graph, graph.n, Computations.of(hint))
    hinted = schedule is not None and program.hint(schedule)
    tell(integers=program.integers, booleans=program.booleans, seconds=time.monotonic() - begin, hinted=hinted)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.0, request["time_limit"] - (time.monotonic() - begin))
    solver.parameters.num_workers = request["threads"]

    class Found(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            tell(computed=program.computed(self.value))

    status = solver.solve(program.model, Found())
    names = {cp_model.OPTIMAL: "ended", cp_model.INFEASIBLE: "infeasible", cp_model.MODEL_INVALID: "invalid"}
    bound = program.cost(max(0.0, solver.best_objective_bound))
    tell(status=names.get(status, "unknown"), bound=bound, exact=program.exact)


def tell(**message: Any) -> None:
    """One line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
