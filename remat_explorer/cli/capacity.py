"""`remat-explorer fit`, `max-batch` and `minimum-budget`: what fits into a memory, and the least that is needed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import remat_explorer as rx
from remat_explorer.cli.model_lookup import SIZES, capture_options, find_graph, find_source, is_graph_file
from remat_explorer.cli.output import (
    DONE,
    INFEASIBLE,
    NOT_IN_TIME,
    beside_search,
    put,
    require_outputs,
    say,
    write_schedule,
    written_to,
)
from remat_explorer.errors import ModelError
from remat_explorer.graph import Graph
from remat_explorer.model_source import capture_source, is_model_file
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_bytes, format_seconds
from remat_explorer.solvers import MaxBatch, MaxImage, default_strategy


def fit(options: argparse.Namespace) -> int:
    """Print the answer, and write the schedule where one was found and asked for."""
    from remat_explorer.fit import RATES

    require_outputs(options)
    if is_graph_file(options.model):
        raise ModelError(
            f"{options.model!r} is a graph file, in which parameters and inputs are not told apart; "
            "give a model's name or path/to/file.py:function"
        )
    sizes = {name: getattr(options, name) for name in SIZES if getattr(options, name) is not None}
    model = options.model
    if is_model_file(model):
        model, sizes = find_source(options, "cuda", runs=False), {}
    found = rx.fit(
        model,
        options.memory,
        optimizer=options.optimizer,
        master_weights=options.master_weights,
        full_gradients=options.full_gradients,
        costs=options.costs or RATES,
        time_limit=options.time_limit,
        on_progress=lambda doing: say(options, doing),
        **sizes,
    )
    say(options, "")
    solution, text = found.solution, str(found)
    if solution.schedule is not None:
        text += write_schedule(options, "fit", solution.schedule, found.memory, solution.seconds, solution.solver)
    if options.graph:
        solution.graph.save(options.graph)
        text += f"\ngraph {written_to(options.graph)}"
    put(options, found.to_document(), text)
    return {"no": INFEASIBLE, "unknown": NOT_IN_TIME}.get(found.verdict, DONE)


LARGEST_SIDE = 8192


def max_batch(options: argparse.Namespace) -> int:
    """Print the largest batch or side with what is proven, and write the schedule where that was asked for."""
    _refuse(options)
    require_outputs(options)
    common = {
        "memory": options.memory,
        "overhead_limit": None if options.overhead_limit == "none" else options.overhead_limit,
        "time_limit": options.time_limit,
        "solver": options.solver,
        "on_progress": lambda progress: say(options, f"{progress.doing}, {format_seconds(progress.seconds)}"),
    }
    largest = _max_image(options, common) if options.vary == "image" else _max_batch(options, common)
    say(options, "")
    text = str(largest)
    if largest.schedule:
        text += write_schedule(options, "max-batch", largest.schedule, largest.memory, largest.seconds, largest.solver)
    put(options, {"graph": options.model} | largest.to_document(), text)
    if largest.upper_bound == 0:
        return INFEASIBLE
    return DONE if largest.optimal else NOT_IN_TIME


def _max_batch(options: argparse.Namespace, common: dict[str, Any]) -> MaxBatch:
    if not is_graph_file(options.model):
        return rx.max_batch(_capture_with(options, "batch"), **common)
    larger = Graph.load(options.larger) if options.larger else None
    small, large = options.batches or (1, 2)
    return rx.max_batch(find_graph(options), larger=larger, batches=(small, large), **common)


def _max_image(options: argparse.Namespace, common: dict[str, Any]) -> MaxImage:
    step = options.step or 32
    return rx.max_image(_capture_with(options, "image"), sides=range(step, LARGEST_SIDE + 1, step), **common)


def _capture_with(options: argparse.Namespace, size: str) -> Callable[[int], Graph]:
    """Captures the model with one of its sizes set."""

    def capture(number: int) -> Graph:
        varied = argparse.Namespace(**vars(options) | {size: number})
        with beside_search(options, "captures, of which none is interrupted"):
            return capture_source(find_source(varied, runs=False), options.costs, capture_options(options))

    return capture


def _refuse(options: argparse.Namespace) -> None:
    """Options that do not go with the model or with each other."""
    flag, number = f"--{options.vary}", getattr(options, options.vary)
    if number is not None:
        raise ModelError(f"{flag} {number} contradicts --vary {options.vary}: that size is what is looked for")
    if is_model_file(options.model):
        raise ModelError(
            f"the function of {options.model!r} chooses its own inputs, so its {options.vary} cannot be varied; "
            "capture it at two batch sizes, and give one graph file as the model and the other with --larger"
        )
    if options.vary == "image" and is_graph_file(options.model):
        raise ModelError(f"--vary image does not apply to {options.model!r}: a graph file has its image size already")
    for name, applies in (
        ("larger", is_graph_file(options.model)),
        ("batches", is_graph_file(options.model)),
        ("step", options.vary == "image"),
    ):
        if getattr(options, name) is not None and not applies:
            reason = "it goes with --vary image" if name == "step" else "it goes with a graph file"
            raise ModelError(f"--{name} does not apply here: {reason}")


NAME = "minimum-budget"  # under which a schedule is written
SHOWN = 8  # values in each list


def minimum_budget(options: argparse.Namespace) -> int:
    """Print what was found, what is proven, and which values are in memory there; write the schedule if asked to."""
    require_outputs(options)
    graph = find_graph(options)
    say(options, "looking for the smallest budget")
    return _at_any_cost(options, graph) if options.overhead is None else _at_overhead(options, graph)


def _at_overhead(options: argparse.Namespace, graph: Graph) -> int:
    least = rx.memory_at_overhead(
        graph,
        options.overhead,
        strategy=default_strategy(graph),
        time_limit=60.0 if options.time_limit is None else options.time_limit,
        on_progress=lambda progress: say(options, f"{progress.doing}, {format_seconds(progress.seconds)}"),
    )
    say(options, "")
    written = write_schedule(options, NAME, least.schedule, least.peak, least.seconds, least.solver)
    put(options, {"graph": graph.name} | least.to_document(), f"{least}{written}")
    return DONE if least.proven else NOT_IN_TIME


def _at_any_cost(options: argparse.Namespace, graph: Graph) -> int:
    begun = time.monotonic()
    smallest = rx.minimum_budget(graph, 10.0 if options.time_limit is None else options.time_limit)
    say(options, "")
    names = [node.name for node in graph.operations]
    document = {
        "graph": graph.name,
        "known_feasible": smallest.known_feasible,
        "lower_bound": smallest.lower_bound,
        "proven": smallest.proven,
        "checkpoint_all_peak": smallest.checkpoint_all_peak,
        "overhead": smallest.schedule.overhead,
        "operation": smallest.name,
        "stage": names[smallest.stage],
        "needed": smallest.needed,
        "fixed": smallest.fixed,
        "values": [graph.values[v].name for v in smallest.values],
        "peak_operation": names[smallest.peak_operation],
        "peak_stage": smallest.peak_stage,
        "alive": [graph.values[v].name for v in smallest.alive],
    }
    lines = [smallest.explain(), f"in memory where the bound is: {_largest(graph, smallest.values)}"]
    lines.append(f"in memory at the schedule's peak: {_largest(graph, smallest.alive)}")
    written = write_schedule(options, NAME, smallest.schedule, smallest.known_feasible, time.monotonic() - begun)
    put(options, document, "\n".join(lines) + written)
    return DONE if smallest.proven else NOT_IN_TIME


def _largest(graph: Graph, values: tuple[int, ...]) -> str:
    """The largest of some values with their bytes, and how many more there are."""
    ordered = sorted(values, key=lambda v: -graph.values[v].bytes)
    shown = [f"{one_line(graph.values[v].name)} ({format_bytes(graph.values[v].bytes)})" for v in ordered[:SHOWN]]
    rest = f" and {len(ordered) - SHOWN} smaller" if len(ordered) > SHOWN else ""
    return ", ".join(shown) + rest
