"""From a model's name, module or graph to a training graph with its budget marks, in the background.

Costs and workspace are estimates, or measured on the device, with a word where that is not possible.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from contextlib import suppress

from remat_explorer.cancellation import CaptureCancelled, cancellable
from remat_explorer.errors import ExecutionError, QuantityError
from remat_explorer.explorer.controllers.exploration_cache import replace_by_captured, show_cached
from remat_explorer.explorer.controllers.model_sources import NO_MODULE, LoadedModel, ModelLoader, ModuleInputs
from remat_explorer.explorer.controllers.screen import (
    add_to_frontier,
    auto_select,
    forget_model,
    show_best_known,
    show_schedule,
    update_auto_selection,
)
from remat_explorer.explorer.controllers.solving import prepare_process
from remat_explorer.explorer.state.implementation_choices import monet_option
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import switch_default_strategy
from remat_explorer.free_memory import free_bytes
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers import (
    Solution,
    Status,
    checkpoint_all_peak,
    default_strategy,
    load_search,
    minimum_budget,
    solve,
)

COUNT_INTERVAL = 0.1  # seconds between two counts of what is measured
_DRAWING_SECONDS = 1.0  # for the page to draw what is cached: while torch is imported, the kernel hardly answers it
FIRST_SECONDS = 1.0  # seconds for the first schedule within the budget
FIRST_SECONDS_WITH_CHOICES = 4.0  # the same for a graph with choices of implementations
BEGIN_SHARE = 0.3  # of the way from the smallest feasible budget to checkpoint-all: where the curve is worth a look


def load(
    state: State,
    source: ModelLoader,
    cancelled: threading.Event,
    budget: str | int | float | None = None,
    quick: float | None = None,
) -> LoadedModel | None:
    """Capture, measure costs, find the budget marks, and show a first schedule within the budget.

    Cancelled while measuring it goes on with estimates; cancelled before that, None is returned.

    Args:
        state: all that is known about the model before is forgotten.
        source: gives the graph.
        cancelled: set when nobody waits for it any more.
        budget: what `State.set_budget` takes; None for the state's, where that makes sense, else one to begin with.
        quick: seconds for the first schedule; None for as long as one waits without having asked for it.
    """
    before = state.budget
    early = show_cached(state, budget)
    state.stale = state.graph is not None and not early
    seen = " The screen shows what is known of it." if early else ""
    state.say(f"Loading {state.model}: capturing the training graph…{seen}")
    if early and "torch" not in sys.modules:
        cancelled.wait(_DRAWING_SECONDS)
    loaded = None
    with suppress(CaptureCancelled), cancellable(cancelled.is_set):
        loaded = source(state)
    if loaded is None or cancelled.is_set():
        state.say(f"Cancelled before {state.model} was captured.", "warning")
        return None
    graph, note = loaded.graph, ""
    reason = why_not_executable(state, loaded.inputs, graph, loaded.no_inputs)
    same = (early or show_cached(state, budget, graph)) and replace_by_captured(state, graph, loaded.inputs, reason)
    kept = keep_all_solution(graph) if same else show_keep_all(state, loaded.inputs, graph, loaded.no_inputs)
    if loaded.inputs is not None and state.measured_costs:
        graph, note = measure_costs(state, graph, loaded.inputs, cancelled)
    state.costs_are_measured = graph is not kept.graph
    find_budget_marks(state, kept if graph is kept.graph else show_keep_all(state, loaded.inputs, graph), same)
    unread = ""
    try:
        if budget is not None:
            state.set_budget(budget)
    except QuantityError as error:
        unread = str(error)
    usual = FIRST_SECONDS_WITH_CHOICES if graph.has_choices else FIRST_SECONDS
    _show_first_schedule(state, graph, cancelled, usual if quick is None else quick)
    update_auto_selection(state)
    replaced = _replaced(state, before) if budget is None else ""
    report = (
        f"Loaded {state.model}: {graph.n} operations, {len(graph.values)} values, keeping everything "
        f"needs {format_bytes(state.checkpoint_all_peak)}, of which "
        f"{format_bytes(graph.resident_bytes)} always stay.{note} {_on_screen(state)}"
    )
    state.say(f"{replaced}{note}" if replaced else report, "warning" if replaced else "plain")
    if unread:
        state.say(unread, "error")
    return loaded


def show_keep_all(state: State, inputs: ModuleInputs | None, graph: Graph, no_inputs: str = NO_MODULE) -> Solution:
    """What is known at once is shown at once: the graph, and the schedule that keeps everything."""
    forget_model(state)
    keep_all = keep_all_solution(graph)
    assert keep_all.peak is not None
    switch_default_strategy(state, graph)
    state.smallest, state.checkpoint_all_peak = None, keep_all.peak
    state.graph, state.inputs, state.no_execution = graph, inputs, why_not_executable(state, inputs, graph, no_inputs)
    show_schedule(state, keep_all.schedule, keep_all)
    auto_select(state)
    state.stale = False
    return keep_all


def keep_all_solution(graph: Graph) -> Solution:
    """The schedule that keeps everything."""
    return solve(graph, budget="100%", strategy="checkpoint-all")


def find_budget_marks(state: State, keep_all: Solution, is_known: bool = False, keeps_budget: bool = False) -> None:
    """The marks of the budget, which take longer: the smallest one, and what is known without a solve.

    Args:
        state: with the graph.
        keep_all: the schedule that keeps everything.
        is_known: whether a schedule is on the screen that is to stay; else it shows ``keep_all``.
        keeps_budget: whether the budget stays as it is though nothing fits, or everything does.
    """
    graph = keep_all.graph
    load_search(lambda progress: state.say(f"{state.doing} {state.model}: {progress.doing}…"))
    prepare_process()  # from here on there is nothing to compile, and until somebody presses Solve it has loaded
    state.say(f"{state.doing} {state.model}: looking for the smallest budget…")
    state.smallest = smallest = minimum_budget(graph)
    assert keep_all.peak is not None
    least, most = smallest.known_feasible, keep_all.peak
    usual = default_strategy(graph)
    if graph.has_choices:  # an implementation may be cheaper than the default, so that nothing is proven yet
        solutions = [keep_all, Solution(graph, usual, Status.FEASIBLE, least, smallest.schedule, None, 0.0)]
    else:
        assert keep_all.cost is not None
        bound = min(graph.total_cost, keep_all.cost)  # which are sums in different orders
        solutions = [
            keep_all,
            Solution(graph, usual, Status.OPTIMAL, most, keep_all.schedule, bound, 0.0),
            Solution(graph, usual, Status.FEASIBLE, least, smallest.schedule, bound, 0.0),
        ]
    add_to_frontier(state, graph, solutions[:-1] if least >= most else solutions)
    if not (keeps_budget or smallest.lower_bound <= state.budget <= 1.1 * keep_all.peak):
        state.budget = math.ceil(least + BEGIN_SHARE * (most - least))
    if not is_known:
        show_schedule(state, keep_all.schedule, keep_all)


def measure_costs(state: State, graph: Graph, inputs: ModuleInputs, cancelled: threading.Event) -> tuple[Graph, str]:
    """The graph with measured costs, or as it is with the reason why.

    Args:
        state: its status line counts what has been measured.
        graph: with estimated costs.
        inputs: whose operations they are.
        cancelled: ends the measuring.
    """
    from remat_explorer.capture import profile

    needed, free = checkpoint_all_peak(graph), free_bytes(state.device)
    if needed > free:
        return graph, (
            f" Costs are estimates, without workspace: measuring needs {format_bytes(needed)}, and "
            f"{format_bytes(free)} are free."
        )
    words, told = f"{state.doing} {state.model}: measuring {graph.n} operations on {state.device}", 0.0
    state.say(f"{words}…")

    def advance(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= COUNT_INTERVAL:
            told = time.monotonic()
            state.progress = done / total if total else None
            state.say(f"{words}: {done} of {total} runs…")

    try:
        return profile(
            graph,
            *inputs.arguments,
            device=state.device,
            on_progress=advance,
            cancelled=cancelled.is_set,
        ), ""
    except ExecutionError as error:
        reason = "Measuring was cancelled" if cancelled.is_set() else f"Measuring failed ({error})"
        return graph, f" {reason}: costs are estimates, and peaks leave out workspace."
    finally:
        state.progress = None


def why_not_executable(state: State, inputs: ModuleInputs | None, graph: Graph, no_inputs: str = NO_MODULE) -> str:
    """Why the graph cannot be executed here, or ""; ``no_inputs`` where there is nothing to execute it with."""
    if inputs is None:
        return no_inputs
    needed, free = checkpoint_all_peak(graph), free_bytes(state.device)
    if needed > free:
        return (
            f"Execution compares with plain PyTorch, which needs {format_bytes(needed)}; {format_bytes(free)} are "
            "free. Choose a smaller batch or image."
        )
    return ""


def _show_first_schedule(state: State, graph: Graph, cancelled: threading.Event, seconds: float) -> None:
    """Have a schedule within the budget on the screen from the beginning, if one is found in the time."""
    if not cancelled.is_set():
        state.say(f"{state.doing} {state.model}: a first schedule within {format_bytes(state.budget)}…")
        kinds, limits = state.kinds, {"time_limit": seconds, "cancelled": cancelled.is_set, "cache": True}
        options = {"implementations": monet_option(graph, kinds)} if graph.has_choices else {}
        solution = solve(graph, state.budget, default_strategy(graph), **limits, **options)
        add_to_frontier(state, graph, [solution], kinds=kinds)
        show_best_known(state)


def _replaced(state: State, before: int) -> str:
    """What became of the budget that was chosen for another model or for other sizes, in words; "" if it stays."""
    if before in (0, state.budget) or state.smallest is None:
        return ""
    least, most = format_bytes(state.smallest.known_feasible), format_bytes(state.checkpoint_all_peak)
    now = format_bytes(state.budget)
    return f"The budget is {now} now, no longer {format_bytes(before)}; it matters from {least} to {most}."


def _on_screen(state: State) -> str:
    """What the screen shows after loading, and what to do next."""
    shown = state.solution
    if shown is None or shown.peak is None or shown.peak > state.budget:
        return "The screen shows the schedule that keeps everything. Choose a budget and press Find the best."
    if shown.status is Status.OPTIMAL:
        return f"The screen shows the proven best within {format_bytes(state.budget)}."
    budget = format_bytes(state.budget)
    return f"The screen shows the best known schedule within {budget}; Find the best looks for better ones."
