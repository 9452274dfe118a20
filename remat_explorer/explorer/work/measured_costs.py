"""Costs and workspace as the device has them, in place of estimates, with a word where they cannot be had."""

from __future__ import annotations

import threading
import time

from remat_explorer.errors import ExecutionError
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.inputs import Inputs
from remat_explorer.free_memory import free_bytes
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers import checkpoint_all_peak

BETWEEN = 0.1  # seconds between two counts of what is measured


def with_measured_costs(state: State, graph: Graph, inputs: Inputs, cancelled: threading.Event) -> tuple[Graph, str]:
    """The graph with measured costs, or as it is with the reason why.

    Args:
        state: its status line counts what has been measured.
        graph: with estimated costs.
        inputs: whose operations they are.
        cancelled: ends the measuring.
    """
    from remat_explorer.capture.profiling import profile

    needed, free = checkpoint_all_peak(graph), free_bytes(state.device)
    if needed > free:
        return graph, (
            f" Costs are estimates, without workspace: measuring needs {format_bytes(needed)}, and "
            f"{format_bytes(free)} are free."
        )
    words, told = f"{state.busy.capitalize()} {state.model}: measuring {graph.n} operations on {state.device}", 0.0
    state.say(f"{words}…")

    def advance(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= BETWEEN:
            told = time.monotonic()
            state.progress = done / total if total else None
            state.say(f"{words}: {done} of {total} runs…")

    try:
        return profile(
            graph,
            *inputs.given,
            device=state.device,
            on_progress=advance,
            cancelled=cancelled.is_set,
        ), ""
    except ExecutionError as error:
        reason = "Measuring was cancelled" if cancelled.is_set() else f"Measuring failed ({error})"
        return graph, f" {reason}: costs are estimates, and peaks leave out workspace."
    finally:
        state.progress = None
