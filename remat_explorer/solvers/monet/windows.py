"""A large-neighbourhood search of the joint problem: a schedule improved by integer programs over windows.

In: a schedule within the budget. Out: the cheapest one that differs from it only in

* the implementation of every run, and which of its runs again are left out;
* what is retained, which follows from the runs;
* which optional operations run;
* which operations of a *window*, some neighbours of the forward pass, run again in the backward pass.

That is the joint problem with few of its runs allowed, and so with few columns. Choice and schedule change together:
where one operation reads something else, its neighbours must keep or make that, which no change of one of them does.
The empty window alone, which leaves runs as they are, finds the choice that goes with a schedule.

Windows are moved along the forward pass, those first whose operations run again for the highest cost, which is what a
window can save; and they become larger when none of a size has found anything. The memory rows that one of them needed
are in all later ones from the beginning. Work is counted in nodes of the search tree, so a slower machine finds the
same, only later.

Single runs switched to cheaper implementations: a rerun need not be what the first run was.

A search on one choice of implementations runs each operation the same way every time. But statistics of a batch norm
that were saved make its rerun cheap, and a pooling whose indices are in memory need not write them again. So in a
schedule that is there, each run is switched to the cheapest implementation that writes what is read of this run, and
reads what is in memory then anyway, or is small enough to stay there until then. What is no longer read goes earlier.

What the relaxation with choices would choose at smaller and larger budgets: other choices, mostly good ones.

A linear program at one budget gives one choice, and rounding it may be unlucky. Beside it, where memory is worth a
little more or less, some operations are chosen otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import Codes, CondensedChoices, Tables
from remat_explorer.solvers.monet.joint_problem import JointProblem, joint_point, unbeaten_codes
from remat_explorer.solvers.monet.relaxation_with_choices import RelaxationWithChoices
from remat_explorer.solvers.solver_interface import Limits

SMALL = 1e-3  # of the budget: smaller values may stay in memory for a cheaper rerun


def switch_runs(schedule: Schedule, budget: int, codes: Codes | None = None) -> Schedule:
    """The schedule, or a cheaper one within the budget with the same runs, or fewer, in other implementations.

    The schedule is frontier-advancing and compact, and fits into the budget.
    """
    ways = [range(1, len(node.implementations) + 1) for node in schedule.graph.operations]
    for small in (SMALL * budget, 0.0):
        switches = _switches(schedule, ways if codes is None else codes, small)
        switched = _switched(schedule, switches)
        if switched is not None and switched.violation() is None and Plan.of(switched).peak <= budget:
            return switched
    return schedule


def _switches(schedule: Schedule, codes: Codes, small: float) -> list[tuple[int, int, int]]:
    """Stage, operation and implementation of runs that may be cheaper."""
    graph, R, S = schedule.graph, schedule.R, schedule.S
    switches: list[tuple[int, int, int]] = []
    written: set[int] = set()  # small values that were in memory before
    ran = np.zeros(graph.n, dtype=bool)
    for t in range(schedule.stages):
        runs = [(int(k), int(R[t, k])) for k in np.flatnonzero(R[t])]
        kept = S[t + 1] if t + 1 < schedule.stages else np.zeros(len(graph.values), dtype=bool)
        last = {v: k for k, code in runs for v in graph.inputs(k, code)}
        there = set(np.flatnonzero(S[t]).tolist())
        for k, code in runs:
            there = {v for v in there if kept[v] or graph.persistent[v] or last.get(v, -1) >= k}
            if len(codes[k]) > 1:
                now = graph.operations[k].implementations[code - 1]
                read = {v for v in now.outputs if (kept[v] or last.get(v, -1) > k) and v not in written}
                if not ran[k] and not graph.operations[k].optional:
                    read |= _persistent(graph, k)
                living = {v for v in there if kept[v] or graph.persistent[v] or last.get(v, -1) > k}
                better = _cheapest(graph, k, codes[k], there | written, read, living)
                saved = now.cost - graph.operations[k].implementations[better - 1].cost if better else 0.0
                if better is not None and saved > 0:
                    switches.append((t, k, better))
            ran[k] = True
            there |= set(graph.outputs(k, code))
            written |= {v for v in graph.outputs(k, code) if graph.values[v].bytes < small}
    return switches


def _persistent(graph: Graph, k: int) -> set[int]:
    return {v for way in graph.operations[k].implementations for v in way.outputs if graph.persistent[v]}


def _cheapest(
    graph: Graph, k: int, codes: Collection[int], there: set[int], read: set[int], living: set[int]
) -> int | None:
    """The cheapest of the implementations that read only what is there, and write all that is read."""
    able = [
        code
        for code, way in enumerate(graph.operations[k].implementations, 1)
        if code in codes and there.issuperset(way.inputs) and read.issubset(way.outputs)
        if not way.in_place or way.overwrites not in living
    ]
    return min(able, key=lambda code: graph.operations[k].implementations[code - 1].cost, default=None)


def _switched(schedule: Schedule, switches: list[tuple[int, int, int]]) -> Schedule | None:
    if not switches:
        return None
    R = schedule.R.copy()
    for t, k, code in switches:
        if not R[t, k]:
            return None
        R[t, k] = code
    switched = Schedule(schedule.graph, R, np.zeros_like(schedule.S)).compact()
    return switched if switched.cost < schedule.cost else None


def choices_near(
    tables: Tables, budget: int, shares: Sequence[float], limits: Limits, columns: float
) -> Iterator[dict[int, int]]:
    """For each share of the budget the implementations that its linear program would choose, by operation.

    No share of the budget is taken below what a single operation needs.
    """
    least = int(tables.problem.least_memory.max())
    for other in shares:
        if limits.over:
            return
        relaxation = RelaxationWithChoices(tables, max(least, int(other * budget)))
        quiet = replace(limits, report=lambda progress: None)  # its bound is not one of this budget
        yield relaxation.improve(quiet, integral=False, columns=columns).choice()


_LARGER = 1.5  # how much larger windows become
_STRIDE = 0.34  # share of its length after which the next window begins: they overlap
_ROUNDS = 8  # integer programs of one window: each has the memory rows that the point of the one before lacked
_GAP = 1e-4  # of the integer programs, and of a schedule that is worth looking for


@dataclass(frozen=True)
class WindowSettings:
    """How large the first windows are, and how large their programs."""

    first: float = 0.15  # share of the forward operations in the first windows,
    least: int = 10  # but at least so many of them
    nodes: int = 200  # of the search tree of one integer program, at most,
    work: int = 400_000  # and how many columns times nodes: nodes of a large program take longer


WINDOWS = WindowSettings()


class WindowSearch:
    """Windows of one problem at one budget, one after the other."""

    def __init__(self, problem: CondensedChoices, budget: int, settings: WindowSettings = WINDOWS) -> None:
        self.problem, self.budget, self.settings = problem, budget, settings
        self.points: set[tuple[int, int]] = set()
        self._exhausted = math.inf  # the cost that the window of all forward operations does not improve on
        graph = problem.graph
        self._forward = np.flatnonzero(~graph.is_backward)
        self._backward_stages = np.flatnonzero(graph.is_backward[graph.mandatory])
        self._optional = np.array([node.optional for node in graph.operations], dtype=bool)
        self._reads, self._writes = (np.zeros((graph.n, problem.groups), dtype=bool) for _ in range(2))
        for k, ways in enumerate(problem.ways):
            for way in ways:
                self._reads[k, list(way.inputs)] = True
                self._writes[k, list(way.outputs)] = True
        self._first = min(1.0, max(settings.first, settings.least / max(1, len(self._forward))))
        self._share, self._queue = self._first, list[int]()
        self._cost_before: float | None = None
        self._all_solved = True

    def nothing_left(self, cost: float) -> bool:
        """Whether the window of all forward operations was solved to its end from a schedule that cost no more."""
        return cost >= self._exhausted

    def choose_again(self, schedule: Schedule, limits: Limits) -> Schedule:
        """The schedule, or a cheaper one with the same runs, or fewer, in other implementations.

        It takes a second or two on graphs of some hundred operations, and all of the limits if need be.
        """
        return self._search(schedule, self._optional, limits)[0]

    def advance(self, schedule: Schedule, limits: Limits) -> Schedule:
        """The schedule, or a cheaper one that the next window has."""
        count = len(self._forward)
        if not self._queue:
            if self._cost_before is not None and schedule.cost >= self._cost_before:
                if self._share >= 1:
                    self._share = self._first
                    if self._all_solved:
                        self._exhausted = schedule.cost
                        return schedule
                else:
                    self._share = min(1.0, self._share * _LARGER)
            self._cost_before, self._all_solved = schedule.cost, True
            starts = range(0, count - self._length + 1, max(1, int(_STRIDE * self._length)))
            self._queue = self._by_promise(schedule, sorted({*starts, count - self._length}))
        window, first = self._optional.copy(), self._queue.pop()
        window[self._forward[first : first + self._length]] = True
        found, solved = self._search(schedule, window, limits)
        self._all_solved &= solved and found is schedule
        return found

    def _by_promise(self, schedule: Schedule, starts: list[int]) -> list[int]:
        """The first operations of windows, those last whose operations cost most where they run again."""
        paid = np.zeros(self.problem.graph.n)
        for t, k, code in schedule.computations.rows():
            if t != self.problem.graph.first_stage[k]:
                paid[k] += self.problem.graph.operations[k].implementations[code - 1].cost
        total = np.append(0.0, np.cumsum(paid[self._forward]))
        return sorted(starts, key=lambda first: float(total[first + self._length] - total[first]))

    @property
    def _length(self) -> int:
        return min(len(self._forward), max(2, int(self._share * len(self._forward))))

    def _allowed(self, R: np.ndarray, window: np.ndarray) -> np.ndarray:
        """Which runs a window allows: the known ones, and those of its operations that serve a backward stage.

        An optional operation, such as one that makes a mask, may run beside its inputs' own, too.
        """
        allowed = R > 0
        own, stage = self.problem.graph.mandatory, self.problem.graph.first_stage
        beside = np.flatnonzero(self._optional & (stage < len(R)))
        allowed[stage[beside], beside] = True
        for t in self._backward_stages.tolist():
            needed = self._reads[own[t]].copy()
            for k in np.flatnonzero((allowed[t] | window)[: own[t]])[::-1]:
                if allowed[t, k] or (needed & self._writes[k]).any():
                    allowed[t, k] = True
                    needed |= self._reads[k]
        return allowed

    def _search(self, schedule: Schedule, window: np.ndarray, limits: Limits) -> tuple[Schedule, bool]:
        """The cheapest schedule of a window that is found, and whether that was to the end."""
        R = unbeaten_codes(self.problem, schedule.R)
        if R is None:
            return schedule, False
        milp = Milp(limits.solver, limits.threads, relaxed=True)
        joint = JointProblem(self.problem, self.budget, milp, self._allowed(R, window))
        if not joint.build(limits):
            return schedule, False
        for point in sorted(self.points & joint.delta.keys()):
            if limits.over:
                return schedule, False
            joint.add_memory_row(*point)
        found = self._solve(joint, R, schedule, limits)
        self.points |= joint.points
        return found

    def _solve(self, joint: JointProblem, R: np.ndarray, schedule: Schedule, limits: Limits) -> tuple[Schedule, bool]:
        """Linear programs until no memory row is missing, then integer programs until one's point fits the budget."""
        settings, wanted = self.settings, schedule.cost * (1 - _GAP)
        while True:
            outcome = joint.milp.solve(limits.left, cancelled=limits.cancelled)
            if outcome.values is None:
                return schedule, False
            if joint.cost(outcome.bound) >= wanted:
                return schedule, True
            if limits.over or not joint.add_violated(outcome.values):
                break
        joint.milp.require_integers()
        gap = _GAP * schedule.cost * joint.cost_scale
        nodes = max(1, min(settings.nodes, settings.work // joint.milp.columns))
        for _ in range(_ROUNDS):
            start = joint_point(joint, R)
            outcome = joint.milp.solve(limits.left, start=start, nodes=nodes, gap=gap, cancelled=limits.cancelled)
            if outcome.values is None:
                return schedule, False
            if joint.cost(outcome.objective or 0.0) >= wanted:
                return schedule, outcome.status == "optimal"
            found = self.problem.schedule(joint.codes(outcome.values))
            if found.cost < schedule.cost and Plan.of(found).peak <= self.budget:
                return found, False
            if limits.over or not joint.add_violated(outcome.values):
                break
        return schedule, False
