"""Lazy rows: memory rows and cuts are added to the liveness formulation only where a point violates them.

1. `LivenessRelaxation.build`: columns, rules, the memory row of each single stage's own operation, and rows and cuts
   that are known already.
2. `LivenessRelaxation.solve`: solve the linear program; add the memory rows, cover cuts and path cuts that its point
   violates most; repeat until none is violated, the bound hardly rises, or it reaches the incumbent. Every round's
   optimum is a lower bound.
3. `refuse`: for an integral point, add rows that cut it off if it exceeds the budget by a byte. Where every stage is
   single, a point for which there are none is a schedule within the budget.

Interval-path cuts: what is there now was held before, or made from what was.

For groups v_0, v_1, ..., v_m, each an input of the producer of the one before, and stages t1 <= t2:

    R[t2,p(v_0)] + S[t2,v_0] <= sum over i of S[t1,v_i] + sum over t1 <= t <= t2 of R[t,p(v_m)]

Proof: if v_0 is there in t2 and was not held at t1, its producer ran in some stage between, so v_1 was there in that
stage; and so on down to v_m, whose producer ran. With m = 0 and t1 = t2 nothing is said; with one more input it is
(1b). The most violated path is a shortest one: with f(v) = S[t1,v] + g(p(v)) and g(k) = min(sum of R[t,k], min over
inputs u of k of f(u)), the right-hand side for v_0 is f(v_0). Merged runs of stages are entries like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.liveness_model import LivenessModel
from remat_explorer.solvers.bounds.stages import ROWS, RowSettings, Stages, live_memory
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.search.flat_graph import FlatGraph

_BLOCK_VIOLATION = 0.02  # share of a block by which a rounded memory row must be exceeded to be added
_MOST_PATHS = 500  # path cuts that one round adds, at most
_LEAST_PROGRESS = 3e-5  # rise of the bound below which rounds end, as a share of the cost of computing everything once
_PATIENCE = 4  # in how many rounds together it must rise so much


class PathCut(NamedTuple):
    """Entries t1 and t2 of the stages, and the groups v_0, v_1, ... of the path."""

    begin: int
    end: int
    path: tuple[int, ...]

    def slack(self, condensed: Condensed, R: np.ndarray, S: np.ndarray) -> float:
        """Right-hand side minus left-hand side at R (entries, n) and S (entries, groups); negative where violated."""
        made, remade = int(condensed.producer[self.path[0]]), int(condensed.producer[self.path[-1]])
        there = R[self.end, made] + S[self.end, self.path[0]]
        return float(S[self.begin, list(self.path)].sum() + R[self.begin : self.end + 1, remade].sum() - there)


def violated_cuts(
    stages: Stages, R: np.ndarray, S: np.ndarray, most: int = _MOST_PATHS, violated: float = ROWS.paths
) -> list[PathCut]:
    """The most violated cuts at a point, at most one for each group and first stage, the worst first.

    Args:
        stages: the entries.
        R: (entries, n), between 0 and 1.
        S: (entries, groups), between 0 and 1.
        most: cuts to return.
        violated: by how much, at least.
    """
    from remat_explorer.solvers.search.cut_paths import shortest_paths  # compiled on its first use

    cuts: list[tuple[float, PathCut]] = []
    ever = R.copy()
    ever[np.arange(stages.condensed.n) >= stages.first[:, None]] = 0.0
    active = np.flatnonzero(ever.max(axis=0) > violated / 4)  # what is not computed again is in no violated cut's end
    sums = np.vstack([np.zeros((1, R.shape[1])), np.cumsum(R, axis=0)])
    cost, through = np.zeros((R.shape[1], len(R))), np.full((R.shape[1], len(R)), -1, dtype=np.int32)
    violation, ends = np.empty(S.shape[1]), np.zeros(S.shape[1], dtype=np.int64)
    producer, flat = stages.condensed.producer, FlatGraph.of(stages.condensed)
    R, S = np.ascontiguousarray(R), np.ascontiguousarray(S)
    for begin in range(len(stages) - 1):
        first = int(stages.first[begin])
        shortest_paths(flat, R, S, sums, active, begin, first, cost, through, violation, ends)
        for v in np.flatnonzero(violation > violated).tolist():
            end, path = int(ends[v]), [v]
            while through[producer[path[-1]], end] >= 0:
                path.append(int(through[producer[path[-1]], end]))
            cuts.append((float(violation[v]), PathCut(begin, end, tuple(path))))
    cuts.sort(key=lambda pair: -pair[0])
    return [cut for _, cut in cuts[:most]]


TOLERANCE = 1e-6  # of the budget: below it a fractional point counts as within the budget


@dataclass(frozen=True)
class Relaxed:
    """The linear program's answer: a valid lower bound on the cost, and a point that attains it.

    Attributes:
        bound: cost below which no schedule can be; infinity if the budget is proven infeasible.
        optimum: of the last round's linear program; it may be below a bound that was known before.
        R, S: (entries, n) and (entries, groups), between 0 and 1, of the last round; None without one.
    """

    bound: float
    optimum: float = 0.0
    R: np.ndarray | None = None
    S: np.ndarray | None = None


class LivenessRelaxation:
    """The liveness formulation solved by rounds of violated memory rows and path cuts, first without integrality.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        limits: time and back end.
        stages: which stages are single and which are merged; all single if None.
        allowed: which operation may run again in which stage, bool of shape (n, n); any if None.
        doing: what progress reports say.
        cutting: whether path cuts and cover cuts are added, too.
        settings: of rows and cuts.
    """

    def __init__(
        self,
        condensed: Condensed,
        budget: int,
        limits: Limits,
        stages: Stages | None = None,
        allowed: np.ndarray | None = None,
        doing: str = "relaxing the liveness formulation",
        cutting: bool = False,
        settings: RowSettings = ROWS,
    ) -> None:
        milp = Milp(limits.solver, limits.threads, relaxed=True)
        self.model = LivenessModel(condensed, budget, milp, stages, allowed, settings)
        self.limits, self.doing, self.cutting, self.settings = limits, doing, cutting, settings
        self.allowed = None if allowed is None else allowed.copy()
        self.cuts: set[PathCut] = set()
        self.effort = 0

    def build(self, points: Iterable[tuple[int, int]] = (), cuts: Iterable[PathCut] = ()) -> bool:
        """Build the problem with some memory rows and cuts from the start; False if the time ran out before the end."""
        if not self.model.build(self.limits):
            return False
        for t, k in points:
            if self.limits.over:
                return False
            if t in self.model.stages.position:
                self.model.add_memory_row(t, k)
        self.add_cuts(cuts)
        return not self.limits.over

    def add_cuts(self, cuts: Iterable[PathCut]) -> int:
        """Add the cuts that are not there yet, and return how many."""
        new = [cut for cut in cuts if cut not in self.cuts]
        for cut in new:
            self.model.add_path_cut(*cut)
        self.cuts.update(new)
        return len(new)

    def exclude(self, cost: float) -> None:
        """Note which operations run again in which stages in no schedule cheaper than ``cost``."""
        model = self.model
        room = cost * (1 + 1e-6) - model.cost(model.milp.objective)
        if room > 0:
            excluded = model.reruns_excluded(model.milp.reduced_costs(), room)
            if not excluded.any():
                return
            if self.allowed is None:
                self.allowed = np.ones((model.condensed.n, model.condensed.n), dtype=bool)
            for q in np.flatnonzero(excluded.any(axis=1)):
                self.allowed[int(model.stages.first[q]) : int(model.stages.last[q]) + 1] &= ~excluded[q]

    def solve(self, incumbent: Schedule | None = None, bound: float = 0.0) -> Relaxed:
        """Rounds of the linear program, until nothing is violated, cuts help no more, or the time is up.

        Args:
            incumbent: the best schedule so far, for the progress reports.
            bound: a lower bound that is known already.
        """
        model, limits, settings = self.model, self.limits, self.settings
        total = model.condensed.graph.total_cost
        relaxed = Relaxed(max(bound, total))
        history: list[float] = []
        while not limits.over:
            self.effort += model.milp.columns
            outcome = model.milp.solve(limits.left, cancelled=limits.cancelled)
            if outcome.status == "infeasible":
                return Relaxed(math.inf)
            if outcome.values is None:
                break
            R, S = model.matrices(outcome.values)
            relaxed = Relaxed(max(relaxed.bound, model.cost(outcome.bound)), model.cost(outcome.bound), R, S)
            limits.tell(self.doing, incumbent, relaxed.bound)
            if limits.over:
                break
            if incumbent is not None:
                self.exclude(incumbent.cost)
            history.append(model.cost(outcome.bound))
            added = model.add_covers(outcome.values) if self.cutting else 0
            added += sum([model.add_memory_row(t, k) for t, k in violated_points(model, R, S, settings)])
            if self.cutting:
                added += self.add_cuts(violated_cuts(model.stages, R, S, violated=settings.paths))
            if not added:
                return relaxed
            if incumbent is not None and relaxed.bound >= incumbent.cost * (1 - TOLERANCE):
                break
            least, before = _LEAST_PROGRESS * total, _PATIENCE
            if len(history) > before and history[-1] - history[-before] < least:
                break
        return relaxed


def violated_points(
    model: LivenessModel, R: np.ndarray, S: np.ndarray, settings: RowSettings = ROWS
) -> list[tuple[int, int]]:
    """Points of each single stage that exceed the budget, in bytes or in whole blocks, among those without a row."""
    stages, condensed = model.stages, model.condensed
    runs = (R > 1e-9) & stages.single[:, None]
    for t, k in model.points:
        runs[stages.position[t], k] = False
    U = live_memory(condensed, R, S, stages)
    excess = np.where(runs, U / model.budget - 1, -math.inf)
    excess[excess <= TOLERANCE] = -math.inf
    for d in model.divisors:
        blocks = live_memory(condensed, R, S, stages, divisor=d)
        over = (blocks - ((model.budget - stages.base) // d)[:, None]) * runs
        excess = np.maximum(excess, np.where(over > _BLOCK_VIOLATION, over * d / model.budget, -math.inf))
    points = []
    for q in np.flatnonzero(excess.max(axis=1) > -math.inf):
        worst = np.argsort(-excess[q])[: settings.points]
        points += [(int(stages.first[q]), int(k)) for k in worst if excess[q, k] > -math.inf]
    return points


def refuse(model: LivenessModel, values: np.ndarray) -> bool:
    """Add rows that cut off an integral point, exactly; False if the point is within the budget to the byte."""
    R, S = (matrix.round() for matrix in model.matrices(values))
    stages = model.stages
    U = live_memory(model.condensed, R, S, stages)
    exceeded = np.argwhere((model.budget < U) & (R > 0) & stages.single[:, None])
    for q, k in exceeded.tolist():
        t = int(stages.first[q])
        if not model.add_memory_row(t, k):
            model.add_cover_row(t, k, R, S)
    return bool(len(exceeded))
