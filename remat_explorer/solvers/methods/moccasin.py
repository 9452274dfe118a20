"""MOCCASIN: retention intervals as a constraint program on CP-SAT, in a process of its own.

Bartan, Li, Teague, Lott and Dilkina, "Moccasin: Efficient Tensor Rematerialization for Neural Networks", ICML 2023,
written anew from the paper (`remat_explorer.solvers.methods.retention_program` has the program and names the
differences). PyPI's package of that name is another thing. It needs ortools, the extra ``moccasin``.

It is optimal of its problem: at most C runs of each operation, in a fixed topological order. A schedule outside of it
runs some operation C more times at least, so that the lower bound on all schedules is the smaller one of the program's
bound and the cost of the cheapest C repetitions.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import queue
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, dump_graph
from remat_explorer.plan import Plan
from remat_explorer.python_process import python_command, python_path
from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import Method, Support, cheapest_within, whole_number
from remat_explorer.solvers.methods.chen import LINEARIZED_GREEDY
from remat_explorer.solvers.solver_interface import Answer, Incumbent, Limits, checkpoint_all, checkpoint_all_peak

LOOK = 0.1  # seconds between two looks at whether to stop
ENDING = 2.0  # seconds beyond the time limit that CP-SAT may take to end
PACKAGE = str(Path(__file__).resolve().parents[3])


def require_ortools() -> None:
    """Refuse to go on without ortools, which is an optional package; it is not imported."""
    if importlib.util.find_spec("ortools") is None:
        raise SolverError(
            "the strategy 'moccasin' solves its program with ortools, which is not installed: "
            "pip install 'remat-explorer[moccasin]'"
        )


@dataclass(frozen=True)
class Outcome:
    """What CP-SAT has proven."""

    bound: float | None = None  # no schedule of the program costs less; infinity where it has none
    ended: bool = False  # whether the search was complete
    integers: int = 0
    booleans: int = 0
    seconds: float = 0.0  # that writing it took
    hinted: bool = False  # whether it began with the schedule that was given


class CpSatProcess:
    """A process of `remat_explorer.solvers.methods.retention_program`; it ends with the block it was opened for."""

    def __init__(self) -> None:
        require_ortools()
        try:
            self._process = subprocess.Popen(
                python_command("-m", "remat_explorer.solvers.methods.retention_program"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env=os.environ | {"PYTHONPATH": python_path(PACKAGE)},
                process_group=0,  # an interruption is this process's to hear
            )
        except OSError as error:
            raise SolverError(f"the process of CP-SAT could not be started: {error}") from None
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> CpSatProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # it is closed
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def solve(
        self, condensed: CondensedGraph, budget: int, most_runs: int, limits: Limits, incumbent: Incumbent
    ) -> Outcome:
        """Write and solve a program; every better schedule goes to the incumbent.

        It looks ten times a second whether to stop.
        """
        known = incumbent.schedule
        request = {
            "graph": json.loads(dump_graph(condensed.graph)),
            "budget": budget,
            "most_runs": most_runs,
            "time_limit": limits.left,
            "threads": limits.threads,
            "hint": None if known is None else known.computations.rows(),
        }
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        size: dict[str, Any] = {}
        for message in self._messages(limits):
            if "integers" in message:
                size = message
                incumbent.tell(f"solving a program of {size['integers']} integers and {size['booleans']} Booleans")
            elif "computed" in message:
                incumbent.keep(_schedule(condensed, message["computed"], budget))
            else:
                if message["status"] == "invalid":
                    raise SolverError("CP-SAT refuses the program of 'moccasin'")
                bound = math.inf if message["status"] == "infeasible" else message["bound"]
                ended = message["status"] in ("infeasible", "ended")
                return Outcome(bound if message["exact"] else None, ended and message["exact"], **size)
        return Outcome(**size)

    def _messages(self, limits: Limits) -> Iterator[dict[str, Any]]:
        """Until the person cancels, or CP-SAT does not end in time."""
        while not limits.cancelled() and limits.elapsed < limits.time_limit + ENDING:
            try:
                line = self._lines.get(timeout=LOOK)
            except queue.Empty:
                continue
            if line is None:
                assert self._process.stderr is not None
                said = self._process.stderr.read().strip().splitlines()
                raise SolverError(f"the process of CP-SAT ended: {said[-1] if said else 'it said nothing'}")
            yield json.loads(line)


def _schedule(condensed: CondensedGraph, computed: list[tuple[int, int]], budget: int) -> Schedule:
    schedule = condensed.schedule(Computations.of((t, k, 1) for t, k in computed))
    if Plan.of(schedule).peak > budget:
        raise SolverError("the program of 'moccasin' gave a schedule that exceeds its budget")
    return schedule


MOST_RUNS = 2  # C of the paper's experiments
FIRST = 0.2  # share of the time for a schedule to begin with


def solve_moccasin(graph: Graph, budget: int, limits: Limits, most_runs: int = MOST_RUNS) -> Answer:
    """The cheapest schedule within the budget in which no operation runs more than C times.

    The constraint program begins with what linearized-greedy finds in a fifth of the time, and never ends with a dearer
    one. The lower bound is for all schedules.
    """
    most_runs = whole_number("most_runs", most_runs, 1, "runs of an operation")
    condensed, least = CondensedGraph.of(graph), graph.total_cost
    require_ortools()
    incumbent = Incumbent(limits, bound=least)
    if checkpoint_all_peak(graph) <= budget:
        incumbent.keep(checkpoint_all(graph))
        return incumbent.answer()
    assert LINEARIZED_GREEDY.candidates is not None
    incumbent.keep(cheapest_within(LINEARIZED_GREEDY.candidates(graph), budget, limits.share(FIRST)).schedule)
    if limits.over:
        return Answer(incumbent.schedule, least)
    incumbent.tell("starting CP-SAT")
    with CpSatProcess() as process:
        outcome = process.solve(condensed, budget, most_runs, limits, incumbent)
    again = [condensed.costs[k] for k in range(graph.n - 1) if condensed.outputs[k]]
    beyond = least + most_runs * float(min(again)) if again else math.inf
    if outcome.bound is not None:
        incumbent.raise_bound(max(least, min(outcome.bound, beyond)))
    incumbent.tell("done")
    limit = _ended(outcome.bound, most_runs) if outcome.ended and outcome.bound is not None else ""
    known = None if math.isinf(incumbent.bound) else incumbent.bound
    return Answer(incumbent.schedule, known, infeasible=known is None, limit=limit)


def _ended(bound: float, most_runs: int) -> str:
    """What a search that ended has proven of its own problem, in words after "ended by"."""
    problem = f"at most {most_runs} runs of an operation"
    if math.isinf(bound):
        return f"its own problem, {problem}: no such schedule fits"
    return f"its own problem, {problem}: no such schedule costs less than {bound:.6g}"


METHOD = Method(
    solve_moccasin,
    "a constraint program of when values are kept: the best schedule in which no operation runs more than most_runs "
    "times",
    "Bartan et al. 2023, ICML",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("most_runs",),
    threads=2,
    load=require_ortools,
    symbol="arrow-wide",
)
