"""What is explored with estimated costs gets measured ones before it runs, so that its prediction has all workspace.

What is on the screen is what runs, and the budget stays the one that was chosen, whether they still fit or not.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from remat_explorer.explorer.state.frontiers import join
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.loading import find_marks, show_kept
from remat_explorer.explorer.work.measured_costs import with_measured_costs
from remat_explorer.explorer.work.solving import show_schedule
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.solution import Status


def measure_first(state: State, cancelled: threading.Event) -> bool:
    """Measure costs and workspace; schedule and budget stay, and the prediction is that of the measured workspace.

    Where costs were measured before, were chosen to be estimates, or cannot be measured, nothing changes.

    Args:
        state: with a solution and inputs; where costs were measured, its graph is another one then.
        cancelled: ends the measuring, and nothing has changed.

    Returns:
        Whether to go on; if not, the status line says why.
    """
    graph, shown, inputs = state.graph, state.solution, state.inputs
    if state.measured_costs is not None or state.costs_are_measured or graph is None or inputs is None:
        return True
    assert shown is not None
    measured, _ = with_measured_costs(state, graph, inputs, cancelled)
    if cancelled.is_set():
        state.say("Cancelled the execution while costs were measured; the schedule stays on the screen.", "warning")
        return False
    if measured is graph:
        return True
    assert shown.schedule is not None
    stage, value = state.stage, state.value
    schedule = shown.schedule.on(measured)
    carried = replace(shown, graph=measured, schedule=schedule, status=Status.FEASIBLE, lower_bound=None)
    keep_all = show_kept(state, inputs, measured)
    show_schedule(state, schedule, carried)
    state.costs_are_measured = True
    find_marks(state, keep_all, is_known=True, keeps_budget=True)
    known = replace(carried, budget=max(carried.budget, Plan.peak_of(schedule)))
    join(state, measured, [known], kinds=state.kinds)
    state.stage, state.value = stage, value
    return not cancelled.is_set()


def nearest_budget(state: State) -> int:
    """The smallest budget, in bytes, not below the state's, within which a schedule is known; 0 if none is."""
    best = state.frontier.best(state.budget) if state.frontier is not None else None
    if best is not None:
        return state.budget
    peaks = [point.peak for point in state.frontier.nondominated()] if state.frontier is not None else []
    known = [peak for peak in peaks if peak is not None]
    return min(known, default=0)


def missing_words(state: State) -> str:
    """By how much the solution on the screen exceeds its budget, and what would hold, in words; "" if it fits.

    >>> missing_words(State())
    ''
    """
    shown = state.solution
    if shown is None or shown.peak is None or shown.peak <= shown.budget:
        return ""
    nearest, budget = nearest_budget(state), format_bytes(shown.budget)
    words = (
        f"The schedule needs {format_bytes(shown.peak)}, {format_bytes(shown.peak - shown.budget)} more than {budget}"
    )
    if nearest == shown.budget == state.budget:
        return f"{words}; another one is known that fits"
    return f"{words}; the nearest budget with a known schedule is {format_bytes(nearest)}" if nearest else words
