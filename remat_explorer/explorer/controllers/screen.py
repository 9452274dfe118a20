"""What is put on the screen: a schedule with its solution, the best known one for a budget, and where to look first.

Whatever is found joins the trade-off curve (`add_to_frontier`), from which `show_best_known` takes what it shows before
anything is solved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from remat_explorer.explanations import first_look
from remat_explorer.explorer.state.implementation_choices import describe_kinds
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import describe_strategy
from remat_explorer.figures import schedule_of, widest_journey
from remat_explorer.graph import Graph, cost_unit
from remat_explorer.offload import Transfers, TransferSolution, best_known, retimed
from remat_explorer.quantities import format_bytes, format_overhead, format_rate, format_seconds, format_share
from remat_explorer.solvers import OwnPoint, Solution, Status, default_strategy, extend_frontier, rules_out_budget

SENDS = "offload"  # the strategy where values may be sent


def show_schedule(state: State, schedule, solution: Solution | None, sending: TransferSolution | None = None) -> None:
    """Put a schedule on the screen, or what a plan that sends computes; what was measured for another one goes.

    The matrices follow the schedule, which comes first; the views that follow find its solution there, too.
    """
    with state.at_once():
        if schedule is not state.schedule:
            state.schedule = schedule
        state.solution, state.sending, state.measurement, state.shortage = solution, sending, None, ""
        state.stage = min(state.stage, schedule.stages - 1)


def show_best_known(state: State, budget: int | None = None) -> Solution | None:
    """Show the best known schedule within a budget, of whichever strategy, and say how good it is proven to be.

    Args:
        state: its schedule and its status line change; below the smallest known budget the schedule stays.
        budget: bytes; None for the state's own. While the slider is dragged it is another one.

    Returns:
        The solution, or None if none is known.

    >>> import remat_explorer as rx
    >>> from remat_explorer.solvers.sweeps.frontier import extend_frontier
    >>> chain = rx.linear(8)
    >>> state = State(graph=chain, frontier=extend_frontier(chain, None, [rx.solve(chain, 4)]))
    >>> show_best_known(state, 5).cost
    26.0
    >>> state.status
    'Best known within 5 B: overhead +52.9 %, no bound proven'
    """
    budget = state.budget if budget is None else budget
    frontier = state.frontier if state.frontier is not None and state.frontier.graph is state.graph else None
    best, sending = None if frontier is None else frontier.best(budget), best_sending(state, budget)
    with state.lock:
        if sending is not None and (best is None or _is_faster(sending, best)):
            show_sending(state, sending)
            return best
        if frontier is None:
            return None
        if best is None:
            state.say(_explain_none_shown(state, budget), "warning")
            return None
        shown = state.solution
        if shown is None or shown.schedule is not best.schedule or state.sending is not None:
            show_schedule(state, best.schedule, best)
        elif budget == state.budget and (shown.budget, shown.lower_bound) != (best.budget, best.lower_bound):
            state.solution = best
        state.say(describe_best_known(best) + (" · improving…" if state.improving else ""))
    return best


def show_sending(state: State, sending: TransferSolution) -> None:
    """Put a solution that may send values on the screen, and say how good it is."""
    assert sending.plan is not None
    before = state.sending
    if before is None or before.plan is not sending.plan:
        show_schedule(state, schedule_of(sending.plan), None, sending)
    elif (before.budget, before.lower_bound) != (sending.budget, sending.lower_bound):
        state.sending = sending
    state.say(describe_sending(sending), "good" if sending.status is Status.OPTIMAL else "plain")


def best_sending(state: State, budget: int) -> TransferSolution | None:
    """The fastest known plan within a budget, as fast as the bandwidth of now lets it be; None where it sends nothing.

    >>> import remat_explorer as rx
    >>> graph = rx.linear(4)
    >>> state = State(graph=graph, transfers=rx.Transfers(0.25, 0.25))
    >>> state.known_sending = (rx.solve(graph, 4, strategy="offload", transfers=rx.Transfers(1.0, 1.0)),)
    >>> best_sending(state, 4).cost > state.known_sending[0].cost, best_sending(state, 3)
    (True, None)
    """
    if state.transfers is None:
        return None
    known = [one for one in state.known_sending if one.graph is state.graph]
    best = best_known(known, budget, state.transfers, SENDS)
    return best if best is not None and best.plan is not None and best.plan.sent_bytes else None


def sending_now(state: State) -> list[TransferSolution]:
    """Every known plan that sends values, as fast as the bandwidth of now lets it be."""
    if state.transfers is None:
        return []
    known = [one for one in state.known_sending if one.graph is state.graph and one.plan and one.plan.sent_bytes]
    return [found for solution in known if (found := retimed(solution, state.transfers)) is not None]


def _is_faster(sending: TransferSolution, than: Solution) -> bool:
    """Whether it takes less time, beyond rounding."""
    return (sending.cost or 0.0) < (than.cost or 0.0) * (1 - 1e-9)


def describe_sending(sending: TransferSolution) -> str:
    """A solution that may send values in one line."""
    assert sending.plan is not None
    proven = sending.status is Status.OPTIMAL
    words = [
        "Proven best" if proven else "Found, not proven best",
        f"overhead {format_overhead(sending.overhead or 1.0)} (predicted)",
        f"predicted peak {format_bytes(sending.plan.peak)} of {format_bytes(sending.budget)}",
        f"{format_bytes(sending.plan.sent_bytes)} sent, {format_bytes(sending.plan.host_peak)} on the host at most",
        sending.transfers.describe(),
        "no bound proven" if sending.gap is None else f"gap {format_share(sending.gap)}",
        *([f"ended by {sending.limit}"] if sending.limit else []),
    ]
    return " · ".join(words)


def describe_rate(transfers: Transfers, graph: Graph) -> str:
    """How fast values travel, in the unit of the graph's costs.

    >>> import remat_explorer as rx
    >>> describe_rate(rx.Transfers(1.0, 2.0), rx.linear(2))
    '1 B a unit of cost out and 2 B a unit of cost back'
    """
    ways = (transfers.out, transfers.back)
    rates = [format_rate(rate) if cost_unit(graph) else f"{rate:.4g} B a unit of cost" for rate in ways]
    return rates[0] if rates[0] == rates[1] else f"{rates[0]} out and {rates[1]} back"


def choose_solution(state: State, solution: Solution) -> None:
    """Put a solution of the state's graph on the screen, with its budget and strategy; views hear of it once.

    Args:
        state: what the explorer knows.
        solution: any with a schedule, such as a point of the trade-off curve; one without changes
            nothing, nor does any while something is under way.

    >>> import remat_explorer as rx
    >>> state = State(graph=rx.linear(8))
    >>> choose_solution(state, rx.solve(rx.linear(8), budget=4))
    >>> state.budget, state.strategy, state.schedule.cost
    (4, 'optimal', 26.0)
    """
    if solution.schedule is None or state.busy:  # what is under way would replace it, or measure another
        return
    text, _ = describe_result(solution)
    with state.at_once():
        show_schedule(state, solution.schedule, solution)
        state.budget, state.strategy = solution.budget, solution.strategy
        state.say(f"Chosen: {text[0].lower()}{text[1:]}")


def show_known_for_kinds(state: State) -> bool:
    """Make the trade-off curve that of the kinds chosen now, and show what is known for the budget.

    Returns:
        Whether this very question was solved before, so that nothing has to be solved.

    >>> import remat_explorer as rx
    >>> show_known_for_kinds(State(graph=rx.linear(8), budget=4))
    False
    """
    graph = state.graph
    if graph is None:
        return False
    add_to_frontier(state, graph, [])
    answer = state.known_solutions.last_solve(state.kinds, state.budget)
    if answer is None:
        show_best_known(state)
        return False
    assert answer.schedule is not None
    show_schedule(state, answer.schedule, answer)
    text, tone = describe_result(answer)
    state.say(f"Solved before with {describe_kinds(graph, state.kinds)}: {text}", tone)
    return True


def add_to_frontier(
    state: State,
    graph: Graph,
    solutions: Iterable[Solution],
    own: Iterable[OwnPoint] = (),
    kinds: Collection[str] = (),
) -> None:
    """Let points join the state's trade-off curve, from any thread; those of a graph that was left are dropped.

    Args:
        state: whose curve grows; on a graph with choices it is that of the kinds chosen now.
        graph: of the points.
        solutions: as for `joined`.
        own: as for `joined`; these run default implementations.
        kinds: of implementations that the points' strategies were allowed to choose.
    """
    fresh, others = list(solutions), list(own)
    if graph.has_choices and state.graph is graph:
        state.known_solutions.add(kinds, fresh)
    while state.graph is graph:
        before, chosen = state.frontier, state.kinds
        if graph.has_choices:  # anew: what is true of these kinds may not be of those before
            points = [*(before.own if before is not None else ()), *others]
            latest = {(point.strategy, point.budget, point.cost): point for point in points}
            after = extend_frontier(graph, None, state.known_solutions.valid_for(chosen), latest.values())
        else:
            after = extend_frontier(graph, before, fresh, others)  # takes milliseconds, so not under the lock
        with state.lock:
            if state.graph is graph and state.frontier is before and state.kinds == chosen:
                state.frontier = after
                return


def auto_select(state: State) -> None:
    """Select what is worth a look of the schedule on the screen: its dearest recomputation, its peak, or what travels.

    >>> import remat_explorer as rx
    >>> solution = rx.solve(rx.linear(8), budget=4)
    >>> state = State(graph=solution.graph, schedule=solution.schedule)
    >>> auto_select(state)
    >>> state.stage, state.value
    (10, 5)
    """
    sent = None if state.sending is None or state.sending.plan is None else widest_journey(state.sending.plan)
    if sent is not None:
        stage, value = sent.fetched, sent.value
    elif state.schedule is not None and state.plan is not None:
        stage, value = first_look(state.schedule, state.plan)
    else:
        return
    state.auto_selection = stage, value
    with state.at_once():
        state.stage, state.value = stage, value
        state.auto_selection = (state.stage, state.value)  # before anybody hears of it


def update_auto_selection(state: State) -> None:
    """The same for a better schedule, unless somebody has selected something meanwhile."""
    if (state.stage, state.value) == state.auto_selection:
        auto_select(state)


def forget_model(state: State) -> None:
    """Forget everything about the model before."""
    state.measurement = state.answer = state.solution = state.sending = state.schedule = None
    state.frontier = state.other = state.moment = None
    state.history = state.found = state.zoom = state.known_sending = ()
    state.shortage = ""
    state.stage = state.value = 0


def describe_result(solution: Solution, was_cancelled: bool = False, from_cache: bool = False) -> tuple[str, str]:
    """A result in one line, and its tone."""
    assert solution.schedule is not None
    assert solution.peak is not None
    proven = solution.status is Status.OPTIMAL
    name = (
        "Proven best" if proven else "Cancelled, the best so far is kept" if was_cancelled else "Found, not proven best"
    )
    usual = solution.strategy == default_strategy(solution.graph)
    again, ended = solution.schedule.recomputations, [f"ended by {solution.limit}"] if solution.limit else []
    words = [
        name if usual else f"{name}, by {describe_strategy(solution.strategy)}",
        f"overhead {format_overhead(solution.schedule.overhead)}",
        f"predicted peak {format_bytes(solution.peak)} of {format_bytes(solution.budget)}",
        f"{again} recomputation{'' if again == 1 else 's'}",
        "no bound proven" if solution.gap is None else f"gap {format_share(solution.gap)}",
        ("found in the cache, solved in " if from_cache else "") + format_seconds(solution.seconds),
        *ended,
    ]
    return " · ".join(words), "good" if proven else "plain"


def describe_best_known(best: Solution) -> str:
    """A best known solution in one line.

    Args:
        best: with a schedule, for the budget that it is to be compared with.
    """
    assert best.schedule is not None
    if best.status is Status.OPTIMAL:
        proven = "proven best"
    else:
        proven = "no bound proven" if best.gap is None else f"gap {format_share(best.gap)} (proven)"
    found_by = (
        "" if best.strategy == default_strategy(best.graph) else f" · found by {describe_strategy(best.strategy)}"
    )
    overhead = format_overhead(best.schedule.overhead)
    return f"Best known within {format_bytes(best.budget)}: overhead {overhead}, {proven}{found_by}"


def rules_out(state: State, budget: int) -> bool:
    """Whether it is proven that no schedule fits into a budget, in bytes."""
    smallest, solutions = state.smallest, state.frontier.solutions if state.frontier else ()
    if smallest is not None and budget < smallest.lower_bound:
        return True
    return any(solution.budget >= budget and rules_out_budget(solution) for solution in solutions)


def explain_none_known(state: State, budget: int) -> str:
    """Why no schedule is known within a budget, and from where on there is one."""
    text, smallest = f"No schedule is known within {format_bytes(budget)}", state.smallest
    if smallest is not None and budget < smallest.lower_bound:
        reason = smallest.explain_infeasible(default_strategy(smallest.schedule.graph), budget)
        text = f"{reason[0].upper()}{reason[1:]}"
    elif rules_out(state, budget):
        text = f"No schedule fits into {format_bytes(budget)} (proven)"
    elif smallest is not None:
        text += (
            f"; the smallest budget known to be feasible is {format_bytes(smallest.known_feasible)}, and nothing fits "
            f"below {format_bytes(smallest.lower_bound)} (proven)"
        )
    return f"{text.rstrip('.')}."


def _explain_none_shown(state: State, budget: int) -> str:
    """Why no schedule is known within a budget, and what the screen shows then."""
    return f"{explain_none_known(state, budget)} The screen shows the schedule from before."
