"""One choice of implementations, and schedules of it with less and less memory at a limited cost.

Choices of implementations that do with less memory at a limited cost, by changes that walks judge.

Memory at a limited cost stays the same under most changes; the cost of the cheapest walk within a budget slightly below
what is known does not. So changes are kept where that cost falls, and once it is within the limit, the budget falls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.bounds.few_moments import few_moments_bound, guides
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import Codes, CondensedChoices, Tables
from remat_explorer.solvers.monet.joint_problem import JointProblem
from remat_explorer.solvers.monet.relaxation_with_choices import LeastMemory, RelaxationWithChoices
from remat_explorer.solvers.monet.selections import ChoiceSearch, Selection, make_consistent, restricted_to
from remat_explorer.solvers.search.local_search import Guide, LocalSearch, Walks
from remat_explorer.solvers.search.planner import EXPONENTS, GUIDED_EXPONENTS
from remat_explorer.solvers.solver_interface import Limits, checkpoint_all

_CLOSE_PEAKS = 0.004  # relative width at which bisection with walks ends
_BOUNDING_SECONDS = 2.0  # for the few-moments relaxation that guides walks, at most


_PLANNING_SHARE = 0.05  # of the time that is left, at most, for planning with one choice
# of the time that is left, at most, for asking the relaxation what it would choose within a budget
_RELAXING_SHARE = 0.15
_CHANGES = 200  # of the best choice that walks judge in an attempt, at most
_APART = 0.01  # relative distance of budgets from which on the relaxation is asked again


_CLIMB_STEP = 0.02  # by how much the budget of a climb is below the least known peak at first, relative
_LAST_CLIMB_STEP = 0.004  # the smallest such step
_CLIMB_CHANGES = 150  # that are judged at one budget, at most
_CLIMB_PATIENCE = 4  # budgets without a gain at the smallest step after which the climb ends


CLOSE = 1e-3  # relative distance to the bound at which there is as good as nothing left to find


class MemoryIncumbent:
    """What a search for less memory knows so far; it only gets better.

    It begins with the graph's default execution; ``peak`` and ``bound`` are bytes.
    """

    def __init__(self, graph: Graph, least: int, limits: Limits) -> None:
        self.best: Schedule = checkpoint_all(graph)
        self.peak = Plan.of(self.best).peak
        self.bound = least
        self._limits = limits

    @property
    def settled(self) -> bool:
        """Whether schedule and bound are as good as equal."""
        return self.peak - self.bound < CLOSE * self.peak

    def keep(self, schedule: Schedule) -> None:
        """Take a schedule within the limit on the cost if it needs less memory, and tell of it."""
        peak = Plan.of(schedule).peak
        if peak < self.peak:
            self.best, self.peak = schedule, peak
            self.tell("found a schedule with less memory")

    def raise_bound(self, bound: float) -> None:
        """No schedule does with less; one in hand refutes what claims more: it was the solver's tolerance."""
        self.bound = max(self.bound, min(math.ceil(bound), self.peak))

    def tell(self, doing: str) -> None:
        """Say what is being done, with the best schedule."""
        self._limits.tell(doing, self.best)


def climb(
    tables: Tables,
    choice: Mapping[int, int],
    most_cost: float,
    codes: Codes | None,
    peak: Callable[[Mapping[int, int], Schedule | None], int],
    over: Callable[[], bool],
) -> dict[int, int]:
    """The choice after changes with which walks need less memory, or at least cost less.

    ``peak`` plans with a choice, takes in a schedule of it that is within the limit, if there is one, and says the
    least peak in bytes that is known with any.
    """
    chosen, least, step, seed, failures = dict(choice), peak(choice, None), _CLIMB_STEP, 0, 0
    while not over() and failures < _CLIMB_PATIENCE:
        seed += 1
        search = ChoiceSearch(tables, chosen, seed, codes)
        search.lower(int(least * (1 - step)))
        before = search.cost
        search.improve(_CLIMB_CHANGES, most_cost, over)
        chosen = search.choice
        lowered = least
        if search.cost <= most_cost:
            plain = search.schedule()
            lowered = peak(chosen, search.selection.lift(plain) if search.selection and plain else None)
        if lowered < least:
            least, failures = lowered, 0
            continue
        failures += step == _LAST_CLIMB_STEP and search.cost >= before
        step = max(step / 2, _LAST_CLIMB_STEP)
    return chosen


LOOSE = 1e-9  # relative excess over the limit on the cost that is rounding


class MemoryDescent:
    """Schedules of one choice of implementations, each with less memory than the one before.

    ``plain`` is the schedule of the plain graph with the least memory within the limit, or None, and ``peak`` that of
    its plan; ``least`` is what some operation needs for itself.
    """

    def __init__(self, selection: Selection, most_cost: float, choice: Mapping[int, int] | None = None) -> None:
        self.choice = dict(choice or {})
        self.selection, self.most_cost = selection, most_cost * (1 + LOOSE)
        self.condensed = CondensedGraph.of(selection.graph)
        self.spare = self.most_cost - selection.graph.total_cost
        self.least = int(self.condensed.operation_bytes.max())
        self.plain: Schedule | None = None
        self.peak = 0
        self._dear: list[tuple[int, Schedule]] = []  # peaks, ascending, of schedules above the limit, cost descending
        self._searches = 0
        if self.spare >= 0:
            self._take(checkpoint_all(selection.graph))

    @staticmethod
    def of(
        graph: Graph, choice: Mapping[int, int], most_cost: float, codes: Codes | None = None
    ) -> MemoryDescent | None:
        """That of a choice, made consistent; None if it cannot be, or costs more than the limit without any rerun."""
        try:
            selection = restricted_to(graph, make_consistent(graph, choice, codes))
        except SolverError:  # what one operation must write and another must not
            return None
        descent = MemoryDescent(selection, most_cost, choice)
        return None if descent.plain is None else descent

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What tells it from others: its operations and their implementations."""
        return self.selection.operations, self.selection.codes

    def lifted(self) -> Schedule | None:
        """The best schedule on the graph with choices."""
        return None if self.plain is None else self.selection.lift(self.plain)

    def offer(self, schedule: Schedule) -> None:
        """Take the runs of a schedule of the graph with choices, if they are within the limit with these choices."""
        self._take(self.selection.lower(schedule))

    def bisect(self, over: Callable[[], bool]) -> None:
        """Come down to about the least budget in which a walk without guides keeps to the limit."""
        low, unguided = self.least - 1, Guide.everywhere(np.zeros(self.condensed.groups), self.condensed.n)
        while self.plain is not None and self.peak - low > max(1, _CLOSE_PEAKS * self.peak) and not over():
            budget = (low + self.peak) // 2
            if not self._walk(budget, [unguided], EXPONENTS, over):
                low = budget

    def attempt(self, budget: int, iterations: int, limits: Limits) -> bool:
        """Try to come down to a budget: by walks that a relaxation guides, then by local search.

        The search goes on from the cheapest schedule within the budget that is known to be above the limit, else from
        the best one, which is beyond the budget: it finds its way back.
        """
        if self.plain is None or budget < self.least:
            return False
        quiet = Limits(min(_BOUNDING_SECONDS, limits.left), limits.solver, 1, cancelled=limits.cancelled)
        relaxed = few_moments_bound(self.condensed, budget, quiet)
        if relaxed.bound > self.most_cost:
            return False
        towards = guides(self.condensed, relaxed)
        if self._walk(budget, towards, GUIDED_EXPONENTS, lambda: limits.over):
            return True
        self._searches += 1
        search = LocalSearch(self.condensed, budget, self._searches)
        search.guide(towards)
        schedules = [schedule for peak, schedule in self._dear if peak <= budget]
        if schedules:
            search.offer(schedules[-1])
        search.begin((schedules[-1] if schedules else self.plain).computations, iterations // 2)
        search.run(iterations, lambda: limits.over or search.least <= self.spare)
        return self._take(search.best)

    def _walk(
        self,
        budget: int,
        towards: list[Guide],
        exponents: tuple[tuple[float, float, float], ...],
        over: Callable[[], bool],
    ) -> bool:
        walks = Walks(self.condensed, budget)
        for powers, guide in [(powers, guide) for guide in towards for powers in exponents]:
            if over():
                break
            walked = walks.walk(powers, guide, most_cost=self.spare)
            if walked.complete and self._take(self.condensed.schedule(walked.computations)):
                return True
        return False

    def _take(self, schedule: Schedule | None) -> bool:
        """Keep a schedule if it is within the limit and needs less memory than any before."""
        if schedule is None or schedule.violation() is not None:
            return False
        peak = Plan.of(schedule).peak
        if schedule.cost > self.most_cost:
            if peak < self.peak and not any(p <= peak and one.cost <= schedule.cost for p, one in self._dear):
                self._dear = [(p, one) for p, one in self._dear if p < peak or one.cost < schedule.cost]
                self._dear = sorted([*self._dear, (peak, schedule)], key=lambda pair: pair[0])
            return False
        if self.plain is not None and peak >= self.peak:
            return False
        self.plain, self.peak = schedule, peak
        return True


CAUTION = 1e-7  # relative excess of a bound over the limit on the cost that proves nothing


def decide_exactly(
    problem: CondensedChoices, budget: int, most_cost: float, limits: Limits
) -> tuple[Schedule | None, bool]:
    """A schedule within the budget and the limit on the cost, or None, and then whether it is proven that none is."""
    joint = JointProblem(problem, budget, Milp(limits.solver, 1, relaxed=True))
    if not joint.build(limits):
        return None, False
    schedule, bound = joint.solve(limits, None)
    if schedule is not None and schedule.cost <= most_cost * (1 + LOOSE):
        return schedule, False
    return None, bound > most_cost * (1 + CAUTION)


class MemoryCandidates:
    """A descent for each choice that was planned with; their schedules go to the incumbent."""

    def __init__(
        self,
        graph: Graph,
        most_cost: float,
        incumbent: MemoryIncumbent,
        share: Callable[[float], Limits],
        codes: Codes | None,
    ) -> None:
        self.graph, self.most_cost, self.incumbent, self.share, self.codes = graph, most_cost, incumbent, share, codes
        self.descents: dict[tuple, MemoryDescent] = {}
        self._asked: list[int] = []  # budgets at which the relaxation was asked
        self._seed = 0

    def plan(self, choice: Mapping[int, int]) -> MemoryDescent | None:
        """Bisection with walks, and the best runs so far, with a choice; None if it was done before, or cannot be."""
        descent = MemoryDescent.of(self.graph, choice, self.most_cost, self.codes)
        if descent is None or descent.key in self.descents:
            return None
        self.descents[descent.key] = descent
        limits = self.share(_PLANNING_SHARE)
        descent.bisect(lambda: limits.over)
        descent.offer(self.incumbent.best)
        self.keep(descent)
        return descent

    def keep(self, descent: MemoryDescent) -> None:
        """Hand the best schedule of a descent to the incumbent."""
        schedule = descent.lifted()
        if schedule is not None and schedule.cost <= descent.most_cost:
            self.incumbent.keep(schedule)

    def peak_with(self, choice: Mapping[int, int], schedule: Schedule | None) -> int:
        """The least peak that is known once a choice was planned with, for which a schedule may be known."""
        if schedule is not None and schedule.cost <= self.most_cost * (1 + LOOSE):
            self.incumbent.keep(schedule)
        self.plan(choice)
        return self.incumbent.peak

    def ranked(self) -> list[MemoryDescent]:
        """Those with the least memory first."""
        return sorted(self.descents.values(), key=lambda one: one.peak)

    def second(self) -> MemoryDescent | None:
        """The second best with other implementations than the defaults: those did what they can at the beginning."""
        return next((one for one in self.ranked()[1:] if one.choice), None)

    def near_best(self, tables: Tables, budget: int, limits: Limits) -> MemoryDescent | None:
        """The best choice with changes after which walks within the budget cost less."""
        self._seed += 1
        search = ChoiceSearch(tables, self.ranked()[0].choice, self._seed, self.codes)
        search.lower(budget)
        search.improve(_CHANGES, self.most_cost, lambda: limits.over)
        return self.plan(search.choice)

    def relaxed(self, tables: Tables, memory: LeastMemory, budget: int, limits: Limits) -> MemoryDescent | None:
        """What the relaxation with cost as the objective would choose within the budget, unless that is impossible."""
        if any(abs(budget - asked) < _APART * asked for asked in self._asked):
            return None
        self._asked.append(budget)
        asked = RelaxationWithChoices(tables, budget)
        asked.moments = memory.moments or asked.moments
        seconds = min(limits.left, self.share(_RELAXING_SHARE).left)
        relaxed = asked.improve(replace(limits, time_limit=limits.elapsed + seconds), integral=False)
        if relaxed.bound > self.most_cost * (1 + CAUTION):
            self.incumbent.raise_bound(budget + 1)
            return None
        return self.plan(relaxed.choice()) if relaxed.d else None
