"""What is explored with estimated costs gets measured ones before it runs, so that its prediction has all workspace."""

from __future__ import annotations

import threading
from dataclasses import replace

from remat_explorer.explorer.state.frontiers import join
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.loading import QUICK, answer_quickly, find_marks, show_kept
from remat_explorer.explorer.work.measured_costs import with_measured_costs
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.solution import Solution, Status


def measure_first(state: State, cancelled: threading.Event) -> bool:
    """Measure costs and workspace, and put a schedule within the budget on the screen: the one that was, if it fits.

    Where costs were measured before, were chosen to be estimates, or cannot be measured, nothing changes.

    Args:
        state: with a solution and inputs; where costs were measured, its graph is another one then.
        cancelled: ends the measuring, and nothing has changed.

    Returns:
        Whether there is something to execute; if not, the status line says why.
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
    stage, value, budget = state.stage, state.value, state.budget
    keep_all = show_kept(state, inputs, measured)
    state.costs_are_measured = True
    find_marks(state, keep_all)
    if not _carry_over(state, measured, shown, budget):
        answer_quickly(state, measured, cancelled, QUICK)
    state.stage, state.value = stage, value
    solution = state.solution
    if solution is not None and solution.peak is not None and solution.peak <= budget:
        return not cancelled.is_set()
    least = format_bytes(state.smallest.known_feasible) if state.smallest else "more"
    state.say(
        f"With measured workspace no schedule is known within {format_bytes(budget)}: the smallest one needs {least}. "
        "Choose a larger budget, and press Execute again.",
        "warning",
    )
    return False


def _carry_over(state: State, measured: object, shown: Solution, budget: int) -> bool:
    """Show the schedule that was on the screen, if it fits with measured workspace, too; returns whether it does."""
    from remat_explorer.explorer.work.best_known import show_known

    graph = state.graph
    if graph is not measured or graph is None or shown.schedule is None:
        return False
    schedule = shown.schedule.on(graph)
    if Plan.of(schedule).peak > budget:
        return False
    state.budget = budget
    carried = replace(shown, graph=graph, schedule=schedule, status=Status.FEASIBLE, budget=budget, lower_bound=None)
    join(state, graph, [carried], kinds=state.kinds)
    return show_known(state) is not None
