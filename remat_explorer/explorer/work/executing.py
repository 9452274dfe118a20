"""Execute the solution on the screen, and say in one line how prediction and measurement agree."""

from __future__ import annotations

import threading
from typing import Any

from remat_explorer.errors import ExecutionError, OutOfMemoryError
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.measuring_first import measure_first, missing_words
from remat_explorer.quantities import format_bytes, format_overhead


def execute(state: State, cancelled: threading.Event) -> None:
    """Run the solution and measure it; the measurement, or what ran out of memory, appears in the state."""
    solution, inputs = state.solution, state.inputs
    if state.no_execution or inputs is None or solution is None or solution.schedule is None:
        state.say(state.no_execution or "There is no solution to execute yet: solve first.", "warning")
        return
    from remat_explorer.runtime import measure

    state.shortage, state.panel = "", "execution"
    if not measure_first(state, cancelled):
        return
    solution = state.solution
    assert solution is not None
    assert solution.schedule is not None
    where = "on the GPU" if state.device.startswith("cuda") else "on the CPU"
    state.say(f"Executing the schedule {where} ({solution.strategy}, {len(solution.schedule.sequence)} computations)…")

    def advance(done: int, total: int) -> None:
        state.progress = done / total if total else None

    try:
        state.measurement = measurement = measure(
            solution,
            *inputs.given,
            device=state.device,
            on_progress=advance,
            cancelled=cancelled.is_set,
        )
    except OutOfMemoryError as error:
        report_shortage(state, error)
        return
    except ExecutionError:
        if not cancelled.is_set():
            raise
        state.say("Cancelled the execution; the schedule stays on the screen.", "warning")
        return
    missing = missing_words(state)
    said = " ".join(["Executed.", validation(measurement), *([f"· {missing}."] if missing else [])])
    state.say(said, "good" if measurement.sound else "warning")


def report_shortage(state: State, error: OutOfMemoryError) -> None:
    """Running out of memory is a result: it is shown as one, at the stage where it happened."""
    state.measurement, state.shortage = None, str(error)
    at = ""
    if error.statement is not None and state.plan is not None:
        statement = state.plan.statements[error.statement]
        state.stage = statement.stage
        at = f" at {state.plan.text(statement)!r} in stage {statement.stage}"
    state.panel = "execution"
    state.say(f"Memory ran out{at}: choose a smaller budget or batch. The panel says what was in memory.", "warning")


def validation(measurement: Any) -> str:
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
        words.append(f"eager peak {format_bytes(measurement.eager.peak)}")
    if measurement.missing:
        words.append(f"not compared: {measurement.missing}")
    return " · ".join(words)
