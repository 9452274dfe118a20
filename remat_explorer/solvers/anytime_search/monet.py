"""The strategy `monet`: a schedule with an implementation of every run, and a lower bound, improved until they meet.

In: a graph with several implementations per operation, and a budget in bytes. Out: the cheapest schedule that was
found, and a bound on every schedule with whatever allowed implementations. A *choice* is one implementation for each
operation; it leaves a plain graph, on which the search of `optimal` plans. Planning with a choice means walks, a short
local search, and walks guided by the few-moments relaxation of its plain graph.

1. Plan with the default implementations, and with those that read less for the same cost: the first incumbent.
2. Solve the linear program of the few-moments relaxation with choices: the first bound. Plan with what it would choose.
3. Plan with the incumbent's implementations, with choices by one rule for all operations, and with those that the
   linear program of step 2 would choose at smaller and larger budgets.
4. Choose the implementations of the best schedules so far anew, by an integer program that leaves their runs where they
   are or out (the empty window of `monet.windows`): mostly a choice that no step before has seen.
5. Search on with the choice of step 1, as Checkmate would, unless its own bound shows that nothing cheaper is left.
6. Change the best choices where walks cost less after the change, and plan with the result. Step 4 again.
7. Solve the relaxation with binaries, for a share of the time at most, and beside it, with a second thread, improve the
   incumbent in windows and search on with the best choices, in turn; before it, where there is no second thread. Plan
   with what the relaxation would choose. Then go on with searches and windows beside each other; beside step 8 on
   networks of about a hundred operations.
8. Solve the joint integer program, which is exact, from the incumbent, with memory rows added as they are violated.

Small problems take steps 2, 3, 4 and 8 only; a graph with nothing left to choose goes to the search of `optimal`. After
every step, runs of the incumbent whose operation has a cheaper implementation there are switched to it. Bounds come
from steps 2, 7 and 8: what is proven of one choice says nothing about others.

What is looked for, and in which order, does not depend on how fast the machine is. The work of steps 1 to 6, of every
window and of every turn is counted (columns, nodes, changes, rounds), the windows beside step 7 read nothing of it, and
the clock ends the whole, and the proof of step 7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from threading import Event

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime_search.optimal import PlainSearch
from remat_explorer.solvers.bounds.few_moments import few_moments_bound, guides
from remat_explorer.solvers.method import BackgroundSweep, Method, Support
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import Codes, CondensedChoices, Tables, allowed_codes
from remat_explorer.solvers.monet.joint_problem import JointProblem
from remat_explorer.solvers.monet.relaxation_with_choices import RelaxationWithChoices
from remat_explorer.solvers.monet.selections import (
    CandidateSelection,
    ChoiceSearch,
    cheapest,
    default,
    default_or_leaner,
    lightest,
    smallest,
)
from remat_explorer.solvers.monet.windows import WindowSearch, choices_near, switch_runs
from remat_explorer.solvers.search.planner import guided_schedule, plan_schedule
from remat_explorer.solvers.solver_interface import PROVEN, Answer, Incumbent, Limits, Progress, Search

MOST = 2  # choices that are searched on in one turn
_CLOSE = 0.02  # relative distance from the cheapest schedule up to which another choice is searched on
_ROUNDS = 2  # of the first search on with one of the best choices; each later one has twice as many


class JointCandidates:
    """Choices, each with the plain graph that it leaves, its schedules and its bound."""

    def __init__(
        self, problem: CondensedChoices, budget: int, codes: Codes | None, incumbent: Incumbent, limits: Limits
    ) -> None:
        self.graph, self.budget, self.codes = problem.graph, budget, codes
        self.incumbent, self.limits = incumbent, limits
        self._planned: dict[tuple, CandidateSelection] = {}

    @property
    def nothing_left(self) -> bool:
        """Whether searches of the best choices have come to their end."""
        return all(self._is_finished(candidate) for candidate in self.promising())

    def best_schedules(self) -> list[Schedule]:
        """The incumbent, and the best schedule of each choice, the cheapest first."""
        best = [candidate.best for candidate in sorted(self._planned.values(), key=_cost)]
        return [schedule for schedule in (self.incumbent.schedule, *best) if schedule is not None]

    def promising(self) -> list[CandidateSelection]:
        """The candidates whose schedules are close to the cheapest, the cheapest first."""
        candidates = sorted(self._planned.values(), key=_cost)
        if not candidates:
            return []
        most = (1 + _CLOSE) * _cost(candidates[0])
        return [one for one in candidates if not self._is_finished(one) and _cost(one) <= most][:MOST] or candidates[:1]

    def _is_finished(self, candidate: CandidateSelection) -> bool:
        """Whether a search of a choice has come to its end, or is proven to find nothing cheaper."""
        return candidate.finished or candidate.bound >= self.incumbent.cost * (1 - PROVEN / 10)

    def of(self, choice: Mapping[int, int]) -> CandidateSelection | None:
        """The candidate of a choice, the same each time; None if it needs what may not be chosen, or cannot fit."""
        candidate = CandidateSelection.of(self.graph, choice, self.budget, self.codes) if choice else None
        if candidate is None or not candidate.keeps_to(self.codes):
            return None
        return self._planned.get(candidate.key, candidate)

    def plan(self, choice: Mapping[int, int], doing: str) -> None:
        """Plan for a moment with these implementations, unless that was done before."""
        candidate = self.of(choice)
        if candidate is None or candidate.key in self._planned:
            return
        self.incumbent.tell(doing)
        self._planned[candidate.key] = candidate
        limits = self.limits
        condensed, budget = candidate.condensed, self.budget
        planned = plan_schedule(condensed, budget, limits.left, limits.cancelled)
        self.incumbent.keep(candidate.take(planned))
        quiet = replace(limits, report=lambda progress: None)
        moments = few_moments_bound(condensed, budget, quiet)
        candidate.bound = moments.bound
        walks = guides(condensed, moments)
        if walks and not limits.over:
            guided = guided_schedule(condensed, budget, walks, lambda: limits.over)
            self.incumbent.keep(candidate.take(guided))

    def search(self, candidate: CandidateSelection, rounds: int) -> None:
        """Search on with one choice that may cost less, each time for twice as many rounds as before."""
        if self._is_finished(candidate):
            return

        def hear(progress: Progress) -> None:
            if progress.schedule is not None:
                self.incumbent.keep(candidate.take(progress.schedule))

        limits = replace(self.limits, report=hear)
        plain, bound = candidate.plain, candidate.bound
        search = PlainSearch(candidate.condensed, self.budget, limits, plain, bound)
        self.incumbent.keep(candidate.take(search.run(rounds * 2**candidate.searches).schedule))
        candidate.searches += 1
        candidate.finished, candidate.bound = search.settled, search.incumbent.bound

    def plan_known(self) -> None:
        """Plan with the implementations of the incumbent's first runs, and begin there where it has no others."""
        if self.incumbent.schedule is None or self.incumbent.within(PROVEN / 10):
            return
        self.plan(first_choice(self.incumbent.schedule), "planning with the implementations of the known schedule")
        candidate = self.of(first_choice(self.incumbent.schedule))
        if candidate is not None:
            lowered = candidate.selection.lower(self.incumbent.schedule)
            if lowered.violation() is None and Plan.of(lowered).peak <= self.budget:
                candidate.take(lowered)

    def search_best(self) -> None:
        """Search on with the best choices."""
        for candidate in self.promising():
            if not self.limits.over:
                self.search(candidate, _ROUNDS)


def first_choice(schedule: Schedule) -> dict[int, int]:
    """The implementation of each mandatory operation's first run, by operation."""
    return {k: int(schedule.R[t, k]) for t, k in enumerate(schedule.graph.mandatory.tolist())}


def _cost(candidate: CandidateSelection) -> float:
    return math.inf if candidate.best is None else candidate.best.cost


# stages times operations up to which the joint program is solved, without the steps for large problems
EXACT_UP_TO = 2500
# the same up to which it is solved beside the search, once the integral relaxation has had its share
EXACT_BESIDE = 12_000
_DEFAULT_ROUNDS = 4  # of the search with default implementations
# columns of the relaxation's linear programs together; the one that reaches the number is the last
_BOUNDING_COLUMNS = 60_000
_CHANGES = 300  # changes of each of the best choices that walks judge, at most,
_CHANGED_OPERATIONS = 60_000  # and how many changes times operations: a walk of more operations takes longer
# of the time for the integral relaxation, at most: it proves, and what is found does not come from it
_INTEGRAL_SHARE = 0.5
_NEAR_BUDGETS = (0.85, 0.93, 1.07, 1.15)  # shares of the budget for which the relaxation chooses as well
_NEAR_COLUMNS = 30_000  # columns of the linear programs for each of them, as above
_SCHEDULES = 6  # whose implementations are chosen anew, the best ones
_WINDOWS_EACH = 12  # windows of one turn
_TURNS = 3  # before a proof, where no second thread takes them beside it


class JointSearch(Search):
    """The incumbent, the bound on the joint problem, and the steps that improve them.

    The joint program is solved without the steps for large ones up to ``exact_up_to`` stages times operations, and
    beside the search up to ``exact_beside``.
    """

    def __init__(
        self,
        graph: Graph,
        budget: int,
        limits: Limits,
        codes: Codes | None = None,
        start: Answer | None = None,
        exact_up_to: int = EXACT_UP_TO,
        exact_beside: int = EXACT_BESIDE,
    ) -> None:
        self.problem, self.budget, self.codes = CondensedChoices.of(graph, codes), budget, codes
        self.exact_up_to, self.exact_beside = exact_up_to, exact_beside
        self.incumbent = Incumbent(limits, bound=self.problem.least_cost)
        super().__init__(limits, self.incumbent)
        self.candidates = JointCandidates(self.problem, budget, codes, self.incumbent, self.limits)
        self.chosen_again: set[float] = set()  # costs of schedules whose implementations were chosen anew
        if start is not None:
            self.incumbent.keep(start.schedule)
            self.incumbent.raise_bound(start.lower_bound or 0.0)

    @property
    def settled(self) -> bool:
        """Whether the incumbent is proven optimal, or that there is none."""
        return self.incumbent.within(PROVEN / 10)

    def run(self) -> Answer:
        """Search until the answer is proven or the time is up."""
        if int(self.problem.least_memory.max()) > self.budget:
            return Answer(None, infeasible=True)
        self.tables = Tables(self.problem)
        self.relaxation = RelaxationWithChoices(self.tables, self.budget)
        self.windows = WindowSearch(self.problem, self.budget)
        if all(len(ways) <= 1 for ways in self.problem.ways) and self._solve_plain():
            return self.incumbent.answer()
        small = self.problem.graph.stages * self.problem.graph.n <= self.exact_up_to
        before = () if small else (self._plan_defaults,)
        near = () if small else (self._plan_near_budgets,)
        large = () if small else (self._search_defaults, self._change_choices, self._choose_again, self._alternate)
        steps = (*before, self._relax, self._plan_by_rules, *near, self._choose_again, *large)
        self.take((*steps, self._solve_exactly), self._switch_runs)  # those before may end with nothing left to search
        return self.incumbent.answer()

    def _switch_runs(self) -> None:
        """Runs of the best schedule in other implementations than the first run of their operation, where cheaper."""
        if self.incumbent.schedule is not None and not self.settled:
            self.incumbent.keep(switch_runs(self.incumbent.schedule, self.budget, self.codes))

    def _solve_plain(self) -> bool:
        """Where nothing is left to choose, solve the plain problem, which is the joint one; False if there is none."""
        choice = {k: ways[0].code for k, ways in enumerate(self.problem.ways) if ways}
        candidate = self.candidates.of(choice)
        if candidate is None:
            return False

        def hear(progress: Progress) -> None:
            if progress.schedule is not None:
                self.incumbent.keep(candidate.take(progress.schedule))
            self.incumbent.raise_bound(progress.lower_bound or 0.0)
            self.incumbent.tell(progress.doing)

        limits, bound = replace(self.limits, threads=1 + self.second_thread, report=hear), self.incumbent.bound
        answer = PlainSearch(candidate.condensed, self.budget, limits, None, bound).run()
        self.incumbent.keep(candidate.take(answer.schedule))
        self.incumbent.raise_bound(math.inf if answer.infeasible else answer.lower_bound or 0.0)
        return True

    def _plan_defaults(self) -> None:
        for rule in (default_or_leaner, default):
            if not self.over:
                self.candidates.plan(rule(self.tables), "planning with the default implementations")

    def _search_defaults(self) -> None:
        candidate = self.candidates.of(default_or_leaner(self.tables))
        if candidate is not None:
            self.candidates.search(candidate, _DEFAULT_ROUNDS)

    def _plan_by_rules(self) -> None:
        if self.incumbent.schedule is not None:
            self.candidates.plan_known()
        for rule in (default_or_leaner, cheapest, lightest, smallest):
            if not self.over:
                self.candidates.plan(rule(self.tables), f"planning with the {rule.__name__} implementations")

    def _plan_near_budgets(self) -> None:
        for choice in choices_near(self.tables, self.budget, _NEAR_BUDGETS, self.limits, _NEAR_COLUMNS):
            self.candidates.plan(choice, "planning with the implementations for other budgets")
            if self.settled:
                return

    def _relax(self) -> None:
        self.incumbent.tell("bounding from a few moments, with choices")
        improved = self.relaxation.improve(self.limits, False, self.incumbent.schedule, columns=_BOUNDING_COLUMNS)
        self.incumbent.raise_bound(improved.bound)
        self.candidates.plan(self.relaxation.best.choice(), "planning with the relaxation's implementations")

    def _change_choices(self) -> None:
        """Changes of the best choice after which walks cost less."""
        self.incumbent.tell("changing implementations")
        changes = min(_CHANGES, _CHANGED_OPERATIONS // self.problem.graph.n)
        for candidate in self.candidates.promising():
            chosen = dict(zip(candidate.selection.operations, candidate.selection.codes, strict=True))
            search = ChoiceSearch(self.tables, chosen, codes=self.codes)
            search.lower(self.budget)
            search.improve(changes, self.incumbent.bound, lambda: self.limits.over)
            self.candidates.plan(search.choice, "planning with changed implementations")

    def _bound_integrally(self) -> None:
        """Rounds of the integral relaxation, which only proves, for a share of the time at most."""
        limits = self.limits.share(_INTEGRAL_SHARE)
        self.incumbent.raise_bound(self.relaxation.improve(limits, True, self.incumbent.schedule).bound)

    def _solve_exactly(self) -> None:
        self.incumbent.tell("building the joint problem")
        limits = self.limits
        problem = JointProblem(self.problem, self.budget, Milp(limits.solver, limits.threads, relaxed=True))
        if problem.build(limits):
            for point in sorted(self.windows.points & problem.delta.keys()):
                problem.add_memory_row(*point)
            schedule, bound = problem.solve(limits, self.incumbent.schedule)
            self.incumbent.keep(schedule)
            self.incumbent.raise_bound(bound)

    def _choose_again(self) -> None:
        """The implementations of the best schedules of all choices anew; and a plan with the best of them."""
        self.incumbent.tell("choosing implementations for the best schedules")
        for schedule in self.candidates.best_schedules()[:_SCHEDULES]:
            if self.over:
                return
            if schedule.cost not in self.chosen_again:
                self.chosen_again.add(schedule.cost)
                self.incumbent.keep(self.windows.choose_again(schedule, self.limits))
        self.candidates.plan_known()

    def _alternate(self) -> None:
        """The integral relaxation beside windows and searches of the best choices; then these beside each other."""
        self._improve_beside(self._bound_integrally)
        if not self.over:
            self.candidates.plan(self.relaxation.best.choice(), "planning with the relaxation's implementations")
        graph = self.problem.graph
        if graph.stages * graph.n <= self.exact_beside and not self.settled:
            self._improve_beside(self._solve_exactly)
        while not self.over and not self._nothing_left():
            self._choose_again()
            self.beside(self.candidates.search_best, self._search_windows)

    def _nothing_left(self) -> bool:
        """Whether windows and searches of the best choices have come to their end."""
        return self.windows.nothing_left(self.incumbent.cost) and self.candidates.nothing_left

    def _improve_beside(self, proof: Callable[[], None]) -> None:
        """Windows and searches of the best choices, in turn, until a proof has ended; before it with one thread."""
        ended = Event()

        def prove() -> None:
            try:
                proof()
            finally:
                ended.set()

        def improve() -> None:
            turns = itertools.count() if self.second_thread else range(_TURNS)
            for _ in turns:
                if ended.is_set() or self.over or self._nothing_left():
                    break
                self._search_windows()
                self._choose_again()
                self.candidates.search_best()

        self.beside(prove, improve)

    def _search_windows(self) -> None:
        """Some windows of the incumbent, unless there is none left."""
        for _ in range(_WINDOWS_EACH):
            if self.incumbent.schedule is None or self.over or self.windows.nothing_left(self.incumbent.cost):
                break
            self.incumbent.keep(self.windows.advance(self.incumbent.schedule, self.limits))
            self._switch_runs()


def solve_monet(graph: Graph, budget: int, limits: Limits, implementations: str | Collection[str] = "all") -> Answer:
    """The cheapest schedule within the budget with an implementation chosen for every run.

    ``implementations`` is "all"; "exact", those whose results are bit-equal; or names or kinds. Defaults are always
    among them; the lower bound is about schedules of these implementations.

    Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), for the choice of implementations.
    """
    return improve_monet(graph, budget, Answer(None), limits, implementations)


def improve_monet(
    graph: Graph, budget: int, start: Answer, limits: Limits, implementations: str | Collection[str] = "all"
) -> Answer:
    """The same search from what is known of schedules of these implementations, never worse than that."""
    return JointSearch(graph, budget, limits, allowed_codes(graph, implementations), start).run()


METHOD = Method(
    solve_monet,
    "an anytime search, with a lower bound, for the schedule and the implementation of every run together",
    "Shah et al. 2021 for the problem, with gradients recomputed, too",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("implementations",),
    choices=Support.YES,
    compiled_search=True,
    threads=2,  # the second one searches beside the bounds
    improve=improve_monet,
    complete=True,
    background_sweep=BackgroundSweep.ALWAYS,
    symbol="square",
)
