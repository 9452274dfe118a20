"""The strategy `optimal`: the cheapest schedule within the budget, of Checkmate's problem (9), by an anytime search.

It has an incumbent (the best schedule so far) and a lower bound, which it improves until they meet.

In: a graph with one implementation per operation, and a budget in bytes. Out: the cheapest schedule that was found, and
a bound that no frontier-advancing schedule within the budget is below; infinity is a proof that there is none.

0. Of a chain, the closed-form bound of reversing it: on unit chains REVOLVE's schedule of step 2 attains it.
1. Graphs of few operations: a best-first search over sets of values in memory (A*), below the cost of a walk. It proves
   an optimum, or ends after so many sets with a bound.
2. Constructed schedules of chains, walks, and a local search by simulated annealing give the first incumbent.
3. The search of step 1 once more: with the incumbent's cost as the limit it has fewer sets to look at.
4. The linear program of the few-moments relaxation gives the first bound, and its point guides walks to a better
   incumbent.
5. Where the gap is still wide, a bound on how often a path through the graph must run again to be visited in reverse.
6. The search of step 1 with more sets, on the smallest graphs.
7. Walks through chains of blocks that keep what the best persistent checkpoints are, where the gap is still wide.
8. Rounds of refinement. In each, the bound rises by a linear or an integer program with lazy rows and cuts; the local
   search improves the incumbent, beside the program if there is a second thread; and walks follow what the program's
   point holds in memory. Where that point is integral, an integer program over what it runs again looks for the best
   schedule near it.

Every step starts from the best schedule and the best bound so far, and either may only improve. Every bound is one of
the full problem, in which gradients may run again, too. A schedule becomes the incumbent only if its plan is within the
budget to the byte. The search ends when the relative gap is within 1e-7 or smaller than the difference of any two
costs, or when the time is up. Work is counted in iterations, sets and nodes, not in seconds, so a search that is run
to its end does the same in every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime_search.chain_starts import chain_guides, constructed_schedules
from remat_explorer.solvers.anytime_search.sweep_search import plan_each, solve_together
from remat_explorer.solvers.bounds.few_moments import (
    FEW_MOMENTS,
    FewMomentsSettings,
    few_moments_bound,
    guides,
    guides_to,
)
from remat_explorer.solvers.bounds.merged_stages import Point, cost_step
from remat_explorer.solvers.bounds.stage_refinement import (
    REFINEMENT,
    StageRefinement,
    StageRefinementSettings,
    run_again_in,
    solve_within,
)
from remat_explorer.solvers.chain_reversal.reversal_bound import reversal_bound
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import BackgroundSweep, Method, SharedSearch, Support
from remat_explorer.solvers.methods.griewank import binomial_bound
from remat_explorer.solvers.search.exact_search import search_exactly
from remat_explorer.solvers.search.local_search import LOCAL_SEARCH, Guide, LocalSearch, LocalSearchSettings, if_within
from remat_explorer.solvers.search.planner import cheapest_walk, guided_schedule, plan_schedule
from remat_explorer.solvers.solver_interface import Answer, Incumbent, Limits, Search

SEED = 0
SETTLED = 1e-7  # relative gap up to which the search has ended: less than a solver's tolerance tells nothing
_SETS_UP_TO = 100  # operations up to which sets of values in memory are searched
_BRIEF_SETS = 20_000  # sets that the first two of these searches look at, at most
_FIRST = 50_000  # iterations of the local search before the first bound, at most
_BOUNDING_SHARE = 0.3  # of the time that is left, at most, for the few-moments relaxation
_WIDE = 0.02  # relative gap beyond which a path is bounded in reverse, and walks follow persistent checkpoints
_CHECKPOINTING_SHARE = 0.2  # of the time that is left, at most, for the program that finds them
_SINGLE_UP_TO = 30  # operations up to which every stage is single from the beginning of the refinement
_LEAST_EACH = 3000  # iterations of the local search in a round of the refinement, at least, for each operation
# iterations in a round for each unit of the refinement's effort in the round before, divided by the operations
_PACE = 3000
_LEAST_PACE = 3  # but at least so many,
_MOST_PACE = 8  # and at most so many
_MOST = 2_000_000  # iterations of the local search in a round, at most
_RESTRICTING_SHARE = 0.3  # of the time that is left, at most, for the integer program near a relaxation's point


@dataclass(frozen=True)
class PlainSearchSettings:
    """How long each step of the search works, and on which problems."""

    long_sets_up_to: int = 40  # operations up to which the third search over sets, a long one, follows the first bound
    long_sets: int = 2_000_000  # sets that it looks at, at most
    first_each: int = 150  # iterations of the local search before the first bound for each operation
    # iterations of the local search in a round of the refinement, at least, or `_LEAST_EACH`, where that is less
    least: int = 150_000
    local: LocalSearchSettings = LOCAL_SEARCH
    moments: FewMomentsSettings = FEW_MOMENTS
    refinement: StageRefinementSettings = REFINEMENT


PLAIN_SEARCH = PlainSearchSettings()


class PlainSearch(Search):
    """The incumbent and the bound, and the steps that improve them."""

    def __init__(
        self,
        condensed: CondensedGraph,
        budget: int,
        limits: Limits,
        best: Schedule | None = None,
        bound: float = 0.0,
        settings: PlainSearchSettings = PLAIN_SEARCH,
    ) -> None:
        self.condensed, self.budget, self.settings = condensed, budget, settings
        self.incumbent = Incumbent(limits, best, max(bound, binomial_bound(condensed, budget)))
        super().__init__(limits, self.incumbent)
        self.planned = best is not None
        self.step = cost_step(condensed.graph) * (1 - 1e-6)  # two different costs are at least so far apart

    @cached_property
    def local(self) -> LocalSearch:
        """The local search, once it is needed."""
        return LocalSearch(self.condensed, self.budget, SEED, self.settings.local)

    @property
    def settled(self) -> bool:
        """Whether the incumbent is proven optimal, or that there is none."""
        return self.incumbent.within(SETTLED) or self.incumbent.gap < self.step

    def run(self, rounds: float = math.inf) -> Answer:
        """Search until the answer is proven, the time is up, or the refinement had so many rounds."""
        self.rounds = rounds
        first, second, third = self._search_first, self._search_briefly, self._search_long
        bounds = self._bound_from_moments, self._bound_from_reversal
        self.take((first, self._plan, second, *bounds, third, self._follow_checkpoints, self._refine))
        return self.incumbent.answer()

    def _search_first(self) -> None:
        """Below the cost of a walk, before any time goes into a better schedule: tiny problems end here."""
        if self.condensed.n > _SETS_UP_TO or self.planned:
            return
        walk = cheapest_walk(self.condensed, self.budget)
        cost = math.inf if walk is None else float(walk.counts(self.condensed.n) @ self.condensed.costs)
        self._search_sets(_BRIEF_SETS, cost)
        if walk is not None and self.incumbent.schedule is None:
            self.incumbent.keep(if_within(self.condensed.schedule(walk), self.budget))

    def _search_briefly(self) -> None:
        if self.condensed.n <= _SETS_UP_TO:
            self._search_sets(_BRIEF_SETS, self.incumbent.cost)

    def _search_long(self) -> None:
        settings = self.settings
        if self.condensed.n <= settings.long_sets_up_to:
            self._search_sets(settings.long_sets, self.incumbent.cost)

    def _search_sets(self, work: int, cost: float) -> None:
        """Look for a schedule that costs less than a known one, by sets of values in memory."""
        self.incumbent.tell("searching for what to keep")
        limit = cost - max(self.step / 2, SETTLED / 2 * cost) if math.isfinite(cost) else math.inf
        exact = search_exactly(self.condensed, self.budget, limit, work, lambda: self.limits.over)
        self.incumbent.keep(exact.schedule)
        nothing_cheaper = exact.proven and exact.schedule is None and self.step > 0
        self.incumbent.raise_bound(
            cost if nothing_cheaper else exact.bound
        )  # no cost lies between the limit and this one

    def _plan(self) -> None:
        self.incumbent.tell("planning")
        if not self.planned:
            for schedule in constructed_schedules(self.condensed, self.budget, self.limits):
                self.incumbent.keep(schedule)
            if self.settled:
                return
            seconds, cancelled = self.limits.left / 4, self.limits.cancelled
            self.incumbent.keep(plan_schedule(self.condensed, self.budget, seconds, cancelled, self.settings.local))
        if not self.settled:
            self._search_locally(min(_FIRST, self.settings.first_each * self.condensed.n))

    def _bound_from_moments(self) -> None:
        self.incumbent.tell("bounding from a few moments")
        limits, settings = self.limits.share(_BOUNDING_SHARE), self.settings.moments
        self.moments = few_moments_bound(self.condensed, self.budget, limits, self.incumbent.schedule, settings)
        self.incumbent.raise_bound(self.moments.bound)
        walks = guides(self.condensed, self.moments)
        if not self.over and walks:
            self._walk(walks)

    def _bound_from_reversal(self) -> None:
        if self.incumbent.within(_WIDE):
            return
        self.incumbent.tell("bounding a path in reverse")
        self.incumbent.raise_bound(reversal_bound(self.condensed, self.budget, lambda: self.limits.over))

    def _follow_checkpoints(self) -> None:
        """Walks that keep what persistent checkpoints of blocks are."""
        if self.incumbent.within(_WIDE):
            return
        self.incumbent.tell("looking for the best checkpoints of blocks")
        share = self.limits.share(_CHECKPOINTING_SHARE)
        if guides := chain_guides(self.condensed, self.budget, lambda: share.over):
            self._walk(guides)

    def _refine(self) -> None:
        """Rounds of a higher bound and a better schedule, beside each other if there is a second thread."""
        settings = self.settings
        small = self.condensed.n <= _SINGLE_UP_TO
        singles = range(self.condensed.n) if small else self.moments.moments
        refinement = StageRefinement(
            self.condensed, self.budget, self.limits, singles, self.incumbent.bound, settings.refinement
        )
        least = min(settings.least, _LEAST_EACH * self.condensed.n)
        pace = min(max(_PACE // self.condensed.n, _LEAST_PACE), _MOST_PACE)
        while not self.over and not refinement.finished and self.rounds > 0:
            self.rounds -= 1
            iterations = min(max(least, pace * refinement.effort), _MOST)
            self.local.offer(self.incumbent.schedule)  # neither knows of the other: two threads do what one does
            self.beside(
                lambda: refinement.advance(self.incumbent.schedule),
                lambda iterations=iterations: self.local.run(iterations, lambda: self.limits.over),
            )
            self.incumbent.raise_bound(refinement.bound)
            self.incumbent.keep(refinement.schedule)
            self.incumbent.keep(self.local.best)
            if refinement.point is not None and not self.over:
                self._follow(refinement.point, refinement.integral)

    def _search_locally(self, iterations: int) -> None:
        self.local.offer(self.incumbent.schedule)
        self.incumbent.keep(self.local.run(iterations, lambda: self.limits.over))

    def _follow(self, point: Point, integral: bool) -> None:
        """Schedules near a relaxation's point; if it is integral, the best of those that run the same again."""
        self._walk(guides_to(*point.held()))
        if integral and not self.settled:
            self.incumbent.tell("looking for a schedule near the relaxation")
            limits = self.limits.share(_RESTRICTING_SHARE)
            again, incumbent = run_again_in(point), self.incumbent.schedule
            self.incumbent.keep(solve_within(self.condensed, self.budget, again, limits, incumbent))

    def _walk(self, guides: list[Guide]) -> None:
        """Walks that follow guides now, and whenever the local search begins with one."""
        local = self.settings.local
        self.incumbent.keep(guided_schedule(self.condensed, self.budget, guides, lambda: self.limits.over, local))
        self.local.guide(guides)


def solve_optimal(graph: Graph, budget: int, limits: Limits) -> Answer:
    """The cheapest schedule within the budget, or the best known with a bound when the time is up."""
    return improve_optimal(graph, budget, Answer(None), limits)


def improve_optimal(graph: Graph, budget: int, start: Answer, limits: Limits) -> Answer:
    """The same search from what is known, never worse than that."""
    return PlainSearch(CondensedGraph.of(graph), budget, limits, start.schedule, start.lower_bound or 0.0).run()


METHOD = Method(
    solve_optimal,
    "an anytime search: a schedule at once, better ones, and a lower bound; where they meet, none by stages costs less",
    "Jain et al. 2020, section 4, for the problem",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    compiled_search=True,
    threads=2,  # the second one runs the local search beside the bounds
    improve=improve_optimal,
    together=SharedSearch(plan_each, solve_together),
    complete=True,
    background_sweep=BackgroundSweep.ALWAYS,
    symbol="circle",
)
