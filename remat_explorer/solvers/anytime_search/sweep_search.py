"""The optimal strategy at several budgets: one relaxation for all of them, and schedules and bounds that are shared.

In: a graph and ascending budgets. Out: a schedule and a lower bound for each.

1. `plan_each` gives each budget its first schedule.
2. The few-moments relaxation chooses its moments at the smallest budget, where memory is shortest. One linear program
   with these moments then bounds every budget (`MomentsAtBudgets`): the budget stands in the right-hand sides of the
   memory rows alone, and the back end keeps its basis when they change, so every budget after the first takes a few
   steps of the dual simplex method.
3. As long as there is time, the budget whose gap is the largest for the time spent on it makes one small step.
4. After every step its schedule goes to larger budgets, where it fits, too, and its bound to smaller ones, where it is
   valid, too. The next smaller budget may begin a local search with that schedule, which exceeds it.

The steps at one budget (`BudgetSearch`):

1. Walks and a short local search, unless they were made before; walks guided by the few-moments relaxation; a cooling
   of local search.
2. The integer program of the few-moments relaxation, where there is time for it: it raises the bound more in half a
   second than the first round of `stage_refinement` does.
3. Where the gap is wide then, walks that keep what the best persistent checkpoints are.
4. From then on coolings and rounds of `stage_refinement` alternate, so that each has had about half of the time.
   Coolings begin with a new walk, with the best schedule, or with that of the next larger budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime_search.chain_starts import chain_guides, constructed_schedules
from remat_explorer.solvers.bounds.few_moments import (
    MomentsBound,
    MomentsProblem,
    few_moments_bound,
    guides,
    guides_to,
    integral_moments_bound,
)
from remat_explorer.solvers.bounds.merged_stages import cost_step
from remat_explorer.solvers.bounds.stage_refinement import StageRefinement
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.methods.griewank import binomial_bound
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.search.local_search import LocalSearch
from remat_explorer.solvers.search.planner import guided_schedule, plan_schedule
from remat_explorer.solvers.solver_interface import Answer, Limits

_CLOSE = 1e-4  # relative gap up to which another budget is the better use of time
_UNKNOWN = 0.3  # the gap that a budget without any schedule is taken to have
_WIDE = 0.02  # the gap beyond which walks follow persistent checkpoints
_COOLING = 40_000  # iterations of local search in one step


class BudgetSearch:
    """The best schedule and bound at one budget of a sweep; both may be set to better ones that are found elsewhere."""

    def __init__(
        self,
        condensed: CondensedGraph,
        budget: int,
        relaxed: MomentsBound,
        limits: Limits,
        proving: float,
        planned: bool = False,
    ) -> None:
        self.condensed, self.budget, self.limits = condensed, budget, limits
        self.relaxed, self.bound = relaxed, max(relaxed.bound, binomial_bound(condensed, budget))
        self.proving, self.planned = proving, planned
        self.best: Schedule | None = None
        self.beyond: Schedule | None = None
        self.seconds = 0.0
        self._least = cost_step(condensed.graph) * (1 - 1e-6)  # two different costs are at least so far apart
        self._local: LocalSearch | None = None
        self._refinement: StageRefinement | None = None
        self._steps = self._run()
        self._finished, self._coolings = False, 0

    @property
    def gap(self) -> float:
        """What is left to find or to prove, relative to the cost; 0 where nothing more is worth its time."""
        if self._finished or (self.best is None and math.isinf(self.bound)):
            return 0.0
        if self.best is None:
            return _UNKNOWN
        gap = self.best.cost - self.bound
        return 0.0 if gap <= _CLOSE * self.best.cost or gap < self._least else gap / self.best.cost

    def advance(self) -> None:
        """One step, of some tenths of a second at most on graphs of some hundred operations, but for proofs."""
        begun = time.monotonic()
        self._finished |= next(self._steps, None) is None
        self.seconds += time.monotonic() - begun

    def take(self, schedule: Schedule | None) -> None:
        """A schedule that is known to be within the budget."""
        if schedule is not None and (self.best is None or schedule.cost < self.best.cost):
            self.best = schedule

    def _is_over(self) -> bool:
        return self.limits.over

    def _run(self) -> Iterator[bool]:
        """Generator: the steps, each followed by True."""
        if not self.planned or self.best is None:
            for schedule in constructed_schedules(self.condensed, self.budget, self.limits):
                self.take(schedule)
            self.take(plan_schedule(self.condensed, self.budget, self.limits.left, self.limits.cancelled))
            yield True
        self._local = LocalSearch(self.condensed, self.budget)
        walks = guides(self.condensed, self.relaxed)
        self._local.guide(walks)
        self.take(guided_schedule(self.condensed, self.budget, walks, self._is_over))
        yield True
        self._search()
        yield True
        if self.limits.left > self.proving / 2:
            self._prove_at_moments()
            yield True
        if self.gap > _WIDE and (walks := chain_guides(self.condensed, self.budget, self._is_over)):
            self._local.guide(walks)
            self.take(guided_schedule(self.condensed, self.budget, walks, self._is_over))
            yield True
        searching, proving = 0.0, 0.0
        while self._refinement is None or not self._refinement.finished:
            begun = time.monotonic()
            if searching <= proving or self.limits.left < self.proving / 2:
                self._search()
                searching += time.monotonic() - begun
            else:
                self._prove()
                proving += time.monotonic() - begun
            yield True

    def _proof_limits(self) -> Limits:
        return self.limits.share(min(1.0, self.proving / max(self.limits.left, 1e-9)))

    def _search(self) -> None:
        """A cooling: from a new walk, from beyond the budget if there is something new, or from the best schedule."""
        assert self._local is not None
        self._local.offer(self.best)
        kind, self._coolings = self._coolings % 3, self._coolings + 1
        computations = None
        if self.beyond is not None and kind != 2:
            computations, self.beyond = self.beyond.computations, None
        elif self.best is not None and kind == 2:
            computations = self.best.computations
        self._local.begin(computations, _COOLING)
        self.take(self._local.run(_COOLING, lambda: self.limits.over))

    def _prove_at_moments(self) -> None:
        """The relaxation's integer program, which tells more of a short time than the refinement."""
        relaxed = integral_moments_bound(self.condensed, self.budget, self.relaxed, self._proof_limits())
        if self.best is None or math.isfinite(relaxed.bound):
            self.bound = max(self.bound, relaxed.bound)
        if self._local is not None and relaxed is not self.relaxed:
            self._local.guide(guides(self.condensed, relaxed))

    def _prove(self) -> None:
        """A round of the refinement, and walks to its point."""
        if self._refinement is None:
            moments = self.relaxed.moments
            self._refinement = StageRefinement(self.condensed, self.budget, self.limits, moments, self.bound)
        self._refinement.bound = max(self._refinement.bound, self.bound)
        self._refinement.limits = self._proof_limits()
        self._refinement.advance(self.best)
        self.take(self._refinement.schedule)
        if self.best is None or math.isfinite(self._refinement.bound):  # else it was the solver's tolerance
            self.bound = max(self.bound, self._refinement.bound)
        if self._refinement.point is not None and self._local is not None:
            self._local.guide(guides_to(*self._refinement.point.held()))


class MomentsAtBudgets(MomentsProblem):
    """The linear program of chosen moments, at any budget from ``least`` on.

    Values that are small beside ``least`` are taken to be in memory for nothing; fewer of them than for larger budgets,
    so the bound is valid there, too.
    """

    def __init__(self, condensed: CondensedGraph, least: int, moments: Sequence[int], limits: Limits) -> None:
        super().__init__(condensed, least, list(moments), Milp(limits.solver, limits.threads, relaxed=True))
        self.complete = self.build(limits) and not self.milp.contradiction
        self._right_at_least = [self.milp.right(row) for row in self.memory_rows]

    def at(self, budget: int, limits: Limits) -> MomentsBound:
        """The bound at ``budget`` and what attains it; of an incomplete problem only that everything runs once."""
        assert budget >= self.budget
        if not self.complete:
            return MomentsBound(self.condensed.graph.total_cost)
        more = (budget - self.budget) / self.unit
        for row, right in zip(self.memory_rows, self._right_at_least, strict=True):
            self.milp.set_right(row, right - more)  # -(bytes in memory) >= -room
        outcome = self.milp.solve(limits.left, cancelled=limits.cancelled)
        if outcome.status == "infeasible":
            return MomentsBound(math.inf)
        if outcome.values is None:
            return MomentsBound(self.condensed.graph.total_cost)
        return self.bound_at(outcome)


_BOUNDING_SHARE = 0.5  # of the time for all bounds, at most
_CHOOSING_SHARE = 0.5  # of that for the choice of moments, at most
_PROVING = 1.2  # time of one round of proof, at most, in even shares
# time on a budget at which its gap counts for a quarter (with a power of 2), in even shares; an even share is the
# time divided by the budgets
_SPENT = 0.25
_POWER = 2.0  # with which a gap counts for less the more time was spent on it


def plan_each(graph: Graph, budgets: Sequence[int], limits: Limits) -> list[Answer]:
    """A constructed or the planner's schedule for each budget, where there is one in an even share of the time."""
    condensed = CondensedGraph.of(graph)
    answers: list[Answer] = []
    for i, budget in enumerate(budgets):
        even = limits.share(1 / (len(budgets) - i))
        made = [
            *constructed_schedules(condensed, budget, even),
            plan_schedule(condensed, budget, even.left, limits.cancelled),
        ]
        answers.append(Answer(min(filter(None, made), key=lambda schedule: schedule.cost, default=None)))
    return answers


def solve_together(
    graph: Graph, budgets: Sequence[int], starts: Sequence[Schedule], limits: Limits, planned: bool = False
) -> list[Answer]:
    """Schedules and bounds for several budgets, ascending; costs and bounds fall from budget to budget.

    ``planned``: whether ``starts`` has the planner's schedules for these budgets.
    """
    condensed, even = CondensedGraph.of(graph), limits.left / max(len(budgets), 1)
    bounds = _bounds(condensed, budgets, limits.share(_BOUNDING_SHARE))
    proving = _PROVING * even
    points = zip(budgets, bounds, strict=True)
    searches = [BudgetSearch(condensed, budget, bound, limits, proving, planned) for budget, bound in points]
    for start in starts:
        peak = Plan.of(start).peak
        for search in searches:
            search.take(start if peak <= search.budget else None)
    while not limits.over:
        worth = [search.gap / (1 + search.seconds / (_SPENT * even)) ** _POWER for search in searches]
        i = worth.index(max(worth))
        if not worth[i]:
            break
        searches[i].advance()
        _share(searches, i)
    return [_answer(search, limits) for search in searches]


def _bounds(condensed: CondensedGraph, budgets: Sequence[int], limits: Limits) -> list[MomentsBound]:
    """The relaxation at each budget; where nothing is solved any more, the next larger budget's bound is valid, too."""
    adapted = few_moments_bound(condensed, budgets[0], limits.share(_CHOOSING_SHARE))
    bounds = [MomentsBound(condensed.graph.total_cost)] * len(budgets)
    if adapted.moments and len(budgets) > 1 and not limits.over:
        problem = MomentsAtBudgets(condensed, budgets[0], adapted.moments, limits)
        for i in range(len(budgets) - 1, 0, -1):
            if limits.over:
                break
            bounds[i] = problem.at(budgets[i], limits)
    bounds[0] = adapted
    for i in range(len(budgets) - 2, -1, -1):
        if bounds[i].bound < bounds[i + 1].bound:
            bounds[i] = MomentsBound(bounds[i + 1].bound, bounds[i].moments, bounds[i].s, bounds[i].x)
    return bounds


def _share(searches: Sequence[BudgetSearch], i: int) -> None:
    """Schedules go to larger budgets, bounds to smaller ones, and a beginning to the next smaller one."""
    search = searches[i]
    for larger in searches[i + 1 :]:
        larger.take(search.best)
    for smaller in searches[:i]:
        smaller.bound = max(smaller.bound, search.bound)
    if i and search.best is not searches[i - 1].best:
        searches[i - 1].beyond = search.best


def _answer(search: BudgetSearch, limits: Limits) -> Answer:
    if math.isinf(search.bound):  # a schedule in hand refutes that there is none: it was the solver's tolerance
        return Answer(search.best, None, search.best is None, limits.solver)
    return Answer(search.best, search.bound, solver=limits.solver)
