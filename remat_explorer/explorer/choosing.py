"""Make a solution that is known already the current one."""

from __future__ import annotations

from remat_explorer.explorer.solving import describe, show_schedule
from remat_explorer.explorer.state import State
from remat_explorer.solution import Solution


def choose(state: State, solution: Solution) -> None:
    """Put a solution of the state's graph on the screen, with its budget and strategy; views hear of it once.

    Args:
        state: what the explorer knows.
        solution: any with a schedule, such as a point of the trade-off curve; one without changes
            nothing, nor does any while something is under way.

    >>> import remat_explorer as rx
    >>> state = State(graph=rx.linear(8))
    >>> choose(state, rx.solve(rx.linear(8), budget=4))
    >>> state.budget, state.strategy, state.schedule.cost
    (4, 'optimal', 26.0)
    """
    if solution.schedule is None or state.busy:  # what is under way would replace it, or measure another
        return
    text, _ = describe(solution)
    with state.at_once():
        show_schedule(state, solution.schedule, solution)
        state.budget, state.strategy = solution.budget, solution.strategy
        state.say(f"Chosen: {text[0].lower()}{text[1:]}")
