"""From a model's name, module or graph to a training graph with its budget marks, in the background."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat_explorer.explorer.solving import show_schedule
from remat_explorer.explorer.state import State
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes
from remat_explorer.solution import Solution


@dataclass(frozen=True)
class Loaded:
    """A graph, and the module and example inputs to execute it with (None for a bare graph)."""

    graph: Graph
    module: Any = None
    args: tuple[Any, ...] = ()


Source = Callable[[State], Loaded]


def from_zoo(state: State) -> Loaded:
    """The zoo's model of the state's name, batch and image size."""
    from remat_explorer import models

    loaded = models.load(state.model, batch=state.batch or None, image=state.image or None, device=state.device)
    return Loaded(loaded.graph, loaded.module, loaded.args)


def from_module(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, loss: Any) -> Source:
    """The person's own module."""

    def capture_it(state: State) -> Loaded:
        from remat_explorer.capture import capture

        return Loaded(capture(module, args, kwargs, loss=loss), module, args)

    return capture_it


def from_graph(graph: Graph) -> Source:
    """A graph without a module."""
    return lambda state: Loaded(graph)


def load(state: State, source: Source, cancelled: threading.Event) -> None:
    """Capture, measure costs, find the budget marks, and show the schedule that keeps everything."""
    state.say(f"Loading {state.model}: capturing the training graph…")
    loaded = source(state)
    if cancelled.is_set():
        return
    graph, note = loaded.graph, ""
    if loaded.module is not None and state.measured_costs:
        graph, note = _with_measured_costs(state, loaded, cancelled)
    _accept(state, loaded, graph)
    state.say(
        f"Loaded {graph.name}: {graph.n} operations, {len(graph.values)} values, checkpoint-all needs "
        f"{format_bytes(state.checkpoint_all_peak)}, of which {format_bytes(graph.resident_bytes)} always stay.{note} "
        "Choose a budget and press Solve."
    )


def _with_measured_costs(state: State, loaded: Loaded, cancelled: threading.Event) -> tuple[Graph, str]:
    from remat_explorer.capture import profile

    state.say(f"Loading {state.model}: measuring {loaded.graph.n} operations on {state.device}…")

    def advance(done: int, total: int) -> None:
        state.progress = done / total if total else None

    graph = profile(
        loaded.graph,
        loaded.module,
        loaded.args,
        device=state.device,
        on_progress=advance,
        cancelled=cancelled.is_set,
    )
    state.progress = None
    note = " Measuring was cancelled: costs are estimates, and peaks leave out workspace." if cancelled.is_set() else ""
    return graph, note


def _accept(state: State, loaded: Loaded, graph: Graph) -> None:
    from remat_explorer.solvers import minimum_budget, solve

    state.say(f"Loading {graph.name}: looking for the smallest budget…")
    smallest = minimum_budget(graph)
    # Checkpoint-all always fits into the sum of everything.
    everything = graph.resident_bytes + int(graph.value_bytes.sum()) + max(
        way.workspace for node in graph.operations for way in node.implementations
    )
    keep_all = solve(graph, budget=everything, strategy="checkpoint-all")
    assert keep_all.peak is not None
    clear(state)
    state.graph, state.module, state.args = graph, loaded.module, loaded.args
    state.no_execution = "" if loaded.module is not None else "This is a graph without a module, so nothing can run."
    state.smallest, state.checkpoint_all_peak = smallest, keep_all.peak
    if not smallest.lower_bound <= state.budget <= 1.1 * keep_all.peak:
        state.budget = math.ceil((smallest.known_feasible + keep_all.peak) / 2)
    _show_checkpoint_all(state, keep_all)


def clear(state: State) -> None:
    """Forget everything about the model before."""
    state.measurement = state.answer = state.solution = state.schedule = None
    state.stage = state.value = 0


def _show_checkpoint_all(state: State, keep_all: Solution) -> None:
    show_schedule(state, keep_all.schedule, keep_all)
