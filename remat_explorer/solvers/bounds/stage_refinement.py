"""A lower bound that rises in rounds: relaxations in which more and more stages are looked at singly.

In: a graph, a budget, the stages to look at first, and in each round the incumbent. Out: after each round a bound, the
relaxation's point, and in the end an optimal schedule. A run of stages between single ones is *merged*: it
has no memory rows, which keeps the program small and its optimum a bound.

1. Solve the linear program of the liveness formulation over these stages, with lazy memory rows, rounded memory rows,
   cover cuts and path cuts. By reduced costs, what runs again in no schedule as cheap as the incumbent is left out of
   all later programs.
2. Merged stages whose estimated memory exceeds the budget become single in the next round.
3. If there are none, branch: the integer program raises the bound further, and its point says which stages become
   single. A large program is not branched on while the linear programs still rise or say less than the bound that was
   given, nor where too little time is left: then the busiest merged stages become single.
4. Rows, and cuts without slack, are carried to the next round.

When every stage is single and the integer program is solved, the bound is the optimum.

`solve_within` finds the best schedule in which only chosen operations run again in chosen stages. What a relaxation
computes again, together with what the incumbent does, leaves few variables: the liveness formulation over all stages is
then small, even where the whole is not, and its optimum is a schedule. It says nothing about others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.bounds.lazy_rows import LivenessRelaxation, PathCut, refuse
from remat_explorer.solvers.bounds.merged_stages import ROWS, Point, RowSettings, Stages, cost_step, largest_apart
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.solver_interface import Limits

# Share of the budget by which a stage's estimated memory must exceed it for the stage to become single
_SHORT_OF_MEMORY = 1e-3
_GROWTH = 6  # a round makes at least one stage single for so many that are
# Rise of the linear program's optimum with which another one is worth more than branching, as a share of the cost
_LEAST_RISE = 1e-4
_ROUNDS_TO_RISE = 2  # in how many rounds together it must rise so much
_FULLNESS = 4.0  # power of the memory in the choice of busy stages
# Seconds for each column without which no larger integer program is begun: it does not look at its clock
_BRANCHING_TIME = 3e-4
_BRANCHING_EFFORT = 40  # linear programs that an integer program counts for in `StageRefinement.effort`
_BINDING = 1e-3  # slack up to which a cut is taken into the next round
_FIRST_NODES = 20  # of the first integer programs
_DEEPER = 5  # factor by which the limit on nodes rises when it was reached


@dataclass(frozen=True)
class StageRefinementSettings:
    """Which stages become single, when the integer program is asked, and for how long."""

    splits: int = 4  # stages that a round makes single, at least
    few_columns: int = 2500  # columns up to which a problem is branched on at once
    rows: RowSettings = ROWS


REFINEMENT = StageRefinementSettings()


RESTRICTED_GAP = 1e-6  # of the cost of computing everything once: the integer program is solved to that


_MOST_COLUMNS = 15_000  # of `solve_within`: a larger problem is left alone
_RESTRICTED_NODES = 100  # of each integer program of `solve_within`, at most


def solve_within(
    condensed: CondensedGraph, budget: int, allowed: np.ndarray, limits: Limits, incumbent: Schedule | None = None
) -> Schedule | None:
    """A schedule cheaper than the incumbent in which only what is allowed runs again, or None.

    What the incumbent computes again is allowed, too.
    """
    if incumbent is not None:
        allowed = allowed | (incumbent.R > 0)
    quiet = Limits(limits.left, limits.solver, limits.threads, cancelled=limits.cancelled)
    relaxation = LivenessRelaxation(condensed, budget, quiet, allowed=allowed)
    if not relaxation.build() or relaxation.model.milp.columns > _MOST_COLUMNS:
        return None
    relaxed = relaxation.solve(incumbent)
    model = relaxation.model
    if relaxed.R is None or (incumbent is not None and relaxed.bound >= incumbent.cost * (1 - RESTRICTED_GAP)):
        return None
    model.milp.require_integers()
    start = None if incumbent is None else (incumbent.R, incumbent.S[:, condensed.member])
    while not quiet.over:
        point = None if start is None else model.start(*start)
        outcome = model.milp.solve(
            quiet.left, point, nodes=_RESTRICTED_NODES, gap=RESTRICTED_GAP * condensed.n, cancelled=quiet.cancelled
        )
        if outcome.values is None:
            return None
        if not refuse(model, outcome.values):
            schedule = condensed.schedule(model.matrices(outcome.values)[0].round())
            return schedule if incumbent is None or schedule.cost < incumbent.cost else None
    return None


def run_again_in(point: Point) -> np.ndarray:
    """Which operations a relaxation's point runs again, in every stage of the entry in which it does; bool (n, n)."""
    stages, n = point.stages, point.stages.condensed.n
    again = (point.R > 0.5) & (np.arange(n) < stages.first[:, None])
    return np.repeat(again, stages.last - stages.first + 1, axis=0)


GAP = 1e-6  # of the cost of computing everything once: an integer program is solved to that
SETTLED = 1e-7  # relative gap at which nothing is left to do


class StageRefinement:
    """The rising bound, round by round: call `advance` until `finished`.

    ``bound`` is infinity if there is no schedule. ``effort`` measures the last round's work, the same in every run:
    columns times programs solved. ``schedule`` is an optimal one if every stage was single and the integer program was
    solved, else None.
    """

    def __init__(
        self,
        condensed: CondensedGraph,
        budget: int,
        limits: Limits,
        singles: Iterable[int],
        bound: float = 0.0,
        settings: StageRefinementSettings = REFINEMENT,
    ) -> None:
        self.condensed, self.budget, self.limits, self.settings = condensed, budget, limits, settings
        self.singles = set(singles) or {int(condensed.operation_bytes.argmax())}
        self.given = self.bound = bound
        self.finished = False
        self.allowed: np.ndarray | None = None  # any operation in any stage
        self.points: set[tuple[int, int]] = set()
        self.cuts: list[PathCut] = []
        self.nodes = _FIRST_NODES
        self.history: list[float] = []  # the linear programs' optima
        self.stages = Stages.of(condensed, self.singles)
        self.point: Point | None = None
        self._linear: Point | None = None  # of the linear program, which says what cuts bind
        self.integral, self.effort = False, 0
        self.schedule: Schedule | None = None

    def advance(self, incumbent: Schedule | None) -> None:
        """One round: the linear program, perhaps the integer program, and new single stages."""
        self.integral, self.effort = False, 0
        relaxation = self._relax(incumbent)
        if relaxation is None or self._settled(incumbent):
            return
        splits = self._short()
        columns = relaxation.model.milp.columns
        large = columns > self.settings.few_columns
        says_less = self.history[-1] < self.given * (1 - SETTLED)
        short_of_time = self.limits.left < columns * _BRANCHING_TIME
        if not splits and large and (self._rising() or says_less or short_of_time):
            splits = self._busiest()
        if not splits:
            solved = self._integrate(relaxation, incumbent)
            if self._settled(incumbent) or self.finished or self.limits.over:
                return
            splits = self._short() or self._busiest()
            if not solved:
                self.nodes *= _DEEPER
            elif not splits:
                splits = [t for t in range(self.condensed.n) if t not in self.singles]
        self._carry(relaxation, splits)

    def _rising(self) -> bool:
        """Whether taking runs apart still helps the linear program, which is far cheaper than the integer one."""
        gained = self.history[-1] - self.history[max(0, len(self.history) - 1 - _ROUNDS_TO_RISE)]
        return len(self.history) <= _ROUNDS_TO_RISE or gained > _LEAST_RISE * self.condensed.graph.total_cost

    def _settled(self, incumbent: Schedule | None) -> bool:
        self.finished |= math.isinf(self.bound)
        return self.finished or (incumbent is not None and self.bound >= incumbent.cost * (1 - SETTLED))

    def _relax(self, incumbent: Schedule | None) -> LivenessRelaxation | None:
        count = int(self.stages.single.sum())
        doing = f"relaxing with {count} of {self.condensed.n} stages"
        relaxation = LivenessRelaxation(
            self.condensed, self.budget, self.limits, self.stages, self.allowed, doing, True, self.settings.rows
        )
        points = set(self.points)
        if incumbent is not None:  # where it computes again, memory is likely to matter
            points |= {(t, k) for t, k, _ in incumbent.sequence if t in self.stages.position}
        if not relaxation.build(sorted(points), self.cuts):
            return None
        relaxed = relaxation.solve(incumbent, self.bound)
        self.effort = relaxation.effort
        self.bound = max(self.bound, relaxed.bound)
        if relaxed.R is None:
            return None
        assert relaxed.S is not None
        self.point, self.allowed = Point(self.stages, relaxed.R, relaxed.S), relaxation.allowed
        self.history.append(relaxed.optimum)
        self._linear = self.point
        return relaxation

    def _integrate(self, relaxation: LivenessRelaxation, incumbent: Schedule | None) -> bool:
        """The integer program with violated rows added; whether it was solved to its optimum."""
        model = relaxation.model
        doing = f"branching with {len(self.singles)} of {self.condensed.n} stages"
        self.limits.tell(doing, incumbent, self.bound)
        model.milp.require_integers()
        gap = max(GAP * self.condensed.n, 0.9 * cost_step(self.condensed.graph) * model.cost_scale)
        while not self.limits.over:
            start = None
            if incumbent is not None:
                start = model.start(incumbent.R, incumbent.S[:, self.condensed.member])
            self.effort += _BRANCHING_EFFORT * model.milp.columns
            outcome = model.milp.solve(
                self.limits.left, start, nodes=self.nodes, gap=gap, cancelled=self.limits.cancelled
            )
            if outcome.status == "infeasible":
                self.bound = math.inf
                return True
            self.bound = max(self.bound, model.cost(outcome.bound))
            self.limits.tell(doing, incumbent, self.bound)
            if outcome.values is None:
                return False
            R, S = (matrix.round() for matrix in model.matrices(outcome.values))
            self.point, self.integral = Point(self.stages, R, S), True
            if self._settled(incumbent):
                return True
            if not refuse(model, outcome.values):
                solved = outcome.status == "optimal"
                if self.stages.single.all():
                    self.schedule = self.condensed.schedule(R)
                    self.finished = solved
                return solved
        return False

    def _short(self) -> list[int]:
        """Stages within merged runs whose memory seems to exceed the budget, the worst first, none next to another."""
        assert self.point is not None
        excess = self.point.memory - self.budget
        excess[list(self.singles)] = -math.inf
        return largest_apart(excess, self._splits, _SHORT_OF_MEMORY * self.budget, apart=1)

    def _busiest(self) -> list[int]:
        """Full stages of the merged runs in which most is computed again, none next to another."""
        assert self.point is not None
        before = np.arange(self.condensed.n) < self.stages.first[:, None]
        again = ((self.point.R * before) @ self.condensed.costs) * ~self.stages.single
        length = self.stages.last - self.stages.first + 1
        busy = np.repeat(again / length, length) * self.point.memory**_FULLNESS
        return largest_apart(busy, self._splits, 0.0, apart=1)

    @property
    def _splits(self) -> int:
        return max(self.settings.splits, len(self.singles) // _GROWTH)

    def _carry(self, relaxation: LivenessRelaxation, splits: list[int]) -> None:
        """The stages of the next round; rows, and cuts that the linear program needed, are kept."""
        point = self._linear
        assert point is not None
        old = self.stages
        self.points |= relaxation.model.points
        self.singles |= set(splits)
        self.stages = Stages.of(self.condensed, self.singles)
        entry = {int(first): q for q, first in enumerate(self.stages.first)}
        ends = [entry[int(first)] for first in old.first]
        binding = [cut for cut in relaxation.cuts if cut.slack(self.condensed, point.R, point.S) <= _BINDING]
        self.cuts = [PathCut(ends[begin], ends[end], path) for begin, end, path in sorted(binding)]
