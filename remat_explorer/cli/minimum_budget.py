"""`remat-explorer minimum-budget`: the smallest budget with a schedule, and what needs it."""

from __future__ import annotations

import argparse

import remat_explorer as rx
from remat_explorer.cli.finding import find_graph
from remat_explorer.cli.output import DONE, NOT_IN_TIME, put, say
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes

SHOWN = 8  # values in each list


def minimum_budget(options: argparse.Namespace) -> int:
    """Print what was found, what is proven, and which values are in memory there."""
    graph = find_graph(options)
    say(options, "looking for the smallest budget")
    found = rx.minimum_budget(graph, options.time_limit)
    say(options, "")
    names = [node.name for node in graph.operations]
    document = {
        "graph": graph.name,
        "known_feasible": found.known_feasible,
        "lower_bound": found.lower_bound,
        "proven": found.proven,
        "checkpoint_all_peak": found.checkpoint_all_peak,
        "overhead": found.schedule.overhead,
        "operation": found.name,
        "stage": names[found.stage],
        "needed": found.needed,
        "fixed": found.fixed,
        "values": [graph.values[v].name for v in found.values],
        "peak_operation": names[found.peak_operation],
        "peak_stage": found.peak_stage,
        "alive": [graph.values[v].name for v in found.alive],
    }
    lines = [found.explain(), f"in memory where the bound is: {_largest(graph, found.values)}"]
    put(options, document, "\n".join([*lines, f"in memory at the schedule's peak: {_largest(graph, found.alive)}"]))
    return DONE if found.proven else NOT_IN_TIME


def _largest(graph: Graph, values: tuple[int, ...]) -> str:
    """The largest of some values with their bytes, and how many more there are."""
    ordered = sorted(values, key=lambda v: -graph.values[v].bytes)
    shown = [f"{graph.values[v].name} ({format_bytes(graph.values[v].bytes)})" for v in ordered[:SHOWN]]
    rest = f" and {len(ordered) - SHOWN} smaller" if len(ordered) > SHOWN else ""
    return ", ".join(shown) + rest
