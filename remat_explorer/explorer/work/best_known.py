"""The best known schedule within a budget: what the screen shows at once, before anything is solved."""

from __future__ import annotations

from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.words import strategy_words
from remat_explorer.explorer.work.solving import show_schedule
from remat_explorer.quantities import format_bytes, format_overhead, format_share
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.registry import default_strategy
from remat_explorer.solvers.sweeps.own_points import proves_infeasible


def show_known(state: State, budget: int | None = None) -> Solution | None:
    """Show the best known schedule within a budget, of whichever strategy, and say how good it is proven to be.

    Args:
        state: its schedule and its status line change; below the smallest known budget the schedule stays.
        budget: bytes; None for the state's own. While the slider is dragged it is another one.

    Returns:
        The solution, or None if none is known.

    >>> import remat_explorer as rx
    >>> from remat_explorer.solvers.sweeps.frontier import joined
    >>> chain = rx.linear(8)
    >>> state = State(graph=chain, frontier=joined(chain, None, [rx.solve(chain, 4)]))
    >>> show_known(state, 5).cost
    26.0
    >>> state.status
    'Best known within 5 B: overhead +52.9 %, no bound proven'
    """
    budget = state.budget if budget is None else budget
    frontier = state.frontier
    if frontier is None or frontier.graph is not state.graph:
        return None
    best = frontier.best(budget)
    with state.lock:
        if best is None:
            state.say(none_known(state, budget), "warning")
            return None
        shown = state.solution
        if shown is None or shown.schedule is not best.schedule:
            show_schedule(state, best.schedule, best)
        elif budget == state.budget and (shown.budget, shown.lower_bound) != (best.budget, best.lower_bound):
            state.solution = best
        state.say(describe_known(best) + (" · improving…" if state.improving else ""))
    return best


def describe_known(best: Solution) -> str:
    """A best known solution in one line.

    Args:
        best: with a schedule, for the budget that it is to be compared with.
    """
    assert best.schedule is not None
    if best.status is Status.OPTIMAL:
        proven = "optimal (proven)"
    else:
        proven = "no bound proven" if best.gap is None else f"gap {format_share(best.gap)} (proven)"
    found_by = "" if best.strategy == default_strategy(best.graph) else f" · found by {strategy_words(best.strategy)}"
    overhead = format_overhead(best.schedule.overhead)
    return f"Best known within {format_bytes(best.budget)}: overhead {overhead}, {proven}{found_by}"


def none_known(state: State, budget: int) -> str:
    """Why no schedule is known within a budget, and what the screen shows then."""
    return f"{why_none(state, budget)} The screen shows the schedule from before."


def why_none(state: State, budget: int) -> str:
    """Why no schedule is known within a budget, and from where on there is one."""
    text, smallest = f"No schedule is known within {format_bytes(budget)}", state.smallest
    solutions = state.frontier.solutions if state.frontier else ()
    if smallest is not None and budget < smallest.lower_bound:
        reason = smallest.explain_infeasible(default_strategy(smallest.schedule.graph), budget)
        text = f"{reason[0].upper()}{reason[1:]}"
    elif any(solution.budget >= budget and proves_infeasible(solution) for solution in solutions):
        text = f"No schedule fits into {format_bytes(budget)} (proven)"
    elif smallest is not None:
        text += (
            f"; the smallest budget known to be feasible is {format_bytes(smallest.known_feasible)}, and nothing fits "
            f"below {format_bytes(smallest.lower_bound)} (proven)"
        )
    return f"{text.rstrip('.')}."
