"""`remat-explorer minimum-budget`: the smallest budget with a schedule, at any cost or at a limited one."""

from __future__ import annotations

import argparse
import time

import remat_explorer as rx
from remat_explorer.cli.finding import find_graph
from remat_explorer.cli.output import DONE, NOT_IN_TIME, put, require_outputs, say, write_schedule
from remat_explorer.graph import Graph
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_bytes, format_seconds
from remat_explorer.solvers.registry import default_strategy

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
