"""Where to look first, as long as nobody has looked elsewhere."""

from __future__ import annotations

from remat_explorer.explanations import first_look
from remat_explorer.explorer.state.state import State


def forget(state: State) -> None:
    """Forget everything about the model before."""
    state.measurement = state.answer = state.solution = state.schedule = None
    state.frontier = state.other = state.moment = None
    state.history = state.found = state.zoom = ()
    state.shortage = ""
    state.stage = state.value = 0


def look_first(state: State) -> None:
    """Select what is worth a look of the schedule on the screen: its dearest recomputation, or its peak.

    >>> import remat_explorer as rx
    >>> solution = rx.solve(rx.linear(8), budget=4)
    >>> state = State(graph=solution.graph, schedule=solution.schedule)
    >>> look_first(state)
    >>> state.stage, state.value
    (10, 5)
    """
    if state.schedule is None or state.plan is None:
        return
    stage, value = first_look(state.schedule, state.plan)
    with state.at_once():
        state.stage, state.value = stage, value
    state.looked = (state.stage, state.value)


def look_again(state: State) -> None:
    """The same for a better schedule, unless somebody has selected something meanwhile."""
    if (state.stage, state.value) == state.looked:
        look_first(state)
