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
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.monet.joint_point import joint_point, unbeaten_codes
from remat_explorer.solvers.monet.joint_problem import JointProblem


@dataclass(frozen=True)
class WindowSettings:
    """How large windows are, and how long each is searched. None of these was measured with other values yet."""

    # Share of the forward operations in the first windows,
    first: float = 0.15
    # but at least so many of them,
    least: int = 10
    # and how much larger they become.
    larger: float = 1.5
    # Windows overlap: each begins this share of its length after the one before.
    stride: float = 0.34
    # Nodes of the search tree of one integer program, at most,
    nodes: int = 200
    # and how many columns times nodes: nodes of a large program take longer.
    work: int = 400_000
    # Integer programs of one window: each has the memory rows that the point of the one before lacked.
    rounds: int = 8
    # Relative gap of the integer programs, and of a schedule that is worth looking for.
    gap: float = 1e-4


WINDOWS = WindowSettings()


class WindowSearch:
    """Windows of one problem at one budget, one after the other.

    Args:
        problem: operations with their ways, and groups of values.
        budget: bytes, resident bytes included.
        settings: of windows and their programs.

    Attributes:
        points: the (stage, operation) whose memory rows windows needed so far.
    """

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
                    self._share = min(1.0, self._share * self.settings.larger)
            self._cost_before, self._all_solved = schedule.cost, True
            starts = range(0, count - self._length + 1, max(1, int(self.settings.stride * self._length)))
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
        settings, wanted = self.settings, schedule.cost * (1 - self.settings.gap)
        while True:
            outcome = joint.milp.solve(limits.left, cancelled=limits.cancelled)
            if outcome.values is None:
                return schedule, False
            if joint.cost(outcome.bound) >= wanted:
                return schedule, True
            if limits.over or not joint.add_violated(outcome.values):
                break
        joint.milp.require_integers()
        gap = settings.gap * schedule.cost * joint.cost_scale
        nodes = max(1, min(settings.nodes, settings.work // joint.milp.columns))
        for _ in range(settings.rounds):
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
