"""Run the schedule on the screen, and say how prediction and measurement agree.

The measured memory is shown as soon as there is one run. Where costs are estimates, the operations are measured then,
so that the prediction has their workspace; the comparison with plain PyTorch and the timed runs follow. Cancelled
there, what has been measured stays. The budget stays the one that was chosen, whether the schedule fits or not.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remat_explorer.errors import ExecutionError, OutOfMemoryError
from remat_explorer.explorer.controllers.loading import find_budget_marks, measure_costs, show_keep_all
from remat_explorer.explorer.controllers.screen import add_to_frontier, show_schedule
from remat_explorer.explorer.state.state import State
from remat_explorer.offload import TransferPlan
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.solvers import Status

if TYPE_CHECKING:
    from remat_explorer.runtime import Measurement


def execute(state: State, cancelled: threading.Event) -> None:
    """Run the solution and measure it; what is measured, or what ran out of memory, appears in the state."""
    solution, inputs = state.sending or state.solution, state.inputs
    if state.no_execution or inputs is None or solution is None or solution.plan is None:
        state.say(state.no_execution or "There is no schedule to run yet: find one first.", "warning")
        return
    from remat_explorer.runtime import measure

    state.shortage, state.panel = "", "execution"
    where = "on the GPU" if state.device.startswith("cuda") else "on the CPU"
    runs = sum(isinstance(one, Compute) for one in solution.plan.statements)
    state.say(f"Running the schedule {where}: {runs} computations…")

    def advance(done: int, total: int) -> None:
        state.progress = done / total if total else None

    def show(measured: Measurement) -> None:
        state.measurement = _with_predictions(measured, state)
        if measured.eager is None:
            measure_costs_after(state, cancelled)
            state.measurement = _with_predictions(measured, state)
        state.say("Comparing with plain PyTorch…" if measured.eager is None else "Timing, in turns with plain PyTorch…")

    try:
        measured = measure(
            solution,
            *inputs.arguments,
            device=state.device,
            on_progress=advance,
            cancelled=cancelled.is_set,
            on_measured=show,
        )
    except OutOfMemoryError as error:
        _report_shortage(state, error)
        return
    except ExecutionError:
        if not cancelled.is_set():
            raise
        kept = "; what was measured stays" if state.measurement is not None else ""
        state.say(f"Cancelled the run{kept}. The schedule stays on the screen.", "warning")
        return
    state.measurement = measurement = _with_predictions(measured, state)
    missing = describe_excess(state)
    said = " ".join(["Run.", describe_validation(measurement), *([f"· {missing}."] if missing else [])])
    state.say(said, "good" if measurement.sound else "warning")


def describe_validation(measurement: Any) -> str:
    """Predicted and measured, side by side.

    Args:
        measurement: a `remat_explorer.runtime.Measurement`.
    """
    words = [
        f"Peak predicted {format_bytes(measurement.predicted_peak)}, measured {format_bytes(measurement.peak)} "
        f"({100 * measurement.error:+.2f} %), {'within' if measurement.within_budget else 'ABOVE'} its budget of "
        f"{format_bytes(measurement.budget)}",
        f"overhead predicted {format_overhead(measurement.predicted_overhead)}",
    ]
    if measurement.overhead is not None:
        words[-1] += f", measured {measurement.overhead_text}"
    if measurement.eager:
        compared = measurement.eager.comparison
        words.append(f"gradients {compared.gradients_text}")
        if compared.begins:
            words.append(compared.begins_text)
        words.append(f"plain PyTorch's peak {format_bytes(measurement.eager.peak)}")
    if measurement.missing:
        words.append(f"not compared: {measurement.missing}")
    return " · ".join(words)


def describe_proof(measurement: Any) -> str:
    """Memory as it was predicted and measured, gradients, and memory beside plain PyTorch's.

    Args:
        measurement: a `remat_explorer.runtime.Measurement`.

    Returns:
        One line such as "14.0 MiB predicted, 14.0 MiB measured; gradients equal bit for bit; 41 % less memory than
        plain PyTorch". A budget that was passed and results that differ are said in capitals.
    """
    parts = [f"{format_bytes(measurement.predicted_peak)} predicted, {format_bytes(measurement.peak)} measured"]
    if isinstance(measurement.plan, TransferPlan):
        host = format_bytes(measurement.plan.host_peak)
        parts.append(f"on the host {host} predicted, {format_bytes(measurement.host_peak)} measured")
    highest = max(measurement.peak, measurement.generated_peak)
    if not measurement.within_budget:
        which = "" if measurement.peak > measurement.budget else f"{format_bytes(highest)} in the timed runs, "
        parts[0] += f", {which}ABOVE the budget of {format_bytes(measurement.budget)}"
    if measurement.eager is None:
        parts.append(f"not compared with plain PyTorch: {measurement.missing or 'it did not run'}")
        return "; ".join(parts)
    parts += [_results(measurement.eager.comparison), _beside(highest, measurement.eager.peak)]
    return "; ".join(parts)


def describe_excess(state: State) -> str:
    """By how much the solution on the screen exceeds its budget, and what would hold, in words; "" if it fits.

    >>> describe_excess(State())
    ''
    """
    shown = state.solution
    if shown is None or shown.peak is None or shown.peak <= shown.budget:
        return ""
    nearest, budget = nearest_feasible_budget(state), format_bytes(shown.budget)
    words = (
        f"The schedule needs {format_bytes(shown.peak)}, {format_bytes(shown.peak - shown.budget)} more than {budget}"
    )
    if nearest == shown.budget == state.budget:
        return f"{words}; another one is known that fits"
    return f"{words}; the nearest budget with a known schedule is {format_bytes(nearest)}" if nearest else words


def nearest_feasible_budget(state: State) -> int:
    """The smallest budget, in bytes, not below the one in the pictures, for which a schedule is known; 0 if none is."""
    best = state.frontier.best(state.shown_budget) if state.frontier is not None else None
    if best is not None:
        return state.shown_budget
    peaks = [point.peak for point in state.frontier.nondominated()] if state.frontier is not None else []
    known = [peak for peak in peaks if peak is not None]
    return min(known, default=0)


def _with_predictions(measured: Measurement, state: State) -> Measurement:
    """A measurement beside the prediction on the screen, which has the workspace of the same statements by now."""
    shown = state.solution
    if state.sending is not None:
        return measured
    assert shown is not None
    assert shown.plan is not None
    assert shown.schedule is not None
    return replace(measured, plan=shown.plan, predicted_overhead=shown.schedule.overhead)


def measure_costs_after(state: State, cancelled: threading.Event) -> None:
    """Measure costs and workspace; schedule and budget stay, and the prediction is that of the measured workspace.

    Where the plan sends values, or costs were measured before, were chosen to be estimates, or cannot be measured,
    nothing changes.

    Args:
        state: with a solution, inputs and a measurement; where costs were measured, its graph is another one then.
        cancelled: ends the measuring, and nothing has changed.
    """
    graph, shown, inputs, measurement = state.graph, state.solution, state.inputs, state.measurement
    if state.sending is not None:
        return
    if state.measured_costs is not None or state.costs_are_measured or graph is None or inputs is None:
        return
    assert shown is not None
    measured, _ = measure_costs(state, graph, inputs, cancelled)
    if cancelled.is_set() or measured is graph:
        return
    assert shown.schedule is not None
    stage, value = state.stage, state.value
    schedule = shown.schedule.on(measured)
    carried = replace(shown, graph=measured, schedule=schedule, status=Status.FEASIBLE, lower_bound=None)
    with state.at_once():
        keep_all = show_keep_all(state, inputs, measured)
        show_schedule(state, schedule, carried)
        state.costs_are_measured, state.measurement = True, measurement
        state.stage, state.value = stage, value
    find_budget_marks(state, keep_all, is_known=True, keeps_budget=True)
    known = replace(carried, budget=max(carried.budget, Plan.peak_of(schedule)))
    add_to_frontier(state, measured, [known], kinds=state.kinds)


def _results(compared: Any) -> str:
    """The gradients in words, and what else is not plain PyTorch's."""
    if compared.equal:
        return "gradients equal bit for bit"
    others = {
        "the loss": compared.loss_difference == 0,
        "buffers": compared.buffers_equal,
        "the random state": compared.random_state_equal,
    }
    differ = [name for name, equal in others.items() if not equal]
    if not compared.gradients_equal or not differ:
        return f"gradients {compared.gradients_text}"
    last = f"{', '.join(differ[:-1])} and {differ[-1]}" if len(differ) > 1 else differ[0]
    return f"gradients equal bit for bit, but {last} DIFFER{'' if len(differ) > 1 or last == 'buffers' else 'S'}"


def _beside(peak: int, plain: int) -> str:
    """How much less or more a peak is than plain PyTorch's.

    >>> _beside(59, 100), _beside(103, 100), _beside(100, 100)
    ('41 % less memory than plain PyTorch', '3 % more memory than plain PyTorch', 'as much memory as plain PyTorch')
    """
    share = 100 * (1 - peak / plain) if plain else 0.0
    if abs(share) < 0.5:
        return "as much memory as plain PyTorch"
    return f"{abs(share):.0f} % {'less' if share > 0 else 'more'} memory than plain PyTorch"


def _report_shortage(state: State, error: OutOfMemoryError) -> None:
    """Running out of memory is a result: it is shown as one, at the stage where it happened."""
    state.measurement, state.shortage = None, str(error)
    at = ""
    if error.statement is not None and state.plan is not None:
        statement = state.plan.statements[error.statement]
        state.stage = statement.stage
        at = f" at {state.plan.text(statement)!r} in stage {statement.stage}"
    state.panel = "execution"
    state.say(f"Memory ran out{at}: choose a smaller budget or batch. The panel says what was in memory.", "warning")
