"""The ablation, live: what is known for the kinds of implementations that may be chosen now."""

from __future__ import annotations

from remat_explorer.explorer.state.frontiers import join
from remat_explorer.explorer.state.implementations import describe_kinds
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.best_known import show_known
from remat_explorer.explorer.work.solving import describe, show_schedule


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
