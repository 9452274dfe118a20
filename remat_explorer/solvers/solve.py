"""One call for every strategy: parse the budget, run it, check what it claims, and say how good it is.

Of a budget of reserved bytes the answer is the cheapest schedule found for which PyTorch's allocator takes no more.
What it reserves for a schedule is known only once there is a schedule, so the strategy is asked for several budgets of
requested bytes: at first for the whole budget, then for less by what the schedule reserved too much, and then in the
widest gap between what was asked for, above the largest budget that fits: below it nothing is cheaper. Every schedule
that the strategy tells of on its way is looked at.

Reserved bytes are never below requested bytes, so the lower bound of the first question, and that a budget is
infeasible, hold for the second, too. More is not proven: fewer requested bytes may reserve more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any, overload

from remat_explorer.allocator import reserved_of
from remat_explorer.checker import check_schedule
from remat_explorer.entry_checks import Seconds, Threads, require_arguments
from remat_explorer.errors import ScheduleError, SolverError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.offload import Transfers, TransferSolution
from remat_explorer.plan import Plan
from remat_explorer.quantities import exact_bytes, format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.bounds.merged_stages import cost_step
from remat_explorer.solvers.cache import (
    Question,
    known_answer,
    known_plans,
    load_plan,
    load_solution,
    no_worse,
    store_or_warn,
)
from remat_explorer.solvers.memory.minimum_budget import Budget, budget_of, fall_back_on_smallest
from remat_explorer.solvers.milp import backend
from remat_explorer.solvers.registry import STRATEGIES, threads_of
from remat_explorer.solvers.search.planner import load_search
from remat_explorer.solvers.solution import (
    REFUTED,
    REQUESTED,
    RESERVED,
    Solution,
    Status,
    is_proven_infeasible,
    proven_status,
    require_meaning,
)
from remat_explorer.solvers.solver_interface import PROVEN, TRANSFER_STRATEGIES, Answer, Limits, Progress, cores


@overload
def solve(
    graph: Graph,
    budget: Budget,
    strategy: str = "optimal",
    time_limit: Seconds = 60.0,
    solver: str = "highs",
    threads: Threads | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    cache: bool = False,
    budget_means: str = REQUESTED,
    transfers: None = None,
    **options: Any,
) -> Solution: ...
@overload
def solve(
    graph: Graph,
    budget: Budget,
    strategy: str = "optimal",
    time_limit: Seconds = 60.0,
    solver: str = "highs",
    threads: Threads | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    cache: bool = False,
    budget_means: str = REQUESTED,
    *,
    transfers: Transfers,
    **options: Any,
) -> TransferSolution: ...
def solve(
    graph: Graph,
    budget: Budget,
    strategy: str = "optimal",
    time_limit: Seconds = 60.0,
    solver: str = "highs",
    threads: Threads | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    cache: bool = False,
    budget_means: str = REQUESTED,
    transfers: Transfers | None = None,
    **options: Any,
) -> Solution | TransferSolution:
    """The cheapest schedule of ``graph`` within ``budget`` that a strategy finds in time, checked.

    "optimal" and "infeasible" speak of the strategy's class of schedules: for "optimal", those that compute operation t
    for the first time in stage t, and in each stage run operations in ascending order, each at most once. Where outputs
    take over the storage of inputs, a stage of several parts may fit into less: see
    `remat_explorer.solvers.methods.checkmate_ilp`.

    Args:
        graph: the training graph.
        budget: bytes, "1.5 GiB", or "60%" of the checkpoint-all peak; "smallest", the smallest with a known schedule,
            or "40% of the way" from there to that peak; or what `minimum_budget` gave. Resident bytes (parameters)
            are included.
        strategy: a key of `STRATEGIES`.
        time_limit: seconds of wall time; loading the strategy and compiling the search, once on a machine,
            are no part of them. Where the smallest budget is asked for, looking for it counts, which takes about three
            seconds, but half of the limit is left for the strategy.
        solver: a key of `BACKENDS`.
        threads: threads of the solver; None for as many as the strategy uses (`Method.threads`) and there are cores.
        on_progress: called in this thread with each `Progress`.
        cancelled: asked between steps; a running MILP is not interrupted (`SolveJob` does that).
        cache: take a kept answer from the user's cache folder if it is as good as a new one, and keep a new one there.
            Its `seconds` are those of the solve that found it; ``on_progress`` hears "found in the cache". A strategy
            that claims to find the cheapest schedule also begins with the cheapest one that is kept for the graph and
            fits, and returns none that costs more.
        budget_means: "requested", the bytes that tensors and workspace have, or "reserved", what PyTorch's allocator
            on a GPU is predicted to take from the driver for them, with the settings of this process. The second asks
            for several budgets within the time limit, and never gives a schedule that reserves more. Its bound is that
            of the first, which nothing that fits can undercut.
        transfers: what copies to the host and back take; then the strategy is one of `TRANSFER_STRATEGIES`, such as
            "offload", and the answer is a plan with a makespan and a bound of its own. With ``cache``, a search's plan
            takes no longer than any that is kept of the graph for as little memory, whatever link it was found for.
        options: of the strategy, such as its knob (`Method.arguments` lists them).

    Raises:
        QuantityError: if the budget cannot be read, or begins at "smallest" in reserved bytes.
        UnknownNameError: if there is no such strategy, solver or meaning of a budget.
        ScheduleError: if a schedule of the strategy is wrong, or costs less than its bound: a bug.
        SolverError: if the solver fails, or the graph has operations with several implementations, or optional ones,
            that the strategy does not take, or the strategy is not for this graph, or does not have such an option.

    >>> from remat_explorer.instances import linear
    >>> solution = solve(linear(8), budget=4)
    >>> str(solution.status), solution.cost, solution.lower_bound, solution.peak
    ('optimal', 26.0, 26.0, 4)

    Sent and fetched in time, nothing has to be computed again:

    >>> solution = solve(linear(4), budget=4, strategy="offload", transfers=Transfers(out=1.0, back=1.0))
    >>> str(solution.status), solution.cost, solution.lower_bound
    ('optimal', 9.0, 9.0)
    """
    require_arguments(solve, locals())
    if transfers is not None or strategy in TRANSFER_STRATEGIES:
        if transfers is None:
            raise SolverError(
                f"the strategy {strategy!r} needs transfers, such as transfers=Transfers(out=25e9, back=25e9)"
            )
        if options or budget_means != REQUESTED:
            given = ", ".join(options) or f"budget_means={budget_means!r}"
            raise SolverError(f"a solve with transfers does not take {given}")
        sending = (transfers, time_limit, solver, threads, on_progress, cancelled, cache)
        return solve_sending_from((), graph, budget, strategy, *sending)
    asked = (graph, budget, strategy, time_limit, solver, threads, on_progress, cancelled, cache, budget_means)
    return solve_from(Answer(None), *asked, **options)


def solve_sending_from(
    known: Iterable[TransferSolution],
    graph: Graph,
    budget: Budget,
    strategy: str,
    transfers: Transfers,
    time_limit: float,
    solver: str = "highs",
    threads: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    cache: bool = False,
) -> TransferSolution:
    """`solve` where values may be sent, from what the caller knows of the graph with any budget and transfers."""
    backend(solver)
    budget_bytes = budget_of(graph, budget, cache)
    threads = min(2, cores()) if threads is None else threads
    report, asked_to_stop = on_progress or (lambda progress: None), cancelled or (lambda: False)
    question = Question(graph, budget_bytes, strategy, solver, time_limit, threads, transfers=transfers)
    known = [*known, *(known_plans(question) if cache else ())]
    if cache and (kept := load_plan(question, known)) is not None:
        report(Progress(0.0, "found in the cache"))
        return kept
    load_search(report)
    limits = Limits(time_limit, solver, threads, report, asked_to_stop)
    from remat_explorer.solvers.offload import solve_with_transfers  # which loads the compiled search

    solution = solve_with_transfers(graph, budget_bytes, strategy, transfers, limits, known)
    if cache:
        store_or_warn(question.within(solution.seconds) if asked_to_stop() else question, solution)
    return solution


def solve_from(
    known: Answer,
    graph: Graph,
    budget: Budget,
    strategy: str,
    time_limit: float,
    solver: str,
    threads: int | None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    cache: bool = False,
    budget_means: str = REQUESTED,
    **options: Any,
) -> Solution:
    """`solve`, from a schedule and a lower bound that the caller knows of; None for either."""
    if strategy not in STRATEGIES:
        raise UnknownNameError("strategy", strategy, STRATEGIES)
    method = STRATEGIES[strategy]
    method.require_arguments(strategy, list(options))
    method.require_graph(strategy, graph)
    backend(solver)
    require_meaning(budget_means, budget)
    begin = time.monotonic()
    budget_bytes = budget_of(graph, budget, cache)
    looked = min(time.monotonic() - begin, time_limit / 2)
    report = checked_reports(graph, budget_bytes, on_progress) if on_progress else lambda progress: None
    threads = threads_of(strategy, threads)
    meant = {} if budget_means == REQUESTED else {"budget_means": budget_means}
    question = Question(graph, budget_bytes, strategy, solver, time_limit, threads, options | meant)
    if cache and (kept := load_solution(question)) is not None:
        report(Progress(0.0, "found in the cache", kept.schedule, kept.lower_bound))
        return kept
    start = known_answer(question, known, cache)
    smallest = method.smallest_budget(graph)
    possible = budget_bytes >= smallest and not is_proven_infeasible(graph, strategy, budget_bytes)
    if possible:
        method.load()
    if possible and method.compiled_search:
        load_search(report)
    if start.schedule is not None:
        report(Progress(0.0, "beginning with the best known schedule", start.schedule, start.lower_bound))
    limits = Limits(time_limit, solver, threads, report, cancelled or (lambda: False), time.monotonic() - looked)
    if not possible:
        answer = Answer(None, infeasible=True)
    elif budget_means == RESERVED:
        answer = within_reserved(
            budget_bytes, limits, lambda asked, part: method(graph, asked, part, **options), smallest
        )
    elif method.improve is not None and (start.schedule, start.lower_bound) != (None, None):
        answer = method.ended(method.improve(graph, budget_bytes, start, limits, **options), limits)
    else:
        answer = method(graph, budget_bytes, limits, **options)
    solution = no_worse(judge(graph, budget_bytes, strategy, answer, limits.elapsed), start.schedule)
    if budget_means == REQUESTED:
        solution = fall_back_on_smallest(solution, budget, options.get("implementations", "all"))
    if cache:
        store_or_warn(question.within(solution.seconds) if limits.cancelled() else question, solution)
    return solution


def checked_reports(graph: Graph, budget: int, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """``report``, called with schedules that have passed the checker only: nobody sees another."""
    passed: list[Schedule | None] = [None]

    def tell(progress: Progress) -> None:
        if progress.schedule is not passed[0] and progress.schedule is not None:
            try:
                check_schedule(progress.schedule, budget)
            except ScheduleError as error:
                raise ScheduleError(f"the strategy's schedule is refused: {error}") from None
            passed[0] = progress.schedule
        report(progress)

    return tell


def judge(graph: Graph, budget: int, strategy: str, answer: Answer, seconds: float) -> Solution:
    """The solution of a strategy's answer: its schedule checked, its bound rounded, its status computed."""
    checked = None if answer.schedule is None else check_schedule(answer.schedule, budget)
    cost, schedule = (None, None) if checked is None else (checked.cost, checked.schedule)
    if cost is not None and answer.lower_bound is not None and answer.lower_bound > cost + REFUTED * (cost or 1.0):
        raise ScheduleError(
            f"the strategy {strategy!r} says that no schedule costs less than {answer.lower_bound:.6g}, but its own "
            f"costs {cost:.6g}"
        )
    status, bound = proven_status(cost, round_up(graph, answer.lower_bound), answer.infeasible)
    limit = answer.limit if status in (Status.FEASIBLE, Status.UNKNOWN) else ""
    return Solution(graph, strategy, status, budget, schedule, bound, seconds, answer.solver, limit)


def round_up(graph: Graph, bound: float | None) -> float | None:
    """A lower bound, raised to the next cost that a schedule can have where all costs are integers."""
    if bound is None or not math.isfinite(bound):
        return None
    step = cost_step(graph)
    if step:
        return step * math.ceil(bound / step - max(PROVEN, PROVEN * bound / step))
    return float(bound)


MOST_SOLVES = 12
STEP = 1 / 512  # share of the budget by which budgets of requested bytes differ at least


def explain_unfit(solution: Solution) -> str:
    """Why there is no schedule whose reserved bytes fit, and what to do, in words."""
    ended = f" before it was ended by {solution.limit}" if solution.limit else ""
    return (
        f"{solution.strategy!r} found no schedule for which PyTorch's allocator reserves at most "
        f"{exact_bytes(solution.budget)}{ended}; give more, a larger time limit, or expandable segments "
        "(PYTORCH_ALLOC_CONF=expandable_segments:True), which waste less"
    )


def within_reserved(
    budget: int, limits: Limits, solve_at: Callable[[int, Limits], Answer], smallest: int = 0
) -> Answer:
    """The best answer whose schedule reserves at most ``budget`` bytes; at most `MOST_SOLVES` solves share the time.

    The budget is reserved bytes, as predicted for the allocator's settings in this process; ``solve_at`` answers for
    requested bytes, not below ``smallest``.
    """
    found, step = _Found(budget, limits), max(2, round(budget * STEP))
    asked, below, tried = budget, smallest - 1, [budget + 1]
    solves, solver, ended = 0, "", ""
    while solves < MOST_SOLVES:
        solves += 1
        answer = solve_at(asked, found.heard(limits.share(1 / 3 if tried[1:] else 1 / 2), asked, solves == 1))
        if solves == 1:
            if answer.infeasible:
                return answer
            found.bound, solver, ended = answer.lower_bound, answer.solver, answer.limit
        tried.append(asked)
        if answer.schedule is None or found.offer(answer.schedule):
            below = max(below, asked)  # what is cheaper needs more
        wide, asked = _widest(sorted({below, *(point for point in tried if point > below)}))
        if limits.over or found.proven or wide <= step:
            break
        lowest = min(tried)
        if lowest - below > 8 * step and answer.schedule is not None:  # nothing that was asked for has fitted
            less = Plan.peak_of(answer.schedule) - (reserved_of(answer.schedule) - budget)
            asked = less if below < less < lowest - step else (below + lowest) // 2
    limit = ended if solves == 1 and found.best is not None else ""
    limit = limit or limits.reached or f"the end of {solves} solves for budgets of requested bytes"
    if found.best is None and found.least is not None:
        limit += f", in which the least reserved bytes of a schedule were {format_bytes(found.least)}"
    return Answer(found.best, found.bound, solver=solver, limit=limit)


def _widest(points: list[int]) -> tuple[int, int]:
    """The width and the middle of the widest gap between points in ascending order."""
    return max((right - left, (left + right) // 2) for left, right in pairwise(points))


class _Found:
    """The cheapest schedule that fits, among those that were offered, and the bound.

    ``bound`` is that of the first question, which holds for every schedule that fits; ``least`` is the fewest reserved
    bytes of any.
    """

    def __init__(self, budget: int, limits: Limits) -> None:
        self.best: Schedule | None = None
        self.bound: float | None = None
        self.least: int | None = None
        self._budget, self._limits = budget, limits

    @property
    def proven(self) -> bool:
        """Whether nothing that fits can be cheaper."""
        return self.best is not None and self.bound is not None and self.best.cost * (1 - PROVEN) <= self.bound

    def offer(self, schedule: Schedule) -> bool:
        """Take a schedule that fits and is cheaper; whether it fits."""
        reserved = reserved_of(schedule)
        self.least = reserved if self.least is None else min(self.least, reserved)
        fits = reserved <= self._budget
        if fits and (self.best is None or schedule.cost < self.best.cost):
            self.best = schedule
        return fits

    def heard(self, limits: Limits, asked: int, first: bool) -> Limits:
        """``limits``, which report what fits, and the bound of the first question, in place of everything."""

        def report(progress: Progress) -> None:
            if progress.schedule is not None:
                self.offer(progress.schedule)
            if first and progress.lower_bound is not None:
                self.bound = max(progress.lower_bound, self.bound or progress.lower_bound)
            doing = f"{progress.doing}, at {format_bytes(asked)} requested"
            limits.report(replace(progress, doing=doing, schedule=self.best, lower_bound=self.bound))

        return replace(limits, report=report)
