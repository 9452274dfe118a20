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
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.lazy_rows import LivenessRelaxation, refuse
from remat_explorer.solvers.path_cuts import PathCut
from remat_explorer.solvers.point import Point
from remat_explorer.solvers.rounding import cost_step
from remat_explorer.solvers.stages import Stages

SHORT = 1e-3  # of the budget: a stage whose estimated memory exceeds it by more is to become single
SPLITS, GROWTH = 6, 3  # a round makes at least so many stages single, and at least one for so many that are
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
        self.stages = Stages.of(condensed, self.singles)
        self.point: Point | None = None
        self.schedule: Schedule | None = None

    def advance(self, incumbent: Schedule | None) -> None:
        """One round: the linear program, perhaps the integer program, and new single stages."""
        relaxation = self._relax(incumbent)
        if relaxation is None or self._settled(incumbent):
            return
        splits = self._short()
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
        self.bound = max(self.bound, relaxed.bound)
        if relaxed.R is None:
            return None
        assert relaxed.S is not None
        self.point, self.allowed = Point(self.stages, relaxed.R, relaxed.S), relaxation.allowed
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
            outcome = model.milp.solve(self.limits.left, start, nodes=self.nodes, gap=gap)
            if outcome.status == "infeasible":
                self.bound = math.inf
                return True
            self.bound = max(self.bound, model.cost(outcome.bound))
            self.limits.tell(doing, incumbent, self.bound)
            if outcome.values is None:
                return False
            R, S = (matrix.round() for matrix in model.matrices(outcome.values))
            self.point = Point(self.stages, R, S)
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
        while len(found) < max(SPLITS, len(self.singles) // GROWTH) and excess.max() > SHORT * self.budget:
            t = int(excess.argmax())
            found.append(t)
            excess[max(0, t - 1) : t + 2] = -math.inf
        return found

    def _busiest(self) -> list[int]:
        """The fullest stage of each of the merged runs in which most is computed again."""
        assert self.point is not None
        before = np.arange(self.condensed.n) < self.stages.first[:, None]
        again = ((self.point.R * before) @ self.condensed.costs) * ~self.stages.single
        found = []
        for q in np.argsort(-again)[:SPLITS].tolist():
            if again[q] > 0:
                first, last = int(self.stages.first[q]), int(self.stages.last[q])
                found.append(first + int(self.point.memory[first : last + 1].argmax()))
        return found

    def _carry(self, relaxation: LivenessRelaxation, splits: list[int]) -> None:
        """The stages of the next round; rows and cuts that hold there, too, are kept."""
        old = self.stages
        self.points |= relaxation.model.points
        self.singles |= set(splits)
        self.stages = Stages.of(self.condensed, self.singles)
        entry = {int(first): q for q, first in enumerate(self.stages.first)}
        ends = [entry[int(first)] for first in old.first]
        self.cuts = [PathCut(ends[begin], ends[end], path) for begin, end, path in relaxation.cuts]
