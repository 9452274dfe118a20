"""Retention intervals as a constraint program on CP-SAT, after MOCCASIN, and the process that solves it.

Bartan, Li, Teague, Lott and Dilkina, "Moccasin: Efficient Tensor Rematerialization for Neural Networks", ICML 2023. An
operation runs at most C times, and what each run computes is retained in one interval, from that run to its last read.
Variables are the starts and ends of intervals, and whether each is there: their number grows with the number of
operations, not with its square. Memory is one cumulative constraint over all intervals.

Operations run in the order of a given topological order within stages, as in Checkmate's problem (9), so that an event
is a pair of a stage and an operation: event(t, k) = n t + k. The first run of operation k is event(k, k).

Differences from the paper: an operation may write several values, which have one start and an end each; workspace,
values that stay to the end, and outputs that take over the storage of an input are accounted for; that each run finds
its inputs is said by a Boolean for each read and run of the producer, a number that grows with the reads.

CP-SAT runs in this module's own process (`main`): ortools has a HiGHS of its own, and no process can load that beside
highspy's. The process reads requests, one line of JSON each, and answers each with lines of JSON: how large the program
is, every better solution, and in the end what is proven. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solvers.bounds.merged_stages import cost_step
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.solver_interface import Limits

COST_RESOLUTION = 2**40  # the sum of all costs in the objective's units, where no cost divides all
ROUNDING = 1e-6  # units


@dataclass(eq=False)
class _Run:
    """A run of an operation: C of them, of which the first is certain."""

    active: Any  # whether it happens: a literal, or True for the first
    stage: Any  # in which stage; a variable, or the number of the first
    start: Any  # its event, n stage + operation
    ends: dict[int, Any] = field(default_factory=dict)  # by group that the operation writes, the event of its last read


class RetentionProgram:
    """The constraint program of one graph, budget and C.

    Weights of the objective are whole numbers, ``scale`` in a unit of cost: exact where all costs are multiples of one;
    else they are rounded down, so that a bound stays one. Memory is ``exact`` if it is that of a plan; else some of it
    is counted twice, and a bound on cost proves nothing.
    """

    def __init__(self, cp_model: Any, condensed: CondensedGraph, budget: int, most_runs: int) -> None:
        self.condensed, self.budget, self.most_runs = condensed, budget, most_runs
        self.model = cp_model.CpModel()
        self.runs: list[list[_Run]] = []
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
        runs = [_Run(True, k, n * k + k)]
        for i in range(1, self.most_runs if outputs and k + 1 < n else 1):
            stage = self._integer(k + 1, n - 1, f"stage {k} {i}")
            runs.append(_Run(self._boolean(f"active {k} {i}"), stage, n * stage + k))
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

    def _retained(self, run: _Run, v: int) -> list[tuple[Any, int]]:
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

    def _interval(self, run: _Run, end: Any) -> Any:
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
        """What a solution computes: pairs of a stage and an operation. ``value`` maps a variable to its number."""
        found = {
            (int(value(run.stage)) if i else k, k)
            for k, runs in enumerate(self.runs)
            for i, run in enumerate(runs)
            if not i or value(run.active)
        }
        return sorted(found)


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
    program = RetentionProgram(cp_model, CondensedGraph.of(graph), request["budget"], request["most_runs"])
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
