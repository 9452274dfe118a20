"""`remat-explorer max-batch`: the largest batch, or the largest image, that fits into a memory."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import remat_explorer as rx
from remat_explorer.cli.finding import capture_options, find_graph, find_source, is_graph_file
from remat_explorer.cli.output import (
    DONE,
    INFEASIBLE,
    NOT_IN_TIME,
    beside_search,
    put,
    require_outputs,
    say,
    write_schedule,
)
from remat_explorer.errors import ModelError
from remat_explorer.graph import Graph
from remat_explorer.model_source import capture_source, is_model_file
from remat_explorer.quantities import format_seconds
from remat_explorer.solvers import MaxBatch, MaxImage

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
