"""Put a known solution on the screen, such as a point of the trade-off curve that was clicked."""

from __future__ import annotations

from remat_explorer.explorer.solving import describe, show_schedule
from remat_explorer.explorer.state import State
from remat_explorer.solution import Solution


def choose(state: State, solution: Solution) -> None:
    """Show a solution and make its budget the state's.

    Args:
        state: its schedule, solution and budget change.
        solution: of the state's graph; one without a schedule changes nothing.

    >>> import remat_explorer as rx
    >>> chain = rx.linear(8)
    >>> state = State(graph=chain)
    >>> choose(state, rx.solve(chain, 4))
    >>> state.budget, state.schedule.cost
    (4, 26.0)
    """
    if solution.schedule is None or state.busy:
        return
    with state.lock:
        show_schedule(state, solution.schedule, solution)
        state.budget = solution.budget  # after the solution: who sets a budget alone is shown the best known for it
        state.say(*describe(solution))
