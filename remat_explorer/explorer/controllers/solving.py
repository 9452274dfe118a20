"""Solve in a process of its own, show every incumbent, keep its history, and say how good the result is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from remat_explorer.errors import SolverError
from remat_explorer.explorer.controllers.screen import (
    SENDS,
    add_to_frontier,
    describe_best_known,
    describe_rate,
    describe_result,
    rules_out,
    show_best_known,
    show_schedule,
    update_auto_selection,
)
from remat_explorer.explorer.state.state import HistoryPoint, State
from remat_explorer.explorer.state.strategy_choice import SolveRequest, describe_strategy, remark_on, solve_request
from remat_explorer.figures import schedule_of
from remat_explorer.graph import Graph
from remat_explorer.offload import TransferSolution, status_of
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import (
    STRATEGIES,
    Answer,
    Frontier,
    Progress,
    Solution,
    Status,
    default_strategy,
    method_of,
    solve_sending_from,
)

MAX_HISTORY = 400  # moments that are kept of one solve
_STAYS = "The screen shows the schedule from before."
POLL = 0.1  # seconds; also how long Cancel may go unheard


def solve(state: State, cancelled: threading.Event) -> None:
    """Solve the state's graph within its budget; incumbents and the result appear in the state.

    What was solved before comes from the cache, and nothing is searched for within a budget that is known to be too
    small. A strategy that claims to find the cheapest schedule begins with the best one that is known for the budget,
    and the screen never shows one that is dearer. An infeasible budget leaves the schedule on the screen as it is, and
    so does an answer for kinds of implementations that are no longer the chosen ones: it joins the trade-off curve.
    """
    from remat_explorer.solvers import SolveJob

    graph, budget, kinds = state.graph, state.budget, state.kinds
    if graph is None:
        state.say("There is no model to solve for yet.", "warning")
        return
    if state.transfers is not None:
        solve_sending(state, graph, cancelled)
        return
    state.say(f"Searching {state.model} within {format_bytes(budget)}: starting {state.strategy}…")
    state.history = ()
    limits = {"time_limit": state.time_limit, "solver": state.solver}
    request = solve_request(state, _options(state))
    if rules_out(state, budget) and _seeks_optimum(state):
        _finish(state, Solution(graph, state.strategy, Status.INFEASIBLE, budget, None, None, 0.0), False, False)
        return
    known = warm_start(state, request, budget)
    settings = {**limits, **request.options}
    job = SolveJob.start(request.graph, budget, state.strategy, cache=True, known=known, **settings)
    shown = None
    try:
        while not job.done:
            if cancelled.wait(POLL):
                job.cancel()
                break
            reports = _on_graph(request, job.poll())
            with state.lock:  # other kinds may be chosen meanwhile, and what is known for them is on the screen then
                shown = _record(state, reports, shown) if state.kinds == kinds else shown
        last_reports = _on_graph(request, job.poll())
        solution = request.solution_on_graph(job.solution())
        before = state.frontier
        add_to_frontier(state, graph, [solution], kinds=request.kinds)
        was_known = solution.schedule is not None and solution.status is Status.OPTIMAL and job.was_known
        known_words = "its schedule was known before" if was_known else ""
        remarks = [remark for remark in (remark_on(graph, solution), known_words, *job.remarks) if remark]
        with state.lock:
            if state.kinds == kinds:
                _record(state, last_reports, shown)
                shown_answer = request.without_unproven_bound(solution, kinds)
                cheaper = _cheaper(state, _best_within(before, budget), shown_answer)
                _finish(state, shown_answer, cancelled.is_set(), job.from_cache, remarks, bool(job.remarks), cheaper)
    finally:
        prepare_process()


def solve_sending(state: State, graph: Graph, cancelled: threading.Event) -> None:
    """Look for the fastest plan that may send values, from what is known; the best is shown.

    A plan that sends nothing is a schedule of the trade-off curve, with the bound of all plans.
    """
    budget, transfers = state.budget, state.transfers
    begins = f"Searching within {format_bytes(budget)}, {transfers.describe()}"
    state.say(f"{begins}: starting…")
    state.history = ()
    best = _best_within(state.frontier, budget)
    plain = [] if best is None or best.schedule is None or not best.schedule.is_frontier_advancing else [best.schedule]
    found = solve_sending_from(
        [*state.known_sending, *(TransferSolution.of_schedule(schedule, SENDS, budget) for schedule in plain)],
        graph,
        budget,
        SENDS,
        transfers,
        state.time_limit,
        state.solver,
        on_progress=lambda progress: state.say(f"{begins}: {progress.doing}"),
        cancelled=cancelled.is_set,
        cache=True,
    )
    if found.plan is not None and not found.plan.sent_bytes:
        schedule, name = schedule_of(found.plan), default_strategy(graph)
        like = Solution(graph, name, found.status, budget, schedule, found.lower_bound, found.seconds, found.solver)
        add_to_frontier(state, graph, [replace(like, limit=found.limit)])
    with state.lock:
        if state.graph is not graph:
            return
        state.known_sending = (*state.known_sending, found)
        if found.plan is None and found.status is Status.INFEASIBLE:
            state.say(f"Nothing fits into {format_bytes(budget)}, even if values are sent. {_STAYS}", "error")
        elif found.plan is None:
            state.say(
                f"No plan was found within {format_bytes(budget)}. Give it more time or memory. {_STAYS}", "warning"
            )
        if found.plan is None or state.budget != budget:
            return
        best = show_best_known(state)
        if state.sending is None and best is not None:
            state.say(*_describe_nothing_sent(best, found))
        update_auto_selection(state)


def _describe_nothing_sent(best: Solution, found: TransferSolution) -> tuple[str, str]:
    """A schedule in one line that no known plan with transfers is faster than, and the line's tone."""
    advancing = best.schedule is not None and best.schedule.is_frontier_advancing  # what the bound speaks of
    proven = advancing and status_of(best.cost, found.lower_bound) is Status.OPTIMAL
    which = "no plan that sends values is faster (proven)" if proven else "no faster plan that sends values is known"
    rate = describe_rate(found.transfers, found.graph)
    return f"{describe_best_known(best)} · nothing is sent: at {rate} {which}", "good" if proven else "plain"


def warm_start(state: State, request: SolveRequest, budget: int) -> Answer:
    """What is known of a request on the state's graph: the curve's schedule and bound, or that on the screen.

    Where the strategy is asked about default implementations alone, or for implementations by name, the curve is about
    others.
    """
    if request.selection is not None:
        return Answer(None)
    best, shown = _best_within(state.frontier, budget), state.schedule
    schedules = [] if best is None or best.schedule is None else [best.schedule]
    if shown is not None and shown.graph is state.graph and Plan.peak_of(shown) <= budget:
        schedules.append(shown)
    bound = best.lower_bound if best is not None and request.kinds == state.kinds else None
    return Answer(min(schedules, key=lambda schedule: schedule.cost, default=None), bound)


def prepare_process() -> None:
    """Start the next solve's process now; what keeps it from starting is said by the solve that needs it."""
    from remat_explorer.solvers import SolveJob

    with contextlib.suppress(SolverError):
        SolveJob.prepare()


def extend_history(history: tuple[HistoryPoint, ...], progress: Progress) -> tuple[HistoryPoint, ...]:
    """The history with one more report.

    Of a stretch in which nothing changed the first and the last moment stay; beyond `MAX_HISTORY` every other one goes,
    but for the first and the last.

    >>> history = ()
    >>> for second in range(5):
    ...     history = extend_history(history, Progress(second, "searching", lower_bound=3.0 if second > 3 else 2.0))
    >>> [(moment.seconds, moment.lower_bound) for moment in history]
    [(0, 2.0), (3, 2.0), (4, 3.0)]
    """
    moment = HistoryPoint(progress.seconds, progress.cost, progress.lower_bound)
    last = history[-2:]
    if len(last) == 2 and all((m.cost, m.lower_bound) == (moment.cost, moment.lower_bound) for m in last):
        history = history[:-1]
    if len(history) >= MAX_HISTORY:
        history = (history[0], *history[2:-1:2], history[-1])
    return (*history, moment)


def _seeks_optimum(state: State) -> bool:
    """Whether the strategy is asked for the cheapest schedule of all, not for one of its own kind."""
    method, graph = method_of(state.strategy), state.graph
    by_name = graph is not None and graph.has_choices and "implementations" in state.options
    return method is not None and graph is not None and method.proves_infeasible(graph) and not by_name


def _best_within(frontier: Frontier | None, budget: int) -> Solution | None:
    """The best known solution within a budget, if there is one."""
    return None if frontier is None else frontier.best(budget)


def _options(state: State) -> dict[str, Any]:
    """The settings of the strategy.

    Raises:
        RematError: if there is no such strategy, or it has no such option.
    """
    if state.options and state.strategy in STRATEGIES:
        STRATEGIES[state.strategy].require_arguments(state.strategy, list(state.options))
    return dict(state.options)


def _on_graph(request: SolveRequest, reports: Sequence[Progress]) -> list[Progress]:
    """Reports with their schedules on the state's graph."""
    return [
        report if report.schedule is None else replace(report, schedule=request.schedule_on_graph(report.schedule))
        for report in reports
    ]


def _record(state: State, reports: Sequence[Progress], shown: Schedule | None) -> Schedule | None:
    """Note all reports and show the last, which holds the best of those before it; returns its schedule."""
    history = state.history
    for report in reports:
        history = extend_history(history, report)
    state.history = history
    for report in reports[-1:]:
        _show(state, report, report.schedule is not shown)
        shown = report.schedule
    return shown


def _show(state: State, progress: Progress, is_better: bool) -> None:
    if progress.schedule is not None and is_better and not _is_dearer(state, progress.schedule):
        show_schedule(state, progress.schedule, None)
    words = [f"Searching within {format_bytes(state.budget)}: {progress.doing}"]
    if progress.schedule is not None:
        words.append(f"best so far {format_overhead(progress.schedule.overhead)}")
    if progress.lower_bound is not None and state.graph is not None and state.graph.total_cost:
        words.append(f"bound {format_overhead(progress.lower_bound / state.graph.total_cost)}")
    if progress.gap is not None:
        words.append(f"gap {format_share(progress.gap)}")
    state.say(" · ".join(words))


def _is_dearer(state: State, schedule: Schedule) -> bool:
    """Whether the screen shows a cheaper schedule within the budget, and the strategy is asked for the cheapest."""
    shown = state.schedule
    return (
        _seeks_optimum(state)
        and shown is not None
        and shown.graph is schedule.graph
        and Plan.peak_of(shown) <= state.budget
        and shown.cost < schedule.cost
    )


def _cheaper(state: State, best: Solution | None, answer: Solution) -> Solution | None:
    """What was known before, if a strategy that is asked for the cheapest schedule has a dearer one or none.

    That happens where what is known is none of the strategy's schedules.
    """
    if best is None or best.cost is None or not _seeks_optimum(state):
        return None
    return best if answer.cost is None or best.cost < answer.cost else None


def _finish(
    state: State,
    solution: Solution,
    was_cancelled: bool,
    from_cache: bool,
    remarks: Sequence[str] = (),
    is_warning: bool = False,
    cheaper: Solution | None = None,
) -> None:
    state.answer, shown = solution, cheaper or solution
    if shown.schedule is not None:
        show_schedule(state, shown.schedule, shown)
    if solution.schedule is not None:
        text, tone = describe_result(solution, was_cancelled, from_cache)
    elif was_cancelled:
        text, tone = "Cancelled before a schedule was found; the screen shows the one from before.", "warning"
    else:
        text, tone = _explain(state, solution)
        text += " Found in the cache." if from_cache else ""
    if cheaper is not None:
        overhead, found_by = format_overhead(cheaper.overhead or 0.0), describe_strategy(cheaper.strategy)
        text = text.replace(_STAYS, "").rstrip(" .")
        text += f" · the screen shows a cheaper schedule, overhead {overhead}, found before by {found_by}"
    if is_warning:
        tone = "error" if tone == "error" else "warning"
    state.say(" · ".join([text, *remarks]), tone)


def _explain(state: State, solution: Solution) -> tuple[str, str]:
    """Why there is no schedule, and what to do next."""
    smallest, budget = state.smallest, format_bytes(solution.budget)
    if solution.status is Status.INFEASIBLE:
        reason = f"{solution.strategy!r} has no schedule within {budget}"
        if smallest is not None and not remark_on(smallest.schedule.graph, solution):
            reason = smallest.explain_infeasible(solution.strategy, solution.budget)
        return f"{reason[0].upper()}{reason[1:]}. {_STAYS}", "error"
    hint = f"; the smallest budget known to be feasible is {format_bytes(smallest.known_feasible)}" if smallest else ""
    ended = f", ended by {solution.limit}" if solution.limit else ""
    return (
        f"No schedule found within {budget} in {format_seconds(solution.seconds)}{ended}{hint}. "
        f"Give it more time or memory. {_STAYS}"
    ), "warning"
