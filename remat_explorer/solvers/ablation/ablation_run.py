"""An ablation: the joint problem with no kind of implementations, with each alone, and with all together.

Smaller sets come first, and small budgets before large ones, so that a search begins with the cheapest schedule that
any smaller set or budget has; bounds go the other way once all is done. Every schedule passes the checker.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from remat_explorer.capture_options import KINDS
from remat_explorer.entry_checks import Seconds, Threads, require_arguments
from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_seconds
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.ablation.ablation_result import Ablation, Kinds, SmallestBudget, kinds_name, sets_of
from remat_explorer.solvers.anytime_search.monet import improve_monet
from remat_explorer.solvers.cache import Question, load_solution, store_or_warn
from remat_explorer.solvers.memory.lowest_peak import least_with_choices
from remat_explorer.solvers.memory.minimum_budget import budgets_of, require_count, spaced_budgets
from remat_explorer.solvers.milp import backend
from remat_explorer.solvers.monet.condensed_choices import allowed_codes
from remat_explorer.solvers.registry import STRATEGIES, threads_of
from remat_explorer.solvers.search.planner import load_search
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.solve import judge
from remat_explorer.solvers.solver_interface import Answer, Limits, checkpoint_all_peak
from remat_explorer.solvers.sweeps.own_points import assess_schedule, unknown_point

STRATEGY = "monet"


@dataclass(frozen=True)
class AblationProgress:
    """How far an ablation is.

    Attributes:
        seconds: since it began.
        done: parts that are done: the smallest budget of each set of kinds, and each of its points.
        parts: all of them.
        kinds: name of the set that is worked on, "none" and "all" among them.
        budget: bytes of the point that is worked on, or None for the smallest budget.

    >>> print(AblationProgress(3.0, 2, 12, "masks", 2**30))
    2 of 12, 3.0 s: masks within 1.00 GiB
    """

    seconds: float
    done: int
    parts: int
    kinds: str
    budget: int | None

    def __str__(self) -> str:
        doing = "the smallest budget" if self.budget is None else f"within {format_bytes(self.budget)}"
        return f"{self.done} of {self.parts}, {format_seconds(self.seconds)}: {self.kinds} {doing}"


def ablation(
    graph: Graph,
    budgets: int | Sequence[str | int | float] = 5,
    kinds: str | Iterable[str] | None = None,
    *,
    time_limit: Seconds = 10.0,
    solver: str = "highs",
    threads: Threads | None = None,
    on_progress: Callable[[AblationProgress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    cache: bool = False,
) -> Ablation:
    """What each kind of implementations is worth: costs by set of kinds and budget, and each set's smallest budget.

    Args:
        graph: captured with alternatives: ``capture(..., implementations="all")``.
        budgets: how many, spaced from the smallest budget with a known schedule to the peak of keeping everything; or a
            list of what `solve` takes.
        kinds: those to try, none, each alone, and all together; None for all that the graph has.
        time_limit: seconds of wall time, at most, for each point, and for each set's smallest budget.
        solver: a key of `BACKENDS`.
        threads: threads of the solver; None for two where there are two cores.
        on_progress: called in this thread before each part, and once at the end.
        cancelled: asked between steps; once True, what is known by then is returned.
        cache: take points from the user's cache folder, and keep new ones there, as `solve` does.

    Returns:
        The table; each solution has a lower bound that holds for its set of kinds.

    Raises:
        QuantityError: if a budget cannot be read.
        UnknownNameError: if the graph has no such kind, or there is no such solver.
        SolverError: if the graph was captured without a kind.

    Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), appendix D and Figure 6.
    """
    require_arguments(ablation, locals())
    backend(solver)
    every = graph.kinds if kinds is None else tuple(dict.fromkeys([kinds] if isinstance(kinds, str) else kinds))
    for kind in every:
        if kind not in (*graph.kinds, *KINDS):
            raise UnknownNameError("kind of implementations", kind, graph.kinds)
    allowed_codes(graph, every)  # which refuses kinds that were not captured
    sizes = require_count(budgets) if isinstance(budgets, int) else None
    given = [] if isinstance(budgets, int) else [budgets] if isinstance(budgets, str) else budgets
    fixed = budgets_of(graph, given) if sizes is None else []
    load_search()
    run = _Run(graph, every, sizes or len(fixed), Limits(time_limit, solver, threads_of(STRATEGY, threads)), cache)
    run.on_progress, run.cancelled = on_progress, cancelled or (lambda: False)
    for chosen in run.sets:
        run.find_smallest(chosen)
    if sizes is not None:
        least = min((smallest.known_feasible for smallest in run.smallest.values()), default=checkpoint_all_peak(graph))
        fixed = spaced_budgets(least, checkpoint_all_peak(graph), sizes)
    for chosen in run.sets:
        for budget in fixed:
            run.solve(chosen, budget)
    run.tell(run.sets[-1], None)
    points = {(chosen, budget): run.known(chosen, budget) for chosen in run.sets for budget in fixed}
    return Ablation(graph, every, tuple(fixed), points, run.smallest_shared(), run.elapsed)


class _Run:
    """What is known so far, of all sets and budgets."""

    def __init__(self, graph: Graph, kinds: Kinds, count: int, limits: Limits, cache: bool) -> None:
        self.graph, self.kinds, self.sets = graph, kinds, sets_of(kinds)
        self.limits, self.cache = limits, cache
        self.on_progress: Callable[[AblationProgress], None] | None = None
        self.cancelled: Callable[[], bool] = lambda: False
        self.smallest: dict[Kinds, SmallestBudget] = {}
        self._begun, self._done, self._parts = time.monotonic(), 0, len(self.sets) * (1 + count)
        self._schedules: list[tuple[Kinds, int, Schedule]] = []  # set, peak, checked schedule
        self._bounds: list[tuple[Kinds, int, float]] = []  # set, budget, no schedule costs less; infinite if none fits
        self._points: dict[tuple[Kinds, int], Solution] = {}

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begun

    def tell(self, kinds: Kinds, budget: int | None) -> None:
        if self.on_progress is not None:
            name = kinds_name(kinds, self.kinds)
            self.on_progress(AblationProgress(self.elapsed, self._done, self._parts, name, budget))

    def find_smallest(self, kinds: Kinds) -> None:
        """The smallest budget of a set, from what smaller sets are known to do with."""
        if self.cancelled():
            return
        self.tell(kinds, None)
        candidates = [(peak, schedule) for own, peak, schedule in self._schedules if set(own) <= set(kinds)]
        start = min(candidates, key=lambda entry: entry[0])[1] if candidates else None
        least = least_with_choices(self.graph, self.limits.time_limit, kinds, start, self.cancelled)
        self.smallest[kinds] = SmallestBudget(least.lower_bound, least.schedule)
        self._schedules.append((kinds, self.smallest[kinds].known_feasible, least.schedule))
        self._bounds.append((kinds, least.lower_bound - 1, math.inf))
        self._done += 1

    def solve(self, kinds: Kinds, budget: int) -> None:
        """One point, unless what is known of others says all about it."""
        start = self.known(kinds, budget)
        if self.cancelled():
            return
        self.tell(kinds, budget)
        self._done += 1
        if start.status in (Status.OPTIMAL, Status.INFEASIBLE):
            return
        limits = Limits(
            self.limits.time_limit, self.limits.solver, self.limits.threads, cancelled=self.cancelled
        )  # the clock begins here
        options = {"implementations": kinds}
        question = Question(self.graph, budget, STRATEGY, limits.solver, limits.time_limit, limits.threads, options)
        solution = load_solution(question) if self.cache else None
        if solution is None:
            answer = improve_monet(self.graph, budget, Answer(start.schedule, start.lower_bound), limits, kinds)
            ended = STRATEGIES[STRATEGY].ended(answer, limits)
            solution = judge(self.graph, budget, STRATEGY, ended, limits.elapsed)
            if self.cache:
                store_or_warn(question.within(solution.seconds) if self.cancelled() else question, solution)
        self._points[kinds, budget] = solution
        if solution.schedule is not None:
            self._schedules.append((kinds, Plan.of(solution.schedule).peak, solution.schedule))
        infeasible = solution.status is Status.INFEASIBLE
        self._bounds.append((kinds, budget, math.inf if infeasible else solution.lower_bound or 0.0))

    def known(self, kinds: Kinds, budget: int) -> Solution:
        """What everything that was found says of a point."""
        fitting = [s for own, peak, s in self._schedules if set(own) <= set(kinds) and peak <= budget]
        schedule = min(fitting, key=lambda s: s.cost, default=None)
        bounds = [bound for own, size, bound in self._bounds if set(own) >= set(kinds) and size >= budget]
        bound = max(bounds, default=0.0)
        like = self._points.get((kinds, budget)) or unknown_point(self.graph, STRATEGY, budget)
        finite = max((bound for bound in bounds if math.isfinite(bound)), default=None)
        return assess_schedule(like, budget, schedule, finite or None, math.isinf(bound))

    def smallest_shared(self) -> dict[Kinds, SmallestBudget]:
        """The smallest budget of each set: the leanest schedule and the highest bound of all that hold for it."""
        shared = {}
        for kinds in self.smallest:
            fitting = [(peak, s.cost, s) for own, peak, s in self._schedules if set(own) <= set(kinds)]
            infeasible = [size for own, size, bound in self._bounds if set(own) >= set(kinds) and math.isinf(bound)]
            schedule = min(fitting, key=lambda entry: entry[:2])[2]
            shared[kinds] = SmallestBudget(min(max(infeasible) + 1, Plan.of(schedule).peak), schedule)
        return shared
