"""Retention intervals as a constraint program on CP-SAT, after MOCCASIN.

Bartan, Li, Teague, Lott and Dilkina, "Moccasin: Efficient Tensor Rematerialization for Neural Networks", ICML 2023. An
operation runs at most C times, and what each run computes is retained in one interval, from that run to its last read.
Variables are the starts and ends of intervals, and whether each is there: their number grows with the number of
operations, not with its square. Memory is one cumulative constraint over all intervals.

Operations run in the order of a given topological order within stages, as in Checkmate's problem (9), so that an event
is a pair of a stage and an operation: event(t, k) = n t + k. The first run of operation k is event(k, k).

Differences from the paper: an operation may write several values, which have one start and an end each; workspace,
values that stay to the end, and outputs that take over the storage of an input are accounted for; that each run finds
its inputs is said by a Boolean for each read and run of the producer, a number that grows with the reads.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph.file import dump_graph
from remat_explorer.plan import Plan
from remat_explorer.python_process import python_command, python_path
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations
from remat_explorer.solvers.base import Incumbent, Limits
from remat_explorer.solvers.bounds.stages import cost_step
from remat_explorer.solvers.condensed import Condensed

LOOK = 0.1  # seconds between two looks at whether to stop
ENDING = 2.0  # seconds beyond the time limit that CP-SAT may take to end
PACKAGE = str(Path(__file__).resolve().parents[3])


def require_ortools() -> None:
    """Refuse to go on without ortools, which is an optional package; it is not imported.

    Raises:
        SolverError: if it is not installed.
    """
    if importlib.util.find_spec("ortools") is None:
        raise SolverError(
            "the strategy 'moccasin' solves its program with ortools, which is not installed: "
            "pip install 'remat-explorer[moccasin]'"
        )


@dataclass(frozen=True)
class Outcome:
    """What CP-SAT has proven.

    Attributes:
        bound: no schedule of the program costs less; infinity where it has none, None where nothing is known.
        ended: whether the search was complete.
        integers, booleans: variables of the program.
        seconds: that writing it took.
        hinted: whether it began with the schedule that was given.
    """

    bound: float | None = None
    ended: bool = False
    integers: int = 0
    booleans: int = 0
    seconds: float = 0.0
    hinted: bool = False


class CpSatProcess:
    """A process of `remat_explorer.solvers.retention.worker`; it ends with the block that it was opened for.

    Raises:
        SolverError: if ortools is not installed, or the process cannot be started.
    """

    def __init__(self) -> None:
        require_ortools()
        try:
            self._process = subprocess.Popen(
                python_command("-m", "remat_explorer.solvers.retention.worker"),
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

    def solve(self, condensed: Condensed, budget: int, most_runs: int, limits: Limits, incumbent: Incumbent) -> Outcome:
        """Write and solve a program; every better schedule goes to the incumbent.

        Args:
            condensed: n operations and their groups of values.
            budget: bytes, resident bytes included.
            most_runs: C.
            limits: time, threads, and whether to stop, which is looked at ten times a second.
            incumbent: has the schedule to begin with, and takes better ones.

        Raises:
            SolverError: if the process has an error, or a schedule exceeds the budget: a bug.
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


def _schedule(condensed: Condensed, computed: list[tuple[int, int]], budget: int) -> Schedule:
    schedule = condensed.schedule(Computations.of((t, k, 1) for t, k in computed))
    if Plan.of(schedule).peak > budget:
        raise SolverError("the program of 'moccasin' gave a schedule that exceeds its budget")
    return schedule


COST_RESOLUTION = 2**40  # the sum of all costs in the objective's units, where no cost divides all
ROUNDING = 1e-6  # units


@dataclass(eq=False)
class Run:
    """A run of an operation: C of them, of which the first is certain.

    Attributes:
        active: whether it happens: a literal, or True for the first.
        stage: in which stage; a variable, or the number of the first.
        start: its event, n stage + operation.
        ends: for each group that the operation writes, the event of its last read.
    """

    active: Any
    stage: Any
    start: Any
    ends: dict[int, Any] = field(default_factory=dict)


class RetentionProgram:
    """The constraint program of one graph, budget and C.

    Args:
        cp_model: the module of ortools.
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        most_runs: C, at least 1.

    Attributes:
        model: to be solved.
        runs: for each operation its runs.
        scale: units of the objective in a unit of cost. Weights are whole numbers: where all costs are multiples of
            one, exactly; else they are rounded down, so that a bound stays one.
        exact: whether memory is that of a plan; else some of it is counted twice, and a bound on cost proves nothing.
    """

    def __init__(self, cp_model: Any, condensed: Condensed, budget: int, most_runs: int) -> None:
        self.condensed, self.budget, self.most_runs = condensed, budget, most_runs
        self.model = cp_model.CpModel()
        self.runs: list[list[Run]] = []
        self.integers, self.booleans = 0, 0
        step, total = cost_step(condensed.graph), condensed.graph.total_cost
        self.scale = 1 / step if step else COST_RESOLUTION / total if total else 1.0
        self.exact = True

    def build(self, limits: Limits) -> bool:
        """Add everything; False if the time ran out before the end."""
        for step in (self._add_runs, self._add_reads):
            for k in range(self.condensed.n):
                if limits.over:
                    return False
                step(k)
        self._add_memory()
        again = [(run.active, self.weight(k)) for k, runs in enumerate(self.runs) for run in runs[1:]]
        self.model.minimize(sum(weight * active for active, weight in again))
        return True

    def weight(self, k: int) -> int:
        """What another run of an operation costs, in units of the objective."""
        return int(self.condensed.costs[k] * self.scale + ROUNDING)

    def cost(self, objective: float) -> float:
        """The cost of a schedule, or a lower bound on it, from the objective or a bound on that."""
        return self.condensed.graph.total_cost + objective / self.scale

    def _add_runs(self, k: int) -> None:
        """s, e and a of operation k: runs are in order, and an interval ends before the next one starts."""
        n, outputs = self.condensed.n, self.condensed.outputs[k]
        runs = [Run(True, k, n * k + k)]
        for i in range(1, self.most_runs if outputs and k + 1 < n else 1):
            stage = self._integer(k + 1, n - 1, f"stage {k} {i}")
            runs.append(Run(self._boolean(f"active {k} {i}"), stage, n * stage + k))
        for i, run in enumerate(runs):
            for v in outputs:
                run.ends[v] = self._integer(n * k + k, n * n - 1, f"end {v} {i}")
                self.model.add(run.ends[v] >= run.start)
            if i:
                self.model.add(run.start > runs[i - 1].start).only_enforce_if(run.active)
                for v in outputs:
                    self.model.add(run.start > runs[i - 1].ends[v]).only_enforce_if(run.active)
            if i > 1:
                self.model.add_implication(run.active, runs[i - 1].active)
        self.runs.append(runs)

    def _add_reads(self, k: int) -> None:
        """Each run of operation k is within an interval of every group that it reads."""
        for run in self.runs[k]:
            for v in self.condensed.inputs[k]:
                sources = self.runs[int(self.condensed.producer[v])]
                serves = [self._boolean(f"read {k} {v}") for _ in sources] if len(sources) > 1 else [True]
                for serving, source in zip(serves, sources, strict=True):
                    conditions = [one for one in (serving, run.active) if one is not True]
                    self._given(self.model.add(source.ends[v] >= run.start), conditions)
                    if source.active is not True:
                        self._given(self.model.add(source.start < run.start), conditions)
                        self.model.add_implication(serving, source.active)
                if serves != [True]:
                    self.model.add_bool_or(serves + ([] if run.active is True else [run.active.negated()]))

    def _given(self, constraint: Any, conditions: list[Any]) -> None:
        if conditions:
            constraint.only_enforce_if(conditions)

    def _add_memory(self) -> None:
        """All intervals together never need more than the budget."""
        problem, n = self.condensed, self.condensed.n
        tasks: list[tuple[Any, int]] = []
        base = problem.base
        for t in np.flatnonzero(np.diff(base)) + 1:  # what stays to the end
            tasks.append(
                (self.model.new_fixed_size_interval_var(n * int(t), n * n - n * int(t), ""), int(base[t] - base[t - 1]))
            )
        for k, runs in enumerate(self.runs):
            for run in runs:
                if problem.transient[k]:
                    tasks.append((self._interval(run, run.start + 1), int(problem.transient[k])))
                for v in problem.outputs[k]:
                    tasks += self._retained(run, v)
        intervals, demands = [task for task, _ in tasks], [size for _, size in tasks]
        self.model.add_cumulative(intervals, demands, max(0, self.budget - int(base[0])))

    def _retained(self, run: Run, v: int) -> list[tuple[Any, int]]:
        """The tasks of one interval: of what an operation may overwrite a part of the bytes ends a moment earlier."""
        size, after = int(self.condensed.bytes[v]), run.ends[v] + 1
        overwriting = [k for k in self.condensed.readers[v] if self.condensed.overwritten[k] == v]
        if not overwriting:
            return [(self._interval(run, after), size)]
        credits = {int(self.condensed.credit[k]) for k in overwriting}
        self.exact = self.exact and len(credits) == 1
        part = min(credits)
        last, taken = self._integer(0, self.condensed.n**2, f"last {v}"), self._boolean(f"taken over {v}")
        self.model.add(last == after - taken)
        at = []
        for k in overwriting:
            for reader in self.runs[k]:
                here = self._boolean(f"taken over {v} by {k}")
                self.model.add(run.ends[v] == reader.start).only_enforce_if(here)
                if reader.active is not True:
                    self.model.add_implication(here, reader.active)
                at.append(here)
        self.model.add_bool_or([taken.negated(), *at])
        own = self._interval(run, last)
        return [(own, part), *([(self._interval(run, after), size - part)] if size > part else [])]

    def _interval(self, run: Run, end: Any) -> Any:
        size = self._integer(0, self.condensed.n**2, "size")
        if run.active is True:
            return self.model.new_interval_var(run.start, size, end, "")
        return self.model.new_optional_interval_var(run.start, size, end, run.active, "")

    def _integer(self, least: int, most: int, name: str) -> Any:
        self.integers += 1
        return self.model.new_int_var(least, most, name)

    def _boolean(self, name: str) -> Any:
        self.booleans += 1
        return self.model.new_bool_var(name)

    def hint(self, schedule: Schedule) -> bool:
        """Begin with a schedule; False if an operation runs more often in it than it may here."""
        problem, n = self.condensed, self.condensed.n
        stages: list[list[int]] = [[] for _ in range(n)]
        for t, k, _ in schedule.sequence:
            stages[k].append(t)
        if any(len(found) > len(runs) for found, runs in zip(stages, self.runs, strict=True)):
            return False
        ends: dict[tuple[int, int], int] = {}  # a group and the stage that computes it: its last read
        for t, k, _ in schedule.sequence:
            for v in problem.inputs[k]:
                made = max(s for s in stages[int(problem.producer[v])] if s <= t)
                ends[v, made] = max(ends.get((v, made), 0), n * t + k)
        for k, runs in enumerate(self.runs):
            for i, run in enumerate(runs):
                happens = i < len(stages[k])
                if i:
                    self.model.add_hint(run.active, happens)
                    if happens:
                        self.model.add_hint(run.stage, stages[k][i])
                for v, end in run.ends.items() if happens else ():
                    self.model.add_hint(end, ends.get((v, stages[k][i]), n * stages[k][i] + k))
        return True

    def computed(self, value: Any) -> list[tuple[int, int]]:
        """What a solution computes: pairs of a stage and an operation.

        Args:
            value: from a variable to its number.
        """
        found = {
            (int(value(run.stage)) if i else k, k)
            for k, runs in enumerate(self.runs)
            for i, run in enumerate(runs)
            if not i or value(run.active)
        }
        return sorted(found)
