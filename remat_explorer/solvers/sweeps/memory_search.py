"""The least memory at a limited cost: choices of implementations, schedules of them at falling budgets, and a bound.

First come default implementations, as Checkmate would run them: bisection with walks says how little memory they can
do with. Then comes the relaxation with memory as the objective, and what it would choose; from the best of these,
budgets fall for a share of the time. Choices by one rule follow, and what changes of the best one lead to. Each begins
with walks and with the runs of the best schedule so far. From the best of them budgets fall, first in large steps. At
each, the best choice is searched, then what the relaxation with cost as the objective would choose, if it does not
prove the budget to be too small, then the second best. Where they fail, the step is halved; where it has become small,
the searches become longer, and choices near the best one are tried, too. The relaxation's integer program raises the
bound, beside all this if there is a second thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from remat_explorer.solvers.monet.choice_search import ChoiceSearch
from remat_explorer.solvers.monet.codes import Codes
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.monet.least_memory_moments import LeastMemory
from remat_explorer.solvers.monet.relaxation_with_choices import Relaxation
from remat_explorer.solvers.monet.tables import Tables
from remat_explorer.solvers.monet.uniform_choices import cheapest, default_or_leaner, lightest, smallest
from remat_explorer.solvers.sweeps.choice_climb import climb
from remat_explorer.solvers.sweeps.exact_memory import CAUTION, decide_exactly
from remat_explorer.solvers.sweeps.memory_descent import LOOSE, MemoryDescent

BOUNDING, PLANNING, PROVING = 0.15, 0.05, 0.3  # shares of the time that is left, at most
FALLING, CLIMBING = 0.25, 0.3  # the same, for the descent before choices by rules, and for changes of the best
FIRST_STEP, LONGER, LAST_STEP, AGAIN = 0.05, 1.3, 0.004, 0.02  # by which budgets fall, relative
ITERATIONS, PATIENCE, MOST_ITERATIONS = 60_000, 3, 2_000_000  # of local search in an attempt: at first, factor, at most
CHANGES = 200  # of the best choice, judged by walks, in an attempt
APART = 0.01  # relative distance of budgets at which the relaxation is asked again what it would choose
SMALL = 2500  # stages times operations up to which the joint integer program is solved
CLOSE = 1e-3  # relative distance to the bound at which the search ends


class MemorySearch:
    """The schedule with the least memory, a bound on it, and the steps that improve them.

    Args:
        graph: operations may have several implementations, or be optional.
        most_cost: limit on the cost, in the graph's unit, at least that of keeping everything.
        limits: time, back end, threads (a second one proves beside the search), and whom to tell.
        codes: the implementations of each operation that may be chosen, defaults among them; all if None.

    Attributes:
        best: the schedule.
        peak: of its plan, in bytes.
        bound: bytes; no schedule within the limit on the cost does with less.

    >>> from remat_explorer.instances import linear
    >>> search = MemorySearch(linear(8), most_cost=26.0, limits=Limits(10))
    >>> search.run()
    >>> search.peak, search.bound
    (4, 4)
    """

    def __init__(self, graph: Graph, most_cost: float, limits: Limits, codes: Codes | None = None) -> None:
        self.problem, self.codes = CondensedChoices.of(graph, codes), codes
        self.most_cost, self.limits = most_cost, limits
        self.best: Schedule = checkpoint_all(graph)
        self.peak = Plan.of(self.best).peak
        self.bound = int(self.problem.least_memory.max())
        self.descents: dict[tuple, MemoryDescent] = {}
        self.finished = False
        self._asked: list[int] = []  # budgets at which the relaxation was asked
        self._seed = 0

    @property
    def fixed(self) -> bool:
        """Whether there is nothing to choose."""
        return all(len(ways) <= 1 for ways in self.problem.ways)

    @property
    def settled(self) -> bool:
        """Whether schedule and bound are as good as equal."""
        return self.peak - self.bound < CLOSE * self.peak

    @property
    def over(self) -> bool:
        """Whether the time is up, the person cancelled, or nothing is left to do."""
        return self.limits.over or self.settled

    def run(self) -> None:
        """Search until bound and schedule meet, or the time is up."""
        if not self.settled:
            self.tables = Tables(self.problem)
            self.relaxation = LeastMemory(self.tables, self.most_cost, self.peak)
        steps = (self._plan_defaults, self._bound_first, self._descend_first, self._plan_by_rules, self._climb)
        last = self._descend_and_prove
        if self.problem.graph.stages * self.problem.graph.n <= SMALL:
            steps, last = (self._bound_first, self._plan_by_rules), self._settle_exactly
        elif self.fixed:
            steps = self._bound_first, self._plan_by_rules
        for step in (*steps, last):
            if self.over:
                break
            step()
        self.limits.tell("done", self.best)

    def _quiet(self, share: float = 1.0) -> Limits:
        """Limits of a part of the work, which tells nobody."""
        limits = self.limits
        end = limits.elapsed + share * limits.left
        return Limits(
            end, limits.solver, 1, cancelled=lambda: limits.cancelled() or self.finished, started=limits.started
        )

    def _plan_defaults(self) -> None:
        """What Checkmate would do, so that choices are never worse for want of it."""
        self.limits.tell("planning with the default implementations", self.best)
        self._plan({})
        self._plan(default_or_leaner(self.tables))

    def _descend_first(self) -> None:
        self._descend(self._quiet(FALLING), ITERATIONS)

    def _climb(self) -> None:
        """Changes of the best choice that walks think well of."""
        if not self.descents:
            return

        self.limits.tell("changing implementations", self.best)
        limits = self._quiet(CLIMBING)
        start = self._ranked()[0].choice
        choice = climb(self.tables, start, self.most_cost, self.codes, self._peak_with, lambda: limits.over)
        descent = self._plan(choice)
        if descent is not None:
            descent.attempt(int(self.peak * (1 - LAST_STEP)), ITERATIONS, self._quiet())
            self._keep(descent)

    def _peak_with(self, choice: Mapping[int, int], known: Schedule | None) -> int:
        """The least peak that is known once a choice was planned with."""
        if known is not None and known.cost <= self.most_cost * (1 + LOOSE):
            self._accept(known)
        self._plan(choice)
        return self.peak

    def _bound_first(self) -> None:
        self.limits.tell("bounding the memory from a few moments", self.best)
        self._improve_bound(self._quiet(BOUNDING), integral=False)
        self._plan(self.relaxation.best.choice())

    def _plan_by_rules(self) -> None:
        self._plan({})
        for rule in (cheapest, lightest, smallest):
            if not self.over:
                self.limits.tell(f"planning with the {rule.__name__} implementations", self.best)
                self._plan(rule(self.tables))

    def _descend_and_prove(self) -> None:
        """Budgets fall while a second thread proves, if there is one; else one after the other."""
        if self.limits.threads > 1:
            with ThreadPoolExecutor(1) as second:
                running = second.submit(self._improve_bound, self._quiet(PROVING), True)
                try:
                    self._descend(self._quiet())
                finally:
                    self.finished = True
                    running.result()
        else:
            self._descend(self._quiet(1 - PROVING))
            if not self.over:
                self.limits.tell("bounding the memory from a few moments, with integers", self.best)
                self._improve_bound(self._quiet(), integral=True)

    def _settle_exactly(self) -> None:
        """Bisection with the joint integer program, between the bound and the best schedule."""
        while self.bound < self.peak and not self.limits.over:
            budget = (self.bound + self.peak) // 2
            self.limits.tell("solving the joint problem", self.best)
            found, above = decide_exactly(self.problem, budget, self.most_cost, self._quiet())
            if found is not None:
                self._accept(found)
            elif above:
                self._raise(budget + 1)
            else:
                break

    def _descend(self, limits: Limits, most_iterations: int = MOST_ITERATIONS) -> None:
        """Falling budgets until the time is up, or searches have become long and steps small."""
        step, iterations = FIRST_STEP, ITERATIONS
        while not limits.over and not self.settled and iterations <= most_iterations and self.descents:
            budget = max(self.bound, int(self.peak * (1 - step)))
            self.limits.tell("lowering the memory", self.best)
            if self._reach(budget, iterations, limits):
                step *= LONGER
                continue
            step /= 2
            if step < LAST_STEP:
                step, iterations = AGAIN, iterations * PATIENCE

    def _reach(self, budget: int, iterations: int, limits: Limits) -> bool:
        """Whether a schedule with less memory than the best was found at a budget."""
        before = self.peak
        ways = [self._best_choice, self._relaxed_choice, self._second_choice, self._near_choice]
        for way in ways if iterations > ITERATIONS else ways[:-1]:
            if limits.over or self.bound >= self.peak:
                break
            descent = way(budget, iterations, limits)
            if descent is not None and self.peak == before:
                descent.attempt(budget, iterations, limits)
                self._keep(descent)
            if self.peak < before:
                return True
        return False

    def _ranked(self) -> list[MemoryDescent]:
        return sorted(self.descents.values(), key=lambda one: one.peak)

    def _best_choice(self, budget: int, iterations: int, limits: Limits) -> MemoryDescent | None:
        return self._ranked()[0]

    def _second_choice(self, budget: int, iterations: int, limits: Limits) -> MemoryDescent | None:
        others = [one for one in self._ranked()[1:] if one.choice]  # the defaults did what they can at the beginning
        return others[0] if others else None

    def _near_choice(self, budget: int, iterations: int, limits: Limits) -> MemoryDescent | None:
        """The best choice with changes after which walks within the budget cost less."""
        self._seed += 1
        search = ChoiceSearch(self.tables, self._ranked()[0].choice, self._seed, self.codes)
        search.lower(budget)
        search.improve(CHANGES, self.most_cost, lambda: limits.over)
        return self._plan(search.choice)

    def _relaxed_choice(self, budget: int, iterations: int, limits: Limits) -> MemoryDescent | None:
        """What the relaxation with cost as the objective would choose within the budget, unless that is impossible."""
        if self.fixed or any(abs(budget - asked) < APART * asked for asked in self._asked):
            return None
        self._asked.append(budget)
        asked = Relaxation(self.tables, budget)
        asked.moments = self.relaxation.moments or asked.moments
        seconds = min(limits.left, BOUNDING * self.limits.left)
        found = asked.improve(replace(limits, time_limit=limits.elapsed + seconds), integral=False)
        if found.bound > self.most_cost * (1 + CAUTION):
            self._raise(budget + 1)
            return None
        return self._plan(found.choice()) if found.d else None

    def _plan(self, choice: Mapping[int, int]) -> MemoryDescent | None:
        """Bisection with walks, and the best runs so far, with a choice; None if it was done before, or cannot be."""
        descent = MemoryDescent.of(self.problem.graph, choice, self.most_cost, self.codes)
        if descent is None or descent.key in self.descents:
            return None
        self.descents[descent.key] = descent
        limits = self._quiet(PLANNING)
        descent.bisect(lambda: limits.over)
        descent.offer(self.best)
        self._keep(descent)
        return descent

    def _keep(self, descent: MemoryDescent) -> None:
        found = descent.lifted()
        if found is None or found.cost > descent.most_cost:
            return
        self._accept(found)

    def _accept(self, found: Schedule) -> None:
        peak = Plan.of(found).peak
        if peak < self.peak:
            self.best, self.peak = found, peak
            self.limits.tell("found a schedule with less memory", self.best)

    def _improve_bound(self, limits: Limits, integral: bool) -> None:
        self.relaxation.most = float(self.peak)
        bound = self.relaxation.improve(limits, integral).bound
        self._raise(self.relaxation.most if math.isinf(bound) else bound)

    def _raise(self, bound: float) -> None:
        """No schedule does with less; one in hand refutes what claims more: it was the solver's tolerance."""
        self.bound = max(self.bound, min(math.ceil(bound), self.peak))
