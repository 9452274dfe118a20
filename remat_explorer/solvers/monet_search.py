"""The strategy `monet`: schedule and implementation of every run together, anytime.

A choice of implementations leaves a graph without choices, on which the search of `optimal` plans. First come choices
by one rule, then what the few-moments relaxation with choices would choose, first its linear program, then with
binaries; each is planned for a moment. The one with the cheapest schedule is searched on, beside the relaxation if
there is a second thread, and then for the time that is left. Small problems go to the joint integer program, which is
exact. Every bound is one of the joint problem: what the search proves of one choice is not passed on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import PROVEN, Answer, Limits, Progress
from remat_explorer.solvers.bounds.few_moments import few_moments_bound
from remat_explorer.solvers.bounds.guidance import guides
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.candidate import Candidate
from remat_explorer.solvers.monet.codes import allowed_codes
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.monet.joint_problem import JointProblem
from remat_explorer.solvers.monet.relaxation_with_choices import Relaxation
from remat_explorer.solvers.monet.tables import Tables
from remat_explorer.solvers.monet.uniform_choices import cheapest, lightest, smallest
from remat_explorer.solvers.optimal import Search
from remat_explorer.solvers.search.planner import guided_schedule, plan_schedule

SMALL = 2500  # stages times operations up to which the joint integer program is solved
PLANNING, MOMENTS = 0.1, 0.1  # share of the time that is left, at most: for each choice, and for the linear program
INTEGRAL = 0.4  # the same for each round of the integral relaxation, and for the search beside it
CLOSE = 0.02  # relative distance from the cheapest up to which a choice is searched on


def solve_monet(graph: Graph, budget: int, limits: Limits, implementations: str | Collection[str] = "all") -> Answer:
    """The cheapest schedule within the budget with an implementation chosen for every run.

    Args:
        graph: the training graph; operations may have several implementations, or be optional.
        budget: bytes, resident bytes included.
        limits: time, back end, threads (a second one searches beside the bounds), and whom to tell.
        implementations: "all"; "exact", those whose results are bit-equal; or names of implementations. Defaults are
            always among them. The lower bound is about schedules of these implementations.

    Raises:
        UnknownNameError: if the graph has no implementation of a given name.
        SolverError: if the back end fails.

    Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), for the choice of implementations.
    """
    return JointSearch(CondensedChoices.of(graph, allowed_codes(graph, implementations)), budget, limits).run()


class JointSearch:
    """The incumbent, the bound on the joint problem, and the steps that improve them.

    Args:
        problem: operations with their ways, and groups of values.
        budget: bytes, resident bytes included.
        limits: time, back end, threads and whom to tell.
    """

    def __init__(self, problem: CondensedChoices, budget: int, limits: Limits) -> None:
        self.problem, self.budget = problem, budget
        self.limits, self.one_thread = limits, replace(limits, threads=1, report=self._pass_on)
        self.best: Schedule | None = None
        self.bound = problem.least_cost
        self.candidates: dict[tuple, Candidate] = {}

    @property
    def settled(self) -> bool:
        """Whether the incumbent is proven optimal, or that there is none."""
        if self.best is None:
            return math.isinf(self.bound)
        return self.best.cost - self.bound <= PROVEN / 10 * self.best.cost

    def run(self) -> Answer:
        """Search until the answer is proven or the time is up."""
        if int(self.problem.least_memory.max()) > self.budget:
            return Answer(None, infeasible=True)
        self.tables = Tables(self.problem)
        self.relaxation = Relaxation(self.tables, self.budget)
        small = self.problem.graph.stages * self.problem.graph.n <= SMALL
        for step in (self._plan_by_rules, self._relax, self._solve_exactly if small else self._alternate):
            if self.limits.over or self.settled:
                break
            step()
        if self.best is None and math.isinf(self.bound):
            return Answer(None, infeasible=True, solver=self.limits.solver)
        self._tell("done")
        return Answer(self.best, self.bound, solver=self.limits.solver)

    def _plan_by_rules(self) -> None:
        for rule in (cheapest, lightest, smallest):
            if not self.limits.over and not self.settled:
                self._plan(rule(self.tables), f"planning with the {rule.__name__} implementations")

    def _relax(self) -> None:
        self._tell("bounding from a few moments, with choices")
        self._bound(self.limits.left * MOMENTS, integral=False)
        self._plan(self.relaxation.best.choice(), "planning with the relaxation's implementations")

    def _bound(self, seconds: float, integral: bool) -> None:
        limits = replace(self.one_thread, time_limit=self.limits.elapsed + seconds)
        self._raise_bound(self.relaxation.improve(limits, integral, self.best).bound)

    def _solve_exactly(self) -> None:
        self._tell("building the joint problem")
        limits = self.one_thread
        problem = JointProblem(self.problem, self.budget, Milp(limits.solver, limits.threads, relaxed=True))
        if problem.build(limits):
            found, bound = problem.solve(limits, self.best)
            self._keep(found)
            self._raise_bound(bound)

    def _alternate(self) -> None:
        """The integral relaxation beside a search of the best choice; then the search alone, choice by choice."""
        with ThreadPoolExecutor(1) as second:
            seconds = INTEGRAL * self.limits.left
            running = None
            if self.limits.threads > 1 and self.candidates:
                running = second.submit(self._search, self._promising()[0], seconds)
            try:
                self._bound(seconds, integral=True)
            finally:
                if running is not None:
                    running.result()
        if not self.settled and not self.limits.over:
            self._plan(self.relaxation.best.choice(), "planning with the relaxation's implementations")
        while not self.limits.over and not self.settled and self.candidates:
            promising = self._promising()
            for place, candidate in enumerate(promising):
                self._search(candidate, self.limits.left / (len(promising) - place))
            if all(candidate.finished for candidate in promising):
                break

    def _promising(self) -> list[Candidate]:
        """The candidates whose schedules are close to the cheapest, the cheapest first."""
        known = sorted(self.candidates.values(), key=_cost)
        return [one for one in known if not one.finished and _cost(one) <= (1 + CLOSE) * _cost(known[0])][:2] or known[
            :1
        ]

    def _plan(self, choice: Mapping[int, int], doing: str) -> None:
        """Plan for a moment with these implementations, unless that was done before."""
        candidate = Candidate.of(self.problem.graph, choice, self.budget) if choice else None
        if candidate is None or candidate.key in self.candidates:
            return
        self._tell(doing)
        self.candidates[candidate.key] = candidate
        limits = self.one_thread.share(PLANNING)
        self._keep(candidate.take(plan_schedule(candidate.condensed, self.budget, limits.left, limits.cancelled)))
        quiet = replace(limits, report=_ignore)
        moments = few_moments_bound(candidate.condensed, self.budget, quiet)
        candidate.finished = math.isinf(moments.bound)
        walks = guides(candidate.condensed, moments)
        if walks and not limits.over:
            self._keep(candidate.take(guided_schedule(candidate.condensed, self.budget, walks, lambda: limits.over)))

    def _search(self, candidate: Candidate, seconds: float) -> None:
        """Search on with one choice; its schedules are taken in as they come."""
        if candidate.finished:
            return

        def hear(progress: Progress) -> None:
            if progress.schedule is not None:
                self._keep(candidate.take(progress.schedule))

        limits = replace(self.one_thread, time_limit=self.limits.elapsed + seconds, report=hear)
        search = Search(candidate.condensed, self.budget, limits, candidate.plain)
        self._keep(candidate.take(search.run().schedule))
        candidate.finished = search.settled

    def _keep(self, found: Schedule | None) -> None:
        if found is not None and (self.best is None or found.cost < self.best.cost):
            self.best = found
            self._tell("found a better schedule")

    def _raise_bound(self, bound: float) -> None:
        """Infinity claims that there is no schedule; one in hand refutes that: it was the solver's tolerance."""
        if self.best is None or math.isfinite(bound):
            self.bound = max(self.bound, bound)

    def _tell(self, doing: str) -> None:
        self.limits.tell(doing, self.best, self.bound)

    def _pass_on(self, progress: Progress) -> None:
        """A step's own bound may be below one that is known already."""
        bound = max(progress.lower_bound or 0.0, self.bound)
        self.limits.report(replace(progress, schedule=self.best, lower_bound=bound))


def _cost(candidate: Candidate) -> float:
    return math.inf if candidate.best is None else candidate.best.cost


def _ignore(progress: Progress) -> None:
    """What a choice alone says is not told."""
