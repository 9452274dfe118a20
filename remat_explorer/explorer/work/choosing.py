"""Make a known solution the current one: a point of the trade-off curve, its neighbour, or that of other kinds."""

from __future__ import annotations

from remat_explorer.explorer.state.frontiers import join
from remat_explorer.explorer.state.implementations import describe_kinds
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.best_known import show_known
from remat_explorer.explorer.work.solving import describe, show_schedule
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


def choose_next(state: State, by: int) -> None:
    """Choose the next point of the trade-off curve that no other beats, towards more memory, or with -1 towards less.

    >>> import remat_explorer as rx
    >>> from remat_explorer.solvers.sweeps.frontier import joined
    >>> chain = rx.linear(8)
    >>> state = State(graph=chain, frontier=joined(chain, None, [rx.solve(chain, budget) for budget in (4, 6)]))
    >>> choose_next(state, 1)  # nothing is on the screen yet: the first point
    >>> choose_next(state, 1)
    >>> state.budget, state.schedule.cost
    (6, 21.0)
    >>> choose_next(state, 1)
    >>> state.status
    'No point of the curve takes more memory.'
    """
    points = state.frontier.nondominated() if state.frontier is not None else ()
    shown = state.plan.peak if state.plan is not None else -1
    peaks = [point.peak or 0 for point in points]
    beyond = [i for i, peak in enumerate(peaks) if (peak > shown if by > 0 else peak < shown)]
    if beyond:
        choose(state, points[beyond[0] if by > 0 else beyond[-1]])
    else:
        state.say(f"No point of the curve takes {'more' if by > 0 else 'less'} memory.")


def show_kinds(state: State) -> bool:
    """Make the trade-off curve that of the kinds chosen now, and show what is known for the budget.

    Returns:
        Whether this very question was solved before, so that nothing has to be solved.

    >>> import remat_explorer as rx
    >>> show_kinds(State(graph=rx.linear(8), budget=4))
    False
    """
    graph = state.graph
    if graph is None:
        return False
    join(state, graph, [])
    answer = state.answers.answer(state.kinds, state.budget)
    if answer is None:
        show_known(state)
        return False
    assert answer.schedule is not None
    show_schedule(state, answer.schedule, answer)
    text, tone = describe(answer)
    state.say(f"Solved before with {describe_kinds(graph, state.kinds)}: {text}", tone)
    return True
