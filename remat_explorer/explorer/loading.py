"""From a model's name, module or graph to a training graph with its budget marks, in the background."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat_explorer.errors import ExecutionError, QuantityError
from remat_explorer.explorer.free_memory import free_bytes
from remat_explorer.explorer.frontiers import join
from remat_explorer.explorer.known import show_known
from remat_explorer.explorer.solving import prepare, show_schedule
from remat_explorer.explorer.state import State
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers import checkpoint_all_peak, minimum_budget, solve
from remat_explorer.solvers.search.compiled_search import load_search

# Sizes to begin with: activations are worth scheduling, and a laptop executes them in seconds (fcn8 and the
# transformers, with their many parameters, in a minute).
BEGIN: dict[str, dict[str, int]] = {
    "bert": {"batch": 8, "sequence": 128},
    "chain": {"batch": 4096},
    "densenet121": {"batch": 8, "image": 64},
    "densenet161": {"batch": 8, "image": 64},
    "fcn8": {"batch": 4, "image": 256},
    "googlenet": {"batch": 16, "image": 64},
    "gpt2": {"batch": 8, "sequence": 128},
    "linear32": {"batch": 8, "image": 64},
    "mlp": {"batch": 2048},
    "mobilenet_v1": {"batch": 32, "image": 64},
    "mobilenet_v2": {"batch": 32, "image": 64},
    "residual_net": {"batch": 32, "image": 32},
    "resnet18": {"batch": 32, "image": 64},
    "resnet50": {"batch": 16, "image": 64},
    "segnet": {"batch": 4, "image": 128},
    "unet": {"batch": 4, "image": 128},
    "unet_monet": {"batch": 2, "image": 128},
    "vgg16": {"batch": 32, "image": 64},
    "vgg19": {"batch": 32, "image": 64},
    "vit": {"batch": 8, "image": 160},
}

QUICK = 1.0  # seconds for the first schedule within the budget
BEGIN_SHARE = 0.3  # of the way from the smallest feasible budget to checkpoint-all: where the curve is worth a look


@dataclass(frozen=True)
class Inputs:
    """What to execute: a module, its example inputs, and the loss of its output."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None = None
    loss: Any = None


@dataclass(frozen=True)
class Loaded:
    """A graph, what to execute it with (None for a bare graph), and the sizes that the zoo chose."""

    graph: Graph
    inputs: Inputs | None = None
    batch: int = 0
    image: int | tuple[int, int] | None = None


NO_MODULE = "This is a graph without a module, so nothing can run."
Source = Callable[[State], Loaded]


def from_zoo(state: State) -> Loaded:
    """The zoo's model of the state's name, batch and image size."""
    from remat_explorer import models

    begin = BEGIN.get(state.model, {})
    chosen = models.load(
        state.model,
        state.batch or begin.get("batch"),
        state.image or begin.get("image"),
        begin.get("sequence"),
        state.device,
    )
    size = chosen.image
    square = size[0] if size and size[0] == size[1] else size
    return Loaded(chosen.graph, Inputs(chosen.module, chosen.args), chosen.batch, square)


def from_module(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, loss: Any) -> Source:
    """The person's own module."""

    def capture_it(state: State) -> Loaded:
        from remat_explorer.capture import capture

        return Loaded(capture(module, args, kwargs, loss=loss), Inputs(module, args, kwargs, loss))

    return capture_it


def from_graph(graph: Graph) -> Source:
    """A graph without a module."""
    return lambda state: Loaded(graph)


def load(
    state: State,
    source: Source,
    cancelled: threading.Event,
    budget: str | int | float | None = None,
    quick: float | None = None,
) -> Loaded | None:
    """Capture, measure costs, find the budget marks, and show a first schedule within the budget.

    Cancelled while measuring it goes on with estimates; cancelled before that, None is returned.

    Args:
        state: all that is known about the model before is forgotten.
        source: gives the graph.
        cancelled: set when nobody waits for it any more.
        budget: what `State.set_budget` takes; None for the state's, where that makes sense, else one to begin with.
        quick: seconds for the first schedule; None for as long as one waits without having asked for it.
    """
    state.say(f"Loading {state.model}: capturing the training graph…")
    loaded = source(state)
    if cancelled.is_set():
        state.say(f"Cancelled before {state.model} was captured.", "warning")
        return None
    graph, note = loaded.graph, ""
    if loaded.inputs is not None and state.measured_costs:
        graph, note = _with_measured_costs(state, graph, loaded.inputs, cancelled)
    _accept(state, loaded, graph)
    unread = ""
    try:
        if budget is not None:
            state.set_budget(budget)
    except QuantityError as error:
        unread = str(error)
    _answer_quickly(state, graph, cancelled, QUICK if quick is None else quick)
    prepare()
    state.say(
        f"Loaded {state.model}: {graph.n} operations, {len(graph.values)} values, checkpoint-all needs "
        f"{format_bytes(state.checkpoint_all_peak)}, of which {format_bytes(graph.resident_bytes)} always stay.{note} "
        f"{_on_screen(state)}"
    )
    if unread:
        state.say(unread, "error")
    return loaded


def _answer_quickly(state: State, graph: Graph, cancelled: threading.Event, seconds: float) -> None:
    """Have a schedule within the budget on the screen from the beginning, if one is found in the time."""
    if not (graph.has_choices or cancelled.is_set()):
        state.say(f"Loading {state.model}: a first schedule within {format_bytes(state.budget)}…")
        stopped = cancelled.is_set
        join(state, graph, [solve(graph, state.budget, time_limit=seconds, cancelled=stopped, cache=True)])
        show_known(state)


def _on_screen(state: State) -> str:
    """What the screen shows after loading, and what to do next."""
    shown = state.solution
    if shown is None or shown.peak is None or shown.peak > state.budget:
        return "The screen shows the schedule that keeps everything. Choose a budget and press Solve."
    if shown.status is Status.OPTIMAL:
        return f"The screen shows the optimum within {format_bytes(state.budget)}."
    return f"The screen shows the best known schedule within {format_bytes(state.budget)}; Solve looks for better ones."


def _with_measured_costs(state: State, graph: Graph, inputs: Inputs, cancelled: threading.Event) -> tuple[Graph, str]:
    """The graph with measured costs, or as it is with the reason why."""
    from remat_explorer.capture.profiling import profile

    needed, free = checkpoint_all_peak(graph), free_bytes(state.device)
    if needed > free:
        return graph, (
            f" Costs are estimates, without workspace: measuring needs {format_bytes(needed)}, and "
            f"{format_bytes(free)} are free."
        )
    state.say(f"Loading {state.model}: measuring {graph.n} operations on {state.device}…")

    def advance(done: int, total: int) -> None:
        state.progress = done / total if total else None

    try:
        return profile(
            graph,
            inputs.module,
            inputs.args,
            inputs.kwargs,
            inputs.loss,
            device=state.device,
            on_progress=advance,
            cancelled=cancelled.is_set,
        ), ""
    except ExecutionError as error:
        reason = "Measuring was cancelled" if cancelled.is_set() else f"Measuring failed ({error})"
        return graph, f" {reason}: costs are estimates, and peaks leave out workspace."
    finally:
        state.progress = None


def _accept(state: State, loaded: Loaded, graph: Graph) -> None:
    load_search(lambda progress: state.say(f"Loading {state.model}: {progress.doing}…"))
    state.say(f"Loading {state.model}: looking for the smallest budget…")
    smallest = minimum_budget(graph)
    keep_all = solve(graph, budget="100%", strategy="checkpoint-all")
    assert keep_all.peak is not None
    clear(state)
    state.graph, state.inputs, state.no_execution = graph, loaded.inputs, reason_not_to_run(state, loaded, graph)
    state.smallest, state.checkpoint_all_peak = smallest, keep_all.peak
    least, most = smallest.known_feasible, keep_all.peak
    known = [
        keep_all,
        Solution(graph, "optimal", Status.OPTIMAL, most, keep_all.schedule, graph.total_cost, 0.0),
        Solution(graph, "optimal", Status.FEASIBLE, least, smallest.schedule, graph.total_cost, 0.0),
    ]
    join(state, graph, known[:2] if least >= most else known)
    if not smallest.lower_bound <= state.budget <= 1.1 * keep_all.peak:
        state.budget = math.ceil(least + BEGIN_SHARE * (most - least))
    show_schedule(state, keep_all.schedule, keep_all)


def reason_not_to_run(state: State, loaded: Loaded, graph: Graph) -> str:
    """Why the graph cannot be executed here, or ""."""
    if loaded.inputs is None:
        return NO_MODULE
    needed, free = checkpoint_all_peak(graph), free_bytes(state.device)
    if needed > free:
        return (
            f"Execution compares with plain PyTorch, which needs {format_bytes(needed)}; {format_bytes(free)} are "
            "free. Choose a smaller batch or image."
        )
    return ""


def clear(state: State) -> None:
    """Forget everything about the model before."""
    state.measurement = state.answer = state.solution = state.schedule = None
    state.frontier = state.other = None
    state.history = state.found = state.zoom = ()
    state.shortage = ""
    state.stage = state.value = 0
