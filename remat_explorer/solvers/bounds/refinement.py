"""A lower bound that rises: runs of stages are taken apart where the relaxation's point needs too much memory.

At first a few stages are single and the rest is merged, so that the liveness formulation is small. Its linear
program is solved with path cuts and rounded memory rows. Stages that would exceed the budget become single, and when
there are none, the integer program tells more. What runs again in no schedule as cheap as the incumbent (by reduced
costs) is left out of all further problems. In the end every stage is single: then the bound is the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.lazy_rows import LivenessRelaxation, refuse
from remat_explorer.solvers.bounds.path_cuts import PathCut
from remat_explorer.solvers.bounds.point import Point
from remat_explorer.solvers.bounds.rounding import cost_step
from remat_explorer.solvers.bounds.stages import Stages
from remat_explorer.solvers.condensed import Condensed

SHORT = 1e-3  # of the budget: a stage whose estimated memory exceeds it by more is to become single
SPLITS, GROWTH = 4, 6  # a round makes at least so many stages single, and at least one for so many that are
RISE, PATIENCE = 1e-4, 2  # of the cost, in so many rounds: what makes another linear program worth more than branching
FULLNESS = 4.0  # power of the memory in the choice of stages
FEW_COLUMNS = 2500  # so many are branched on at once
BRANCHING_TIME = 3e-4  # seconds for each column without which no large one is begun: it does not look at its clock
BRANCHING = 40  # linear programs that an integer program counts for
BINDING = 1e-3  # slack up to which a cut is taken into the next round
NODES, DEEPER = 20, 5  # nodes of the first integer programs, and by what factor the limit rises when it was reached
GAP = 1e-6  # of the cost of computing everything once: an integer program is solved to that
SETTLED = 1e-7  # relative gap at which nothing is left to do


class Refinement:
    """The rising bound, round by round: call `advance` until `finished`.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell.
        singles: the stages that are single at first.
        bound: a lower bound that is known already.

    Attributes:
        bound: no schedule within the budget costs less; infinity if there is none.
        finished: whether the bound cannot rise any more.
        point: the last point; None before the first.
        integral: whether the last round had an integer program.
        effort: a measure of the last round's work that is the same in every run: columns times programs solved.
        schedule: an optimal schedule if every stage was single and the integer program was solved, else None.
    """

    def __init__(
        self, condensed: Condensed, budget: int, limits: Limits, singles: Iterable[int], bound: float = 0.0
    ) -> None:
        self.condensed, self.budget, self.limits = condensed, budget, limits
        self.singles = set(singles) or {int(condensed.operation_bytes.argmax())}
        self.bound, self.finished = bound, False
        self.allowed = np.ones((condensed.n, condensed.n), dtype=bool)
        self.points: set[tuple[int, int]] = set()
        self.cuts: list[PathCut] = []
        self.nodes = NODES
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
        if not splits and columns > FEW_COLUMNS and (self._rising() or self.limits.left < columns * BRANCHING_TIME):
            splits = self._busiest()
        if not splits:
            solved = self._integrate(relaxation, incumbent)
            if self._settled(incumbent) or self.finished or self.limits.over:
                return
            splits = self._short() or self._busiest()
            if not solved:
                self.nodes *= DEEPER
            elif not splits:
                splits = [t for t in range(self.condensed.n) if t not in self.singles]
        self._carry(relaxation, splits)

    def _rising(self) -> bool:
        """Whether taking runs apart still helps the linear program, which is far cheaper than the integer one."""
        gained = self.history[-1] - self.history[max(0, len(self.history) - 1 - PATIENCE)]
        return len(self.history) <= PATIENCE or gained > RISE * self.condensed.graph.total_cost

    def _settled(self, incumbent: Schedule | None) -> bool:
        self.finished |= math.isinf(self.bound)
        return self.finished or (incumbent is not None and self.bound >= incumbent.cost * (1 - SETTLED))

    def _relax(self, incumbent: Schedule | None) -> LivenessRelaxation | None:
        count = int(self.stages.single.sum())
        doing = f"relaxing with {count} of {self.condensed.n} stages"
        relaxation = LivenessRelaxation(
            self.condensed, self.budget, self.limits, self.stages, self.allowed, doing, cutting=True
        )
        points = set(self.points)
        if incumbent is not None:  # where it computes again, memory is likely to matter
            points |= {(t, int(k)) for t in self.stages.position for k in np.flatnonzero(incumbent.R[t])}
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
            self.effort += BRANCHING * model.milp.columns
            outcome = model.milp.solve(self.limits.left, start, nodes=self.nodes, gap=gap)
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
        found: list[int] = []
        while len(found) < self._splits and excess.max() > SHORT * self.budget:
            t = int(excess.argmax())
            found.append(t)
            excess[max(0, t - 1) : t + 2] = -math.inf
        return found

    def _busiest(self) -> list[int]:
        """Full stages of the merged runs in which most is computed again, none next to another."""
        assert self.point is not None
        before = np.arange(self.condensed.n) < self.stages.first[:, None]
        again = ((self.point.R * before) @ self.condensed.costs) * ~self.stages.single
        length = self.stages.last - self.stages.first + 1
        busy = np.repeat(again / length, length) * self.point.memory**FULLNESS
        found: list[int] = []
        while len(found) < self._splits and busy.max() > 0:
            t = int(busy.argmax())
            found.append(t)
            busy[max(0, t - 1) : t + 2] = 0.0
        return found

    @property
    def _splits(self) -> int:
        return max(SPLITS, len(self.singles) // GROWTH)

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
        binding = [cut for cut in relaxation.cuts if cut.slack(self.condensed, point.R, point.S) <= BINDING]
        self.cuts = [PathCut(ends[begin], ends[end], path) for begin, end, path in sorted(binding)]
