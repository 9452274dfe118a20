"""`remat-explorer solve`: the cheapest schedule within a budget."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import remat_explorer as rx
from remat_explorer.cli.finding import find_graph
from remat_explorer.cli.output import DONE, INFEASIBLE, NOT_IN_TIME, put, say
from remat_explorer.quantities import format_overhead, format_seconds

if TYPE_CHECKING:
    from remat_explorer.graph import Graph
    from remat_explorer.solution import Solution


def solve(options: argparse.Namespace) -> int:
    """Solve, print the answer, and write the schedule where that was asked for."""
    solution = solved(options, find_graph(options))
    if solution.status == "infeasible":
        return report_infeasible(options, solution)
    lines = [str(solution)]
    if solution.lower_bound is not None and solution.cost is not None:
        lines.append(f"cost {solution.cost:.6g}, lower bound {solution.lower_bound:.6g}, peak {solution.peak} bytes")
    if options.output and solution.schedule:
        lines.append(f"written to {options.output}")
    put(options, without_matrices(solution), "\n".join(lines))
    return DONE if solution.status == "optimal" else NOT_IN_TIME


def solved(options: argparse.Namespace, graph: Graph) -> Solution:
    """The solution of ``graph``, with progress on a terminal; written to a file if there is a schedule."""

    def on_progress(progress: Any) -> None:
        best = "" if progress.schedule is None else f", overhead {format_overhead(progress.schedule.overhead)}"
        say(options, f"{progress.doing}{best}, {format_seconds(progress.seconds)}")

    solution = rx.solve(
        graph,
        budget=options.budget,
        strategy=options.strategy,
        time_limit=options.time_limit,
        solver=options.solver,
        on_progress=on_progress,
    )
    say(options, "")
    if options.output and solution.schedule:
        solution.save(options.output)
    return solution


def report_infeasible(options: argparse.Namespace, solution: Solution) -> int:
    """Say what forbids the budget, and the smallest one worth trying."""
    smallest = rx.minimum_budget(solution.graph)
    document = without_matrices(solution) | {
        "minimum_budget": {
            "lower_bound": smallest.lower_bound,
            "known_feasible": smallest.known_feasible,
            "operation": solution.graph.operations[smallest.operation].name,
        }
    }
    if solution.budget < smallest.known_feasible:
        reason = smallest.explain()
    else:
        reason = f"a schedule within this budget is known, but not by {solution.strategy!r}: try --strategy optimal"
    put(options, document, f"{solution}\n{reason}")
    return INFEASIBLE


def without_matrices(solution: Solution) -> dict[str, Any]:
    """The solution file without its matrices."""
    return {key: entry for key, entry in solution.to_document().items() if key not in ("format", "version", "R", "S")}
